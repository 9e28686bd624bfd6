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


def test_the_two_numbers_of_a_pair_are_independent(
    drawn: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> None:
    half = COUNT // 2 + 1
    pairs = np.stack([drawn[: half - 1], drawn[half:]])
    places = (stats.norm.cdf(pairs) * 20).astype(int)
    table = np.histogram2d(places[0], places[1], bins=20)[0]
    assert stats.chi2_contingency(table).pvalue > 1e-6  # false alarm: 1e-6


def test_every_word_of_bits_gives_the_quantile_and_direction_it_stands_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    random = np.random.default_rng(0)
    words = random.integers(2**32, size=(2, 5000), dtype=np.uint32)
    words[0, :3] = 0, 1, 2**32 - 1
    words[1, :3] = 0, 0, 2**32 - 1
    monkeypatch.setattr(gaussian, "_words", lambda *_: jnp.asarray(words))
    first, second = np.asarray(standard_normal(jax.random.key(0), 10_000), np.float64).reshape(
        2, -1
    )
    high, low = words.astype(object)
    uniform = np.array(
        [(h * 256 + (w >> 24) + 0.5) / 2**40 for h, w in zip(high, low, strict=True)]
    )
    radius = np.sqrt(-2 * np.log(uniform))
    np.testing.assert_allclose(np.hypot(first, second), radius, rtol=1e-4, atol=5e-4)
    quarter = np.array([(w >> 2 & 0x3FFFFF) + 0.5 for w in low]) / 2**22 - 0.5
    angle = np.pi / 2 * (quarter.astype(float) + np.array([w & 3 for w in low]).astype(float))
    outer = radius > 0.01  # near one, the uniform number is rounded to float32
    direction = np.stack([first, second])[:, outer] / radius[outer]
    expected = np.stack([np.cos(angle), np.sin(angle)])[:, outer]
    np.testing.assert_allclose(direction, expected, atol=1e-3)
    assert np.hypot(first, second)[0] == pytest.approx(7.54, abs=0.01)


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
