"""Our random words are JAX's."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import threefry_2x32

from quorum_rl.training.randomness import random_words


def test_words_are_those_of_the_generator_of_jax() -> None:
    random = np.random.default_rng(0)
    for seed in (0, 1, 2**31):
        key = jax.random.key(seed)
        high, low = jnp.asarray(random.integers(2**32, size=(2, 1000), dtype=np.uint32))
        theirs = threefry_2x32(jax.random.key_data(key), jnp.concatenate([high, low]))
        ours = jnp.concatenate(random_words(key, high, low))
        np.testing.assert_array_equal(ours, theirs)


def test_one_high_word_may_stand_for_all() -> None:
    key, low = jax.random.key(3), jnp.arange(6).reshape(3, 2)
    several = random_words(key, jnp.full((3, 2), 7), low)
    np.testing.assert_array_equal(random_words(key, 7, low), several)
