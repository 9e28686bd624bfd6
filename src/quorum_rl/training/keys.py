"""The keys of a run and of its steps: every step's randomness follows from key and number alone."""

from typing import Any, NamedTuple

import jax

Array = jax.Array


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
