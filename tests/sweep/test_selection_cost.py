"""What private selection costs: never below the truth, where that can be integrated."""

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from dp_accounting import dp_event, rdp
from scipy.integrate import quad
from scipy.stats import norm

from quorum_rl.budget.verifier import TOLERANCE, independent_epsilon
from quorum_rl.errors import QuorumError
from quorum_rl.privacy import (
    Event,
    ReleaseEvent,
    SelectionEvent,
    TrainingEvent,
    plan_release,
    total_delta,
    total_epsilon,
)

DELTA = 1e-3


@pytest.fixture(scope="module", name="release")
def _release() -> ReleaseEvent:
    return plan_release(
        experts=300, actions=2, horizon=50, epsilon=2.0, delta=4e-4, p_min=0.1, iterations=6,
        overflow_epsilon=8.0,
    ).event  # fmt: skip


Density = Callable[[float], float]


def density_of_best(mean: float, noise: float, trials: int) -> Density:
    """The highest of K draws of N(mean, noise²), K geometric: Σ k·p(1−p)^(k−1)·F^(k−1)·f."""
    chance = 1 / trials

    def density(y: float) -> float:
        below = norm.cdf(y, mean, noise)
        return float(chance * norm.pdf(y, mean, noise) / (1 - (1 - chance) * below) ** 2)

    return density


def true_delta(noise: float, trials: int, epsilon: float) -> float:
    """Of one step that sees everybody, with its own output as the score: an expert adds 1 or −1."""
    found = 0.0
    for first, second in ((0.0, 1.0), (1.0, 0.0), (0.0, -1.0), (-1.0, 0.0)):
        one, other = density_of_best(first, noise, trials), density_of_best(second, noise, trials)

        def lost(y: float, one: Density = one, other: Density = other) -> float:
            return max(one(y) - math.exp(epsilon) * other(y), 0.0)

        points = np.linspace(-9 * noise, 9 * noise, 20)
        found = max(found, sum(quad(lost, low, high)[0] for low, high in pairwise(points)))
    return found


@pytest.mark.parametrize("trials", [1, 5, 50])
@pytest.mark.parametrize("epsilon", [0.25, 1.5])
def test_no_selection_by_an_adversary_loses_more_than_is_charged(
    trials: int, epsilon: float
) -> None:
    event = SelectionEvent(sampling_rate=1.0, noise_multiplier=2.0, steps=1, mean_trials=trials)
    true = true_delta(2.0, trials, epsilon)
    assert total_delta([event], epsilon) >= true
    if trials > 1:  # choosing does cost: the account of one training alone would be wrong
        assert true > total_delta([event.training], epsilon)


@pytest.mark.parametrize(
    ("rate", "noise", "steps", "trials"),
    [(0.1, 3.0, 500, 10), (0.17, 1.2, 20, 3), (1, 20, 20, 100)],
)
def test_alone_it_costs_what_dp_accounting_says(
    rate: float, noise: float, steps: int, trials: int
) -> None:
    step = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(noise))
    whole = dp_event.RepeatAndSelectDpEvent(dp_event.SelfComposedDpEvent(step, steps), trials, 1)
    theirs = rdp.RdpAccountant(list(range(2, 400))).compose(whole).get_epsilon(DELTA)
    event = SelectionEvent(
        sampling_rate=rate, noise_multiplier=noise, steps=steps, mean_trials=trials
    )
    assert total_epsilon([event], DELTA) == pytest.approx(theirs, rel=2e-4)
    assert total_epsilon([event], DELTA) > total_epsilon([event.training], DELTA)


@pytest.mark.parametrize("trials", [1, 10])
def test_both_routes_agree_whatever_stands_beside_it(release: ReleaseEvent, trials: int) -> None:
    training = TrainingEvent(sampling_rate=0.1, noise_multiplier=6.0, steps=300)
    event = SelectionEvent.of(training, trials)
    beside: list[list[Event]] = [[], [release], [training], [release, training], [event]]
    for others in beside:
        ours = total_epsilon([event, *others], DELTA)
        theirs = independent_epsilon([event, *others], DELTA)
        assert theirs == pytest.approx(ours, rel=TOLERANCE)
        assert ours > total_epsilon([event], DELTA) or not others
        alone = total_epsilon([event], DELTA / 2)  # basic composition is an upper bound
        assert ours <= alone + (total_epsilon(others, DELTA / 2) if others else 0.0) + 1e-6


def test_with_a_release_it_costs_less_than_both_added_up(release: ReleaseEvent) -> None:
    event = SelectionEvent(sampling_rate=0.1, noise_multiplier=6.0, steps=300, mean_trials=5)
    together = total_epsilon([release, event], DELTA)
    assert math.isfinite(together)
    assert max(total_epsilon([alone], DELTA) for alone in (release, event)) < together


@pytest.mark.parametrize(
    ("changes", "said"), [({"mean_trials": 0}, "mean trials is 0"), ({"steps": 0}, "steps is 0")]
)
def test_numbers_out_of_range_are_refused(changes: dict[str, int], said: str) -> None:
    with pytest.raises(QuorumError, match=said):
        SelectionEvent(
            **{"sampling_rate": 0.5, "noise_multiplier": 2.0, "steps": 7, "mean_trials": 3}
            | changes  # type: ignore[arg-type]
        )
