"""Both integrators against exact solutions, and the worlds' number types under 64-bit JAX."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm

from quorum_rl.envs import get_world, roll_out, start, uniform_policy, world_names
from quorum_rl.envs.integrators import rodas_4, runge_kutta_4

Step = Callable[[Any, Any], Any]


def integrate(step: Step, state: Any, end: float, count: int) -> Any:
    """`count` equal steps from 0 to `end`, in float64."""
    time_step = jnp.float64(end / count)
    return jax.lax.fori_loop(0, count, lambda _, now: step(now, time_step), state)


def logistic(state: Any) -> Any:
    return (state[0] * (1 - state[0]),)


def logistic_solver(state: Any, shift: Any) -> Callable[[Any], Any]:
    return lambda right: (right[0] / (shift - (1 - 2 * state[0])),)


LOGISTIC_EXACT = 1 / (1 + 9 * np.exp(-3.0))  # from 0.1, after 3

STIFF = np.array([[-1000.0, 200.0, 0.0], [1.0, -2.0, 1.0], [0.0, 0.5, -0.5]])
STIFF_START = np.array([1.0, -1.0, 2.0])


def stiff(state: Any) -> Any:
    return (STIFF @ state[0],)


def stiff_solver(state: Any, shift: Any) -> Callable[[Any], Any]:
    del state
    return lambda right: (jnp.linalg.solve(shift * jnp.eye(3) - STIFF, right[0]),)


@pytest.mark.parametrize(
    "step",
    [
        lambda now, h: runge_kutta_4(logistic, now, h),
        lambda now, h: rodas_4(logistic, logistic_solver, now, h),
    ],
)
def test_both_have_order_four_on_a_nonlinear_equation(step: Step) -> None:
    """The observed order of convergence between successive numbers of steps."""
    with jax.enable_x64(True):
        ends = [integrate(step, (jnp.float64(0.1),), 3.0, count) for count in (8, 16, 32, 64)]
    errors = np.abs(np.ravel(ends) - LOGISTIC_EXACT)
    assert np.log2(errors[:-1] / errors[1:]) == pytest.approx([4.0] * 3, abs=0.3)


def test_rodas_is_exact_and_stable_where_steps_are_far_too_long_for_an_explicit_method() -> None:
    """Steps of 0.05 with a rate of 1000: the fast part must vanish, the slow part be exact."""
    exact = expm(2.0 * STIFF) @ STIFF_START
    with jax.enable_x64(True):
        begin = (jnp.asarray(STIFF_START),)
        implicit = integrate(lambda s, h: rodas_4(stiff, stiff_solver, s, h), begin, 2.0, 40)
        explicit = integrate(lambda s, h: runge_kutta_4(stiff, s, h), begin, 2.0, 40)
    assert np.abs(np.asarray(implicit[0]) - exact).max() < 1e-5
    assert np.abs(np.asarray(explicit[0]) - exact).max() > 1e6


def test_rodas_damps_an_infinitely_fast_part_completely() -> None:
    """L-stability: what remains of y' = -λy after one step goes to zero as λ grows."""

    def left_of_one(rate: float) -> float:
        def decay(state: Any) -> Any:
            return (-rate * state[0],)

        def solver(state: Any, shift: Any) -> Callable[[Any], Any]:
            del state
            return lambda right: (right[0] / (shift + rate),)

        return float(rodas_4(decay, solver, (jnp.float64(1.0),), jnp.float64(1.0))[0])

    with jax.enable_x64(True):
        for rate, bound in ((1e4, 1e-2), (1e6, 1e-4), (1e8, 1e-6)):
            assert abs(left_of_one(rate)) < bound


# LunarLander has such a test of its own, without running it.
@pytest.mark.parametrize(
    "name", [name for name in world_names() if not name.startswith("LunarLander")]
)
def test_a_world_keeps_its_number_types_under_64_bit_jax(name: str) -> None:
    def types_and_values(x64: bool) -> tuple[list[str], Any]:
        with jax.enable_x64(x64):
            world = get_world(name)
            params = world.default_params()
            running = start(world, jax.random.key(0), params, 3)
            policy = uniform_policy(world)
            running, seen = roll_out(world, policy, jax.random.key(1), running, params, 4)
            leaves = jax.tree.leaves((running, seen))
            return [str(leaf.dtype) for leaf in leaves], np.asarray(seen.next_observation)

    narrow_types, narrow = types_and_values(False)
    wide_types, wide = types_and_values(True)
    assert wide_types == narrow_types
    assert set(wide_types) == {"float32", "int32", "bool"}
    np.testing.assert_allclose(wide, narrow, rtol=1e-5, atol=1e-6)
