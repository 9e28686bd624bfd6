"""Noise is standard normal, independent, and has the tails that the guarantee counts on."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from quorum_rl.training import gaussian
from quorum_rl.training.gaussian import standard_normal

COUNT = 400_001  # odd: one number of the last pair is left over


@pytest.fixture(scope="module")
def drawn() -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.asarray(standard_normal(jax.random.key(7), COUNT), np.float64)


def test_the_numbers_are_standard_normal(
    drawn: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> None:
    assert len(drawn) == COUNT
    # Each has a false-alarm probability of 1e-6.
    assert stats.kstest(drawn, stats.norm.cdf).pvalue > 1e-6
    assert stats.chi2(COUNT).cdf(np.square(drawn).sum()) == pytest.approx(0.5, abs=0.5 - 5e-7)
    # In cells of the same probability, so that no part of the bell is too thin.
    cells = np.bincount((stats.norm.cdf(drawn) * 1000).astype(int), minlength=1000)
    assert stats.chisquare(cells).pvalue > 1e-6


def test_neighbours_are_independent_and_so_are_streams(
    drawn: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> None:
    other = np.asarray(standard_normal(jax.random.key(7), COUNT, stream=1), np.float64)
    for pairs in ((drawn[:-1], drawn[1:]), (drawn, other)):
        places = (stats.norm.cdf(np.stack(pairs)) * 20).astype(int)
        table = np.histogram2d(places[0], places[1], bins=20)[0]
        assert stats.chi2_contingency(table).pvalue > 1e-6  # false alarm: 1e-6


def test_every_word_of_bits_gives_the_quantile_and_direction_it_stands_for() -> None:
    random = np.random.default_rng(0)
    words = random.integers(2**32, size=(2, 5000), dtype=np.uint32)
    words[0, :4] = 0, 0, 1, 2**32 - 1
    words[1, :4] = 0, 2**24 - 1, 2**24 - 2, 2**32 - 1
    ours = np.asarray(gaussian._normal(*jnp.asarray(words)), np.float64)
    high, low = words.astype(object)
    uniform = np.array(
        [(h * 256 + (w >> 24) + 0.5) / 2**40 for h, w in zip(high, low, strict=True)]
    )
    quarters = np.array([((w >> 1 & 0x7FFFFF) + 0.5) / 2**23 for w in low])
    signs = np.array([-1 if w & 1 else 1 for w in low])
    expected = signs * np.sqrt(-2 * np.log(uniform)) * np.sin(np.pi / 2 * quarters)
    # Near one, the uniform number is rounded to float32.
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=5e-4)
    assert ours[1] == pytest.approx(-7.54, abs=0.01)


def test_what_lies_beyond_the_tails_hardly_adds_to_delta() -> None:
    """A sum that one expert shifted out of the noise's reach gives that expert away."""
    steps, sampling_rate, shift = 2000, 0.17, 1.0  # noise multiplier 1

    def given_away(reach: float) -> float:
        return float(steps * sampling_rate * stats.norm.sf(reach - shift))

    reach = float(gaussian._radius(jnp.zeros(1, jnp.uint32), jnp.zeros(1, jnp.uint32))[0])
    assert given_away(reach) < 1e-7
    assert given_away(5.42) > 1e-3  # jax.random.normal


def test_runs_with_other_keys_have_other_noise() -> None:
    keys = jax.random.split(jax.random.key(3), 3)
    rows = jax.vmap(partial(standard_normal, count=5))(keys)
    assert len(np.unique(rows)) == 15
    np.testing.assert_array_equal(rows[1], standard_normal(keys[1], 5))
