"""The joint account against the Gaussian's formula, dp-accounting's own accounts, and itself."""

import math
from dataclasses import replace
from itertools import permutations
from typing import Any

import dp_accounting
import numpy as np
import pytest
from claims import USUAL
from dp_accounting.pld import PLDAccountant, privacy_loss_distribution as pld
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings, strategies as st
from scipy.stats import norm

from quorum_rl.errors import QuorumError
from quorum_rl.privacy import Event, TrainingEvent, total_delta, total_epsilon
from quorum_rl.privacy.accounting import release_losses, self_composed, training_losses
from quorum_rl.privacy.losses import combined, joint_delta
from quorum_rl.privacy.pairs import Pair, composed_delta, overflow_probability, pair_of

OTHER_RELEASE = replace(USUAL, iterations=10, threshold_epsilon=0.2)
TRAINING = TrainingEvent(sampling_rate=128 / 3000, noise_multiplier=10.0, steps=2000)
OTHER_TRAINING = TrainingEvent(sampling_rate=0.02, noise_multiplier=5.0, steps=300)


def gaussian_delta(epsilon: float, distance: float) -> float:
    """Balle and Wang's formula of the Gaussian mechanism."""
    upper = norm.cdf(distance / 2 - epsilon / distance)
    return float(upper - math.exp(epsilon) * norm.cdf(-distance / 2 - epsilon / distance))


# ---- Against what others say -----------------------------------------------------------------


@pytest.mark.parametrize(("multiplier", "steps"), [(1.0, 1), (4.0, 20), (50.0, 2500)])
def test_without_sampling_it_is_the_gaussian_mechanism(multiplier: float, steps: int) -> None:
    event = TrainingEvent(sampling_rate=1.0, noise_multiplier=multiplier, steps=steps)
    for epsilon in (0.1, 1.0, 3.0):
        exact = gaussian_delta(epsilon, math.sqrt(steps) / multiplier)
        assert exact <= total_delta([event], epsilon) <= 1.005 * exact + 1e-9


@pytest.mark.parametrize("event", [TRAINING, OTHER_TRAINING])
def test_with_sampling_it_is_what_dp_accounting_says_and_below_its_renyi_bound(
    event: TrainingEvent,
) -> None:
    step = dp_accounting.PoissonSampledDpEvent(
        event.sampling_rate, dp_accounting.GaussianDpEvent(event.noise_multiplier)
    )
    composed = dp_accounting.SelfComposedDpEvent(step, event.steps)
    theirs = PLDAccountant(value_discretization_interval=1e-5).compose(composed).get_epsilon(1e-5)
    renyi = RdpAccountant().compose(composed).get_epsilon(1e-5)
    ours = total_epsilon([event], 1e-5)
    assert ours == pytest.approx(theirs, rel=2e-3)
    assert ours <= renyi


@pytest.mark.parametrize("steps", [1, 7, 8, 9, 64, 1003])
def test_composing_in_eights_composes_every_step(steps: int) -> None:
    one = pld.from_gaussian_mechanism(
        5.0, sampling_prob=0.1, value_discretization_interval=2.0**-10
    )
    ours, theirs = self_composed(one, steps), one.self_compose(steps)
    for epsilon in (0.0, 0.1, 0.5):
        assert ours.get_delta_for_epsilon(epsilon) == pytest.approx(
            theirs.get_delta_for_epsilon(epsilon), abs=1e-11
        )
    other = one.self_compose(steps + 1).get_delta_for_epsilon(0.1)
    assert abs(ours.get_delta_for_epsilon(0.1) - other) > 1e-9  # so one step more is seen


def library_joint(pair: Pair, iterations: int, event: TrainingEvent, pessimistic: bool) -> Any:
    """Both stages in both directions on dp-accounting's own grid, from above or from below."""
    up, down = math.exp(-pair.epsilon_remove), math.exp(pair.epsilon_add)
    high, low = np.linalg.solve([[1.0, 1.0], [up, down]], [1 - pair.delta, 1.0])
    width = 1e-4
    with_expert = {"lost": math.log(pair.delta), "high": math.log(high), "low": math.log(low)}
    without = {"high": math.log(high * up), "low": math.log(low * down), "lost": -math.inf}
    release = pld.from_two_probability_mass_functions(
        without,
        with_expert,
        pessimistic_estimate=pessimistic,
        value_discretization_interval=width,
        symmetric=False,
    )
    training = pld.from_gaussian_mechanism(
        event.noise_multiplier,
        sampling_prob=event.sampling_rate,
        value_discretization_interval=width,
        pessimistic_estimate=pessimistic,
    )
    return release.self_compose(iterations).compose(training.self_compose(event.steps))


