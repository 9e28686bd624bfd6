"""Lower bounds on ε, against mechanisms whose ε is known."""

import math
from bisect import bisect_left
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from jax_privacy import auditing
from scipy.stats import binom, binomtest, norm

from quorum_rl.audit.bounds import (
    Floats,
    choosing_runs,
    gaussian_epsilon,
    gaussian_lower_bound,
    lower_bound,
    oriented,
    proportion_bounds,
    ratio_scores,
)
from quorum_rl.audit.finding import CERTAIN, ceiling
from quorum_rl.errors import QuorumError

REPETITIONS = 400
# Of each test of coverage: so many bounds above the truth, each with probability 5% at most, come
# with probability below 1e-6.
MOST_ABOVE = int(binom(REPETITIONS, 0.05).isf(1e-6))

Draw = Callable[[np.random.Generator, int], Floats]


def randomised_response(epsilon: float) -> tuple[Draw, Draw]:
    """A bit that is true with probability e^ε/(1 + e^ε)."""
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    return (
        lambda rng, runs: (rng.random(runs) < truth).astype(float),
        lambda rng, runs: (rng.random(runs) >= truth).astype(float),
    )


def laplace(epsilon: float) -> tuple[Draw, Draw]:
    return (
        lambda rng, runs: rng.laplace(1.0, 1 / epsilon, runs),
        lambda rng, runs: rng.laplace(0.0, 1 / epsilon, runs),
    )


def gaussian(separation: float) -> tuple[Draw, Draw]:
    return (
        lambda rng, runs: rng.normal(separation, 1, runs),
        lambda rng, runs: rng.normal(0.0, 1, runs),
    )


@pytest.mark.parametrize(
    ("mechanism", "delta", "truth"),
    [
        (randomised_response(1.0), 0.0, 1.0),
        (laplace(1.5), 0.0, 1.5),
        (gaussian(1.0), 0.01, gaussian_epsilon(1.0, 0.01)),
        (gaussian(0.0), 0.0, 0.0),
    ],
    ids=["randomised response", "Laplace", "Gaussian", "nothing"],
)
def test_a_bound_exceeds_the_truth_no_oftener_than_it_says(
    mechanism: tuple[Draw, Draw], delta: float, truth: float
) -> None:
    rng = np.random.default_rng(1)
    above = 0
    for _ in range(REPETITIONS):
        present, absent = (draw(rng, 300) for draw in mechanism)
        above += lower_bound(present, absent, delta).epsilon > truth
    assert above <= MOST_ABOVE


@pytest.mark.parametrize(
    ("often", "seldom", "delta"),
    [(0.5, 0.5, 0.0), (0.3, 0.1, 0.05), (1.0, 0.7, 0.01)],
)
def test_whoever_is_sound_is_accused_with_probability_0_1_percent_at_most(
    often: float, seldom: float, delta: float
) -> None:
    """Exactly, by enumerating all counts of the runs that judge, for the threshold 0.5."""
    truth, judging, choosing = math.log((often - delta) / seldom), 90, 30

    def accused(absent: int, present: int) -> bool:
        here, away = (np.arange(judging) < count for count in (present, absent))
        first = np.arange(choosing) < choosing - 1, np.arange(choosing) < 1
        made = [
            np.concatenate(parts).astype(float) for parts in zip(first, (here, away), strict=True)
        ]
        found = lower_bound(made[0], made[1], delta, CERTAIN)
        assert (found.judged, found.direction) == (judging, "remove")
        return found.epsilon > truth

    counts = range(judging + 1)
    # The more of the runs with the expert reach it, the sooner: so the first count is enough.
    first = [bisect_left(counts, True, key=partial(accused, absent)) for absent in counts]
    alarms = binom(judging, often).sf(np.array(first) - 1) @ binom(judging, seldom).pmf(counts)
    assert alarms <= 1 - CERTAIN


@pytest.mark.parametrize("separation", [0.0, 1.0])
def test_so_does_a_gaussian_one_if_its_assumption_holds(separation: float) -> None:
    rng = np.random.default_rng(2)
    above = 0
    for _ in range(REPETITIONS):
        present, absent = (draw(rng, 300) for draw in gaussian(separation))
        found = gaussian_lower_bound(present, absent, 0.01).epsilon
        above += found > gaussian_epsilon(separation, 0.01)
    assert above <= MOST_ABOVE


def test_the_gaussian_bound_of_jax_privacy_accuses_what_loses_nothing() -> None:
    """Which is why it is not used: a bound on μ from below may be negative, and it takes its size.

    So of two equal distributions it says that ε is positive.
    """
    rng = np.random.default_rng(3)
    pairs = [(rng.normal(size=1000), rng.normal(size=1000)) for _ in range(20)]
    theirs = [auditing.CanaryScoreAuditor(*pair).epsilon_from_gdp(0.05, 0.01) for pair in pairs]
    ours = [gaussian_lower_bound(one, other, 0.01).epsilon for one, other in pairs]
    assert sum(found > 0 for found in theirs) > 10
    assert sum(found > 0 for found in ours) <= 5  # more come with probability below 1e-3


