"""Random bits: every step's randomness follows from its run's key and its own number alone.

Bits in bulk are made by Threefry-2x32, the generator of JAX's keys, as one stretch of arithmetic.
"""

from typing import Any, Final, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

Array: TypeAlias = jax.Array

ROTATIONS: Final = (13, 15, 26, 6), (17, 29, 16, 24)


class StepKeys(NamedTuple):
    """For who is drawn, for which of their transitions, for the contribution, for the noise."""

    sampling: Array
    transitions: Array
    contribution: Array
    noise: Array


def key_of(words: Any) -> Array:
    """The JAX key that is made of these words."""
    key: Array = jax.random.wrap_key_data(words, impl="threefry2x32")
    return key


def step_key(noise_words: Any, number: Array) -> Array:
    """The secret key of the step of that number, the first being 1."""
    return jax.random.fold_in(key_of(noise_words), number)


def keys_of(key: Array) -> StepKeys:
    """A private step's keys. Give every step a key of its own."""
    return StepKeys(*jax.random.split(key, 4))


def random_words(key: Array, high: Array | int, low: Array) -> tuple[Array, Array]:
    """Two words of 32 random bits for each counter, 64 bits of which are `high` and `low`.

    The same as `jax.extend.random.threefry_2x32`, which on a CPU runs as a loop that copies all
    words five times and cannot become one with what is made of them; here it is fused with that.
    Words depend on key and counter alone: with one key, use no counter twice.

    `key` is of JAX's default kind, Threefry. Shapes: that of `low`, to which `high` must broadcast.
    """
    first_key, second_key = jax.random.key_data(key)
    keys = first_key, second_key, first_key ^ second_key ^ jnp.uint32(0x1BD11BDA)
    low = low.astype(jnp.uint32)
    first = jnp.broadcast_to(jnp.asarray(high, jnp.uint32), low.shape) + keys[0]
    second = low + keys[1]
    for group in range(5):
        for rotation in ROTATIONS[group % 2]:
            first += second
            second = (second << rotation | second >> (32 - rotation)) ^ first
        first += keys[(group + 1) % 3]
        second += keys[(group + 2) % 3] + jnp.uint32(group + 1)
    return first, second