@pytest.mark.parametrize("event", [OTHER_TRAINING, replace(TRAINING, steps=200)])
def test_both_stages_together_lie_between_dp_accountings_bounds(event: TrainingEvent) -> None:
    bounds = [library_joint(pair_of(USUAL), 25, event, choice) for choice in (False, True)]
    for epsilon in (1.0, 3.0, 5.0):
        below, above = (bound.get_delta_for_epsilon(epsilon) for bound in bounds)
        assert below <= total_delta([USUAL, event], epsilon) <= above * (1 + 1e-6)


def test_each_direction_composes_with_its_own() -> None:
    """With noise this small and a rate this low the directions differ, and so do their mixtures."""
    event = TrainingEvent(sampling_rate=0.05, noise_multiplier=0.8, steps=20)
    releases, trainings = release_losses([USUAL]), training_losses([event])
    right = [joint_delta(*stages, 5.0) for stages in zip(releases, trainings, strict=True)]
    wrong = [joint_delta(*stages, 5.0) for stages in zip(releases, trainings[::-1], strict=True)]
    assert max(right) > 1.05 * max(wrong)
    theirs = library_joint(pair_of(USUAL), 25, event, True).get_delta_for_epsilon(5.0)
    assert total_delta([USUAL, event], 5.0) == pytest.approx(theirs, rel=0.01)


def test_both_stages_together_cost_less_than_the_sum_of_their_claims() -> None:
    apart = total_epsilon([USUAL], 3e-4) + total_epsilon([TRAINING], 3e-5)
    together = total_epsilon([USUAL, TRAINING], 3.3e-4)
    assert max(total_epsilon([USUAL], 3.3e-4), total_epsilon([TRAINING], 3.3e-4)) < together
    assert together < apart


# ---- Against itself --------------------------------------------------------------------------

LISTS: list[list[Event]] = [[USUAL], [TRAINING], [USUAL, TRAINING], [USUAL, OTHER_RELEASE]]


@pytest.mark.parametrize("events", LISTS)
@pytest.mark.parametrize("delta", [1e-3, 2e-4])
def test_epsilon_and_delta_are_each_others_inverse(events: list[Event], delta: float) -> None:
    epsilon = total_epsilon(events, delta)
    assert delta * (1 - 1e-5) <= total_delta(events, epsilon) <= delta
    assert total_delta(events, epsilon * (1 - 1e-6)) > delta


def trainings() -> st.SearchStrategy[TrainingEvent]:
    return st.builds(
        TrainingEvent,
        sampling_rate=st.sampled_from([0.005, 0.02, 0.1, 0.5]),
        noise_multiplier=st.sampled_from([1.0, 3.0, 10.0]),
        steps=st.sampled_from([1, 10, 200, 1500]),
    )


@settings(max_examples=12, derandomize=True)
@given(event=trainings(), factor=st.floats(1.1, 3.0), beside=st.booleans())
def test_more_steps_a_higher_rate_or_less_noise_never_cost_less(
    event: TrainingEvent, factor: float, beside: bool
) -> None:
    """Up to the grid, which may change from one to the other: a thousandth."""
    others: list[Event] = [USUAL] if beside else []
    cost = total_epsilon([*others, event], 1e-3)
    dearer = (
        replace(event, steps=math.ceil(event.steps * factor)),
        replace(event, sampling_rate=min(event.sampling_rate * factor, 1.0)),
        replace(event, noise_multiplier=event.noise_multiplier / factor),
    )
    for changed in dearer:
        assert total_epsilon([*others, changed], 1e-3) >= cost * 0.999


@settings(max_examples=30, derandomize=True)
@given(iterations=st.integers(1, 300), more=st.integers(1, 50), epsilon=st.floats(0.0, 8.0))
def test_more_iterations_never_cost_less(iterations: int, more: int, epsilon: float) -> None:
    few, many = (
        replace(USUAL, iterations=count, pool_size=5) for count in (iterations, iterations + more)
    )
    assert total_delta([few], epsilon) <= total_delta([many], epsilon)


@settings(max_examples=30, derandomize=True)
@given(
    factor=st.floats(1.0, 4.0),
    name=st.sampled_from(["threshold_epsilon", "query_epsilon"]),
    epsilon=st.floats(0.0, 8.0),
)
def test_less_noise_in_the_release_never_costs_less(
    factor: float, name: str, epsilon: float
) -> None:
    """At the same δ per iteration: less noise alone also makes false passes rarer."""
    pair = pair_of(USUAL)
    louder = pair_of(replace(USUAL, **{name: getattr(USUAL, name) * factor}))
    assert louder.epsilon_remove >= pair.epsilon_remove - 1e-12
    assert louder.epsilon_add >= pair.epsilon_add
    at_same_delta = replace(louder, delta=pair.delta)
    assert composed_delta(pair, 25, epsilon) <= composed_delta(at_same_delta, 25, epsilon) + 1e-12