@pytest.mark.parametrize(
    ("mechanism", "delta", "truth"),
    [
        (randomised_response(2.0), 0.0, 2.0),
        (laplace(1.5), 0.0, 1.5),
        (gaussian(1.0), 0.01, gaussian_epsilon(1.0, 0.01)),
    ],
    ids=["randomised response", "Laplace", "Gaussian"],
)
def test_with_many_runs_a_bound_comes_close_to_the_truth(
    mechanism: tuple[Draw, Draw], delta: float, truth: float
) -> None:
    rng = np.random.default_rng(4)
    present, absent = (draw(rng, 100_000) for draw in mechanism)
    found = lower_bound(present, absent, delta).epsilon
    assert 0.85 * truth < found < truth


def test_a_gaussian_bound_comes_close_with_far_fewer() -> None:
    rng = np.random.default_rng(5)
    present, absent = (draw(rng, 4000) for draw in gaussian(2.0))
    truth = gaussian_epsilon(2.0, 1e-5)
    assert 0.85 * truth < gaussian_lower_bound(present, absent, 1e-5).epsilon < truth
    assert lower_bound(present, absent, 1e-5).epsilon < 0.7 * truth  # tails were never seen


def test_each_direction_is_seen() -> None:
    """One output that comes only with the expert, or only without."""
    rng = np.random.default_rng(6)
    sometimes, never = (rng.random(4000) < 0.1).astype(float), np.zeros(4000)
    assert lower_bound(sometimes, never, 0.0).direction == "remove"
    added = lower_bound(never, -sometimes, 0.0)
    assert added.direction == "add"
    assert added.epsilon > 3
    assert lower_bound(sometimes, never, 0.15).epsilon == 0  # all of it is δ


def test_proportions_are_bounded_as_scipy_bounds_them() -> None:
    for found in (0, 3, 50):
        theirs = binomtest(found, 50).proportion_ci(0.9, method="exact")
        low, high = proportion_bounds(found, 50, 0.05)
        np.testing.assert_allclose([low, high], [theirs.low, theirs.high], rtol=1e-9)


def test_at_one_threshold_the_bound_is_that_of_jax_privacy() -> None:
    present, absent = (draw(np.random.default_rng(7), 2000) for draw in randomised_response(1.0))
    judged = [scores[choosing_runs(2000) :] for scores in (present, absent)]
    theirs = auditing.CanaryScoreAuditor(*judged).epsilon_clopper_pearson(
        0.05, 0.01, one_sided=False, threshold_strategy=auditing.Explicit(0.5)
    )
    ours = lower_bound(present, absent, 0.01)
    assert 0 < ours.epsilon <= theirs + 1e-12
    swapped = lower_bound(-absent, -present, 0.01)  # the other direction
    assert max(ours.epsilon, swapped.epsilon) == pytest.approx(theirs)


def test_a_gaussian_epsilon_is_where_the_curve_of_balle_and_wang_meets_delta() -> None:
    for separation, delta in ((0.5, 1e-3), (1.0, 1e-5), (4.0, 1e-2), (12.0, 1e-9)):
        epsilon = gaussian_epsilon(separation, delta)
        upper = norm.cdf(separation / 2 - epsilon / separation)
        lower = norm.cdf(-separation / 2 - epsilon / separation)
        assert upper - math.exp(epsilon) * lower == pytest.approx(delta, rel=1e-4)
    assert gaussian_epsilon(0.1, 0.5) == 0


def test_outcomes_are_scored_by_how_much_oftener_they_come() -> None:
    rng = np.random.default_rng(8)
    present = rng.choice(3, p=[0.2, 0.3, 0.5], size=(4000, 2))
    absent = rng.choice(3, p=[0.5, 0.3, 0.2], size=(4000, 2))
    here, away = ratio_scores(present, absent)
    known = np.log([0.4, 1.0, 2.5])
    assert np.abs(here - known[present].sum(axis=1)).max() < 0.3
    assert np.abs(away - known[absent].sum(axis=1)).max() < 0.3


@pytest.mark.parametrize("runs", [50, 200, 1000, 20_000])
def test_no_result_of_so_many_runs_shows_more_than_the_ceiling(runs: int) -> None:
    """SciPy's intervals of three quarters that all pass, and of as many that never do."""
    judged, delta = runs * 3 // 4, 1e-3
    level = {"confidence_level": CERTAIN, "method": "exact"}
    often, never = (binomtest(found, judged).proportion_ci(**level) for found in (judged, 0))
    most = ceiling(lower_bound, runs, runs, delta)
    assert most == pytest.approx(math.log((often.low - delta) / never.high), abs=0.05)
    assert most == pytest.approx(math.log(runs / 10), abs=0.15)  # as docs/audit.md says
    rng = np.random.default_rng(10)
    for separation in (3.0, 6.0, 20.0):
        present, absent = (draw(rng, runs) for draw in gaussian(separation))
        assert lower_bound(present, absent, delta, CERTAIN).epsilon <= most


def test_too_few_runs_and_scores_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(QuorumError, match="3 runs"):
        lower_bound([1, 2, 3], np.zeros(100), 0.0)
    with pytest.raises(QuorumError, match="no number"):
        lower_bound(np.full(100, np.nan), np.zeros(100), 0.0)


def test_a_score_is_turned_by_the_runs_that_choose_and_by_no_others() -> None:
    present, absent = np.arange(16.0), np.arange(16.0) + 1
    np.testing.assert_array_equal(oriented(present, absent), (-present, -absent))
    present[choosing_runs(16) :] += 100
    np.testing.assert_array_equal(oriented(present, absent), (-present, -absent))
    np.testing.assert_array_equal(oriented(absent, present), (absent, present))
