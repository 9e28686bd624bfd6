"""Whom a private step draws: everybody at the declared rate, whoever else is drawn."""

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from quorum_rl.training import mechanism
from quorum_rl.training.contributions import Gradient
from quorum_rl.training.mechanism import PrivateStep, poisson_sample

Sampler: TypeAlias = Callable[[jax.Array, int, jax.Array], jax.Array]
FALSE_ALARM = 1e-6  # of every statistical check here, on both sides together
EXPERTS, DRAWS = 30, 20_000


def step_of(rate: float) -> PrivateStep:
    return PrivateStep(
        sampling_rate=rate,
        clip_norm=0.5,
        noise_multiplier=1.5,
        expected_batch=8.0,
        chunk=8,
        contribution=Gradient(transitions=3),
    )


def within(statistic: float, degrees: int) -> bool:
    """Whether a sum of squares is one that a chi-square distribution gives."""
    low, high = stats.chi2(degrees).ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2])
    return bool(low < statistic < high)


def rates_are_as_declared(drawn: Any, rate: float) -> bool:
    counts = drawn.sum(axis=0)
    squares = (counts - DRAWS * rate) ** 2 / (DRAWS * rate * (1 - rate))
    return within(squares.sum(), EXPERTS)


def experts_are_independent(drawn: Any) -> bool:
    """Correlations between independent columns have squares that sum to a chi-square variable."""
    correlations = np.corrcoef(drawn, rowvar=False)[np.triu_indices(EXPERTS, 1)]
    return within(DRAWS * np.square(correlations).sum(), len(correlations))


def draws(sampler: Sampler, rate: float) -> Any:
    numbers = step_of(rate).numbers
    keys = jax.random.split(jax.random.key(11), DRAWS)
    drawn = jax.vmap(lambda key: sampler(key, EXPERTS, numbers.last_drawn))(keys)
    return np.asarray(drawn, np.float64)


@pytest.mark.parametrize("rate", [0.04, 0.5])
def test_each_expert_is_drawn_at_the_declared_rate_whoever_else_is(rate: float) -> None:
    drawn = draws(poisson_sample, rate)
    assert rates_are_as_declared(drawn, rate)
    assert experts_are_independent(drawn)
    # The sizes vary as those of independent draws do.
    sizes = drawn.sum(axis=1)
    expected = stats.binom(EXPERTS, rate).pmf(np.arange(EXPERTS + 1)) * DRAWS
    counts = np.bincount(sizes.astype(int), minlength=EXPERTS + 1)
    usual = expected > 10
    counts, expected = (np.append(x[usual], x[~usual].sum()) for x in (counts, expected))
    assert stats.chisquare(counts, expected).pvalue > FALSE_ALARM


def shuffled(key: jax.Array, count: int, last_drawn: jax.Array) -> jax.Array:
    """As many as expected, always."""
    size = jnp.round(count * (last_drawn / 2.0**32)).astype(int)
    return jax.random.permutation(key, count) < size


def all_or_nobody_of_a_pair(key: jax.Array, count: int, last_drawn: jax.Array) -> jax.Array:
    return jnp.repeat(poisson_sample(key, count // 2, last_drawn), 2)


def too_eager(key: jax.Array, count: int, last_drawn: jax.Array) -> jax.Array:
    return poisson_sample(key, count, last_drawn // 20 * 21)


def test_the_checks_catch_wrong_sampling() -> None:
    for dependent in (shuffled, all_or_nobody_of_a_pair):
        assert not experts_are_independent(draws(dependent, 0.5))
    assert rates_are_as_declared(draws(shuffled, 0.5), 0.5)  # which alone proves little
    assert not rates_are_as_declared(draws(too_eager, 0.5), 0.5)


@pytest.mark.parametrize(
    ("rate", "last_drawn"),
    [
        (1.0, 2**32 - 1),
        (0.5, 2**31 - 1),
        (2**-32, 0),
        (0.1, 429496728),
        (np.nextafter(0.25, 0), 2**30 - 2),
    ],
)
def test_the_rate_is_rounded_down_to_a_multiple_of_two_to_the_minus_32(
    rate: float, last_drawn: int
) -> None:
    numbers = step_of(rate).numbers
    assert int(numbers.last_drawn) == last_drawn
    assert 0 <= rate - (last_drawn + 1) / 2**32 < 2**-32


def test_at_rate_one_everybody_is_drawn_and_bits_up_to_the_last_drawn_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    everybody = poisson_sample(jax.random.key(0), 1000, jnp.uint32(2**32 - 1))
    assert everybody.all()
    bits = jnp.array([0, 9, 10, 11, 2**32 - 1], jnp.uint32)
    monkeypatch.setattr(mechanism, "random_words", lambda *_: (bits, bits))
    assert poisson_sample(jax.random.key(0), 5, jnp.uint32(10)).tolist() == [1, 1, 1, 0, 0]