def test_the_order_of_events_does_not_change_a_bit() -> None:
    third = replace(USUAL, iterations=7, query_epsilon=0.1)
    events: list[Event] = [USUAL, TRAINING, OTHER_RELEASE, third]
    orders: list[list[Event]] = [[*order, OTHER_TRAINING] for order in permutations(events)]
    answers = {(total_delta(order, 6.0), total_epsilon(order, 1e-3)) for order in orders}
    assert len(answers) == 1


def test_a_training_in_two_parts_costs_what_it_costs_in_one() -> None:
    parts = [replace(TRAINING, steps=777), replace(TRAINING, steps=1223)]
    assert total_epsilon(parts, 1e-4) == total_epsilon([TRAINING], 1e-4)
    assert total_epsilon(parts[1:], 1e-4) < total_epsilon([TRAINING], 1e-4)


def test_many_releases_are_rounded_up_to_a_grid_only_where_they_must_be() -> None:
    """Four releases have more losses together than are kept apart; rounding only adds."""
    pairs = [replace(USUAL, iterations=count, pool_size=40) for count in (20, 22, 26, 28)]
    similar = [replace(USUAL, iterations=sum(event.iterations for event in pairs), pool_size=96)]
    for epsilon in (4.0, 8.0):
        ours, exact = total_delta(pairs, epsilon), total_delta(similar, epsilon)
        assert exact * (1 - 1e-9) <= ours <= 1.01 * exact


def test_an_overflowing_pool_is_charged_in_full() -> None:
    tiny = replace(USUAL, pool_size=3)
    charge = (1 + math.exp(5.0)) * overflow_probability(tiny)
    assert charge > 1e-6
    assert total_delta([tiny], 5.0) == pytest.approx(total_delta([USUAL], 5.0) + charge, rel=1e-9)
    twice = total_delta([tiny, replace(tiny, iterations=24)], 5.0)
    assert twice > total_delta([USUAL, replace(USUAL, iterations=24)], 5.0) + 1.5 * charge


def test_nothing_costs_nothing() -> None:
    assert total_epsilon([], 1e-9) == 0
    assert total_delta([], 0.0) == 0


def test_no_epsilon_reaches_a_delta_that_is_lost_outright() -> None:
    lost = 25 * pair_of(USUAL).delta
    assert total_epsilon([USUAL], 0.9 * lost) == math.inf
    assert total_epsilon([USUAL], 1.5 * lost) < math.inf
    assert total_epsilon([replace(USUAL, pool_size=1)], 1e-3) == math.inf


def test_a_charge_that_grows_with_epsilon_is_not_passed_over() -> None:
    """δ falls and then rises: the least ε lies before the charge for overflow takes over."""
    event = replace(USUAL, pool_size=3)
    least = min(total_delta([event], epsilon) for epsilon in np.linspace(3.0, 8.0, 200).tolist())
    delta = 1.001 * least  # so that only a short stretch of ε will do
    epsilon = total_epsilon([event], delta)
    assert total_delta([event], epsilon) <= delta
    assert min(total_delta([event], epsilon - 1), total_delta([event], epsilon + 1)) > delta
    assert total_epsilon([event], 0.999 * least) == math.inf


def test_a_loss_beyond_all_bounds_is_never_reported_as_small() -> None:
    event = TrainingEvent(sampling_rate=1.0, noise_multiplier=0.1, steps=1)
    for epsilon in (60.0, 690.0, 720.0):  # e to the power of the last is no double
        exact = gaussian_delta_by_logs(epsilon, 10.0)
        assert total_delta([USUAL, event], epsilon) >= exact * (1 - 1e-9)


def gaussian_delta_by_logs(epsilon: float, distance: float) -> float:
    upper = norm.logcdf(distance / 2 - epsilon / distance)
    lower = epsilon + norm.logcdf(-distance / 2 - epsilon / distance)
    return float(math.exp(upper) * -math.expm1(lower - upper))


def test_losses_that_are_combined_keep_all_their_mass() -> None:
    first, second = release_losses([USUAL])[0], release_losses([OTHER_RELEASE])[0]
    both = combined(first, second)
    assert both.probability.sum() + both.infinite >= 1 - 1e-12
    assert np.all(np.diff(both.loss) >= 0)


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, math.nan])
def test_a_delta_that_is_no_probability_is_refused(delta: float) -> None:
    with pytest.raises(QuorumError, match="delta is"):
        total_epsilon([USUAL], delta)
