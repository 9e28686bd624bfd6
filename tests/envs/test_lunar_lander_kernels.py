"""Loops as one kernel: the same numbers as without, whatever is mapped over them."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quorum_rl.envs.lunar_lander.kernels import THREADS, by_threads, repeated_while

Array = jax.Array


class Number(NamedTuple):
    """Collatz: how many steps a number takes to one, and whether it was ever above 100."""

    value: Array
    steps: Array
    high: Array


def to_one(most: Array, begin: Number) -> Number:
    def unfinished(now: Number) -> Array:
        return (now.value > 1) & (now.steps < most)

    def step(now: Number) -> Number:
        value = jnp.where(now.value % 2 == 0, now.value // 2, 3 * now.value + 1)
        return Number(value, now.steps + 1, now.high | (value > 100))

    return repeated_while(unfinished, step, begin)


def in_kernel(most: Array, value: Array) -> Number:
    begin = Number(value, jnp.zeros_like(value), jnp.zeros_like(value, bool))
    return by_threads(to_one, most, begin, interpret=True)


def expected(value: int, most: int) -> tuple[int, int, bool]:
    steps, high = 0, False
    while value > 1 and steps < most:
        value, steps = (value // 2 if value % 2 == 0 else 3 * value + 1), steps + 1
        high |= value > 100
    return value, steps, high


def same(found: Number, values: np.ndarray, most: np.ndarray) -> None:
    wanted = [expected(int(v), int(m)) for v, m in np.broadcast(values, most)]
    for column, name in zip(zip(*wanted, strict=True), Number._fields, strict=True):
        np.testing.assert_array_equal(np.asarray(getattr(found, name)).reshape(-1), column)


@pytest.mark.parametrize("count", [1, THREADS, THREADS + 3])
def test_every_world_stops_when_it_is_done_whatever_the_others_do(count: int) -> None:
    values = np.arange(1, count + 1, dtype=np.int32)
    found = jax.jit(jax.vmap(in_kernel, (None, 0)))(jnp.int32(1000), values)
    assert found.high.dtype == bool
    same(found, values, np.array(1000))


def test_worlds_mapped_over_twice_and_in_part_are_one_kernel_too() -> None:
    values, most = np.arange(1, 8, dtype=np.int32), np.array([3, 50], np.int32)
    twice = jax.vmap(jax.vmap(in_kernel, (None, 0)), (0, None))
    assert str(jax.make_jaxpr(twice)(most, values)).count("pallas_call[") == 1
    same(jax.jit(twice)(most, values), values[None, :], most[:, None])


def test_a_single_world_needs_no_kernel() -> None:
    found = in_kernel(jnp.int32(1000), jnp.int32(27))
    assert (int(found.value), int(found.steps), bool(found.high)) == expected(27, 1000)
    assert "pallas_call" not in str(jax.make_jaxpr(in_kernel)(jnp.int32(9), jnp.int32(27)))
