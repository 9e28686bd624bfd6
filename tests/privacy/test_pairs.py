"""The three-point pair and its composition against enumeration, dp-accounting and SciPy."""

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from claims import event_with
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given, settings, strategies as st
from scipy.stats import binom

from quorum_rl.errors import QuorumError
from quorum_rl.privacy.constants import Setting, paper_event
from quorum_rl.privacy.events import ReleaseEvent
from quorum_rl.privacy.laplace import ROUNDING
from quorum_rl.privacy.pairs import (
    Pair,
    composed_delta,
    composed_losses,
    draw_and_query,
    overflow_probability,
    pair_of,
)

Floats = npt.NDArray[np.float64]

TYPICAL = Pair(epsilon_remove=0.7, epsilon_add=0.14, delta=5e-6)
COARSE = Pair(epsilon_remove=0.9, epsilon_add=0.3, delta=0.01)
STEEP_ADD = Pair(epsilon_remove=0.05, epsilon_add=0.6, delta=1e-4)  # the reverse costs more
PAIRS = (TYPICAL, COARSE, STEEP_ADD)


def points(pair: Pair) -> tuple[Floats, Floats]:
    """P and Q on three points, from the two equations that define them."""
    up, down = math.exp(-pair.epsilon_remove), math.exp(pair.epsilon_add)
    high, low = np.linalg.solve([[1.0, 1.0], [up, down]], [1 - pair.delta, 1.0])
    return np.array([pair.delta, high, low]), np.array([0.0, high * up, low * down])


def hockey_stick(first: Floats, second: Floats, epsilon: float) -> float:
    return float(np.maximum(first - math.exp(epsilon) * second, 0.0).sum())


def enumerated(law: Floats, times: int) -> Floats:
    """The probability of every sequence of outcomes."""
    return np.array([np.prod(sequence) for sequence in product(law, repeat=times)])


def library_delta(upper: Floats, lower: Floats, times: int, epsilon: float, width: float) -> float:
    """One direction by dp-accounting, its losses rounded up to multiples of `width`.

    They are lowered by 1e-12 first, lest rounding errors carry one over the next multiple.
    """
    with np.errstate(divide="ignore"):
        logs = np.log(lower) + 1e-12, np.log(upper)
    one = pld.from_two_probability_mass_functions(
        *(dict(enumerate(law.tolist())) for law in logs), value_discretization_interval=width
    )
    return float(one.self_compose(times).get_delta_for_epsilon(epsilon))


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("epsilon", [0.0, 0.2, 0.55, 1.3, 2.5])
def test_three_iterations_cost_what_enumeration_finds(pair: Pair, epsilon: float) -> None:
    first, second = (enumerated(law, 3) for law in points(pair))
    forth, back = composed_losses(pair, 3)
    for losses, law, other in ((forth, first, second), (back, second, first)):
        exact = hockey_stick(law, other, epsilon)
        assert exact - 1e-15 <= losses.delta(epsilon) <= exact * (1 + 2e-9) + 1e-12
    assert composed_delta(pair, 3, epsilon) == max(forth.delta(epsilon), back.delta(epsilon))


@pytest.mark.parametrize("iterations", [1, 25, 400])
@pytest.mark.parametrize(("remove", "add"), [(700, 140), (381, 69), (50, 600)])
def test_it_equals_dp_accounting_where_the_losses_lie_on_its_grid(
    iterations: int, remove: int, add: int
) -> None:
    width = 2.0**-10
    pair = Pair(remove * width, add * width, 1e-6)
    law = points(pair)
    for losses, upper, lower in zip(composed_losses(pair, iterations), law, law[::-1], strict=True):
        spread = math.sqrt(iterations) * width * max(remove, add)
        for epsilon in (0.0, spread, 3 * spread):
            theirs = library_delta(upper, lower, iterations, epsilon, width)
            rounded_up = losses.delta(epsilon)
            assert rounded_up / ROUNDING == pytest.approx(theirs, abs=1e-9)
            assert rounded_up >= theirs - 1e-12


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("iterations", [1, 25, 100])
def test_dp_accounting_brackets_it_from_above_within_its_discretisation(
    pair: Pair, iterations: int
) -> None:
    width = 1e-3 / math.pi
    law = points(pair)
    for losses, upper, lower in zip(composed_losses(pair, iterations), law, law[::-1], strict=True):
        for epsilon in (0.1, 0.9, 2.2):
            theirs = library_delta(upper, lower, iterations, epsilon, width)
            assert losses.delta(epsilon) <= theirs + 1e-9
            # Each loss was raised by less than one width.
            assert theirs <= losses.delta(epsilon - iterations * width) + 1e-9


def test_a_million_iterations_lose_nothing_to_rounding() -> None:
    """SciPy's binomial tails do not go through logarithms of factorials, whose error grows."""
    pair, iterations = Pair(1e-3, 1e-3, 0.0), 10**6
    (_, high, _), (_, other_high, _) = points(pair)
    for epsilon in (0.5, 2.0, 4.0):
        most = (iterations + math.floor(epsilon / 1e-3)) // 2
        exact = binom.sf(most, iterations, high)
        exact -= math.exp(epsilon) * binom.sf(most, iterations, other_high)
        assert exact <= composed_losses(pair, iterations)[0].delta(epsilon) <= exact + 1e-7


laws = st.lists(st.floats(0.02, 1.0), min_size=4, max_size=4).map(
    lambda weights: np.array(weights) / np.sum(weights)
)


@settings(max_examples=60, derandomize=True)
@given(first=laws, second=laws, share=st.floats(0.3, 1.0), epsilon=st.floats(0.0, 3.0))
def test_the_pair_dominates_every_mechanism_that_meets_its_two_bounds(
    first: Floats, second: Floats, share: float, epsilon: float
) -> None:
    """Lemma A: whatever the distributions, once and twice, in both directions."""
    remove = share * max(float(np.log(first / second).max()), 1e-3)
    add = max(float(np.log(second / first).max()), 1e-3)
    pair = Pair(remove, add, hockey_stick(first, second, remove))
    for times in (1, 2):
        forth, back = composed_losses(pair, times)
        with_expert, without = enumerated(first, times), enumerated(second, times)
        assert hockey_stick(with_expert, without, epsilon) <= forth.delta(epsilon) + 1e-12
        assert hockey_stick(without, with_expert, epsilon) <= back.delta(epsilon) + 1e-12


def test_a_pair_that_forgets_what_adding_costs_would_be_noticed() -> None:
    first, second = points(COARSE)
    forgetful = replace(COARSE, epsilon_add=-math.log1p(-COARSE.delta))
    _, back = composed_losses(forgetful, 1)
    assert hockey_stick(second, first, 0.1) > back.delta(0.1) + 0.01


def test_directions_are_not_interchangeable() -> None:
    forth, back = composed_losses(TYPICAL, 25)
    assert forth.delta(2.0) > 1.05 * back.delta(2.0)


def test_a_delta_of_one_is_refused() -> None:
    with pytest.raises(QuorumError, match="plan it again"):
        composed_losses(Pair(1.0, 1.0, 1.0), 2)


# ---- What an event's pair is -----------------------------------------------------------------


def tight(**changes: float) -> ReleaseEvent:
    """A release of 200 steps at most, of which prefixes have 100."""
    usual: dict[str, Any] = {
        "query_epsilon": 0.136,
        "threshold_epsilon": 0.162,
        "least_count": 1.4,
        "p_min": 0.02,
        "experts": 3000,
        "delta": 5e-6,
        "actions": 3,
        "depth": 200,
        "iterations": 25,
        "pool_size": 4,
        "lattice_bits": 32,
    }
    return replace(event_with(**usual | changes), prefix_cap=100)


@settings(max_examples=100, derandomize=True)
@given(least_count=st.floats(0.01, 50.0), query_epsilon=st.floats(0.005, 4.0))
def test_removal_costs_the_maximum_over_what_the_expert_contributes(
    least_count: float, query_epsilon: float
) -> None:
    contribution = np.linspace(0.0, 1.0, 20_001)
    cost = np.log1p(contribution / least_count) + query_epsilon * (1 - contribution)
    assert cost.max() <= draw_and_query(least_count, query_epsilon) * ROUNDING
    assert draw_and_query(least_count, query_epsilon) <= cost.max() + 1e-4
    pair = pair_of(tight(least_count=least_count, query_epsilon=query_epsilon))
    assert 0.162 + cost.max() <= pair.epsilon_remove <= 0.162 + cost.max() + 2e-4


def test_addition_costs_the_failed_query_and_the_draw() -> None:
    pair = pair_of(tight(experts=500))
    assert pair.epsilon_add == pytest.approx(0.136 + math.log(500 / 499), rel=1e-8)
    assert pair.epsilon_add >= 0.136 + math.log(500 / 499)


def test_the_offset_is_what_delta_says_and_half_of_it_is_not() -> None:
    event = tight(delta=5e-6)
    assert 4.99e-6 < pair_of(event).delta <= 5e-6
    halved = replace(event, threshold=(event.theta + event.threshold) / 2)
    assert pair_of(halved).delta > 50 * 5e-6


def test_halved_query_noise_and_a_lower_theta_cost_more() -> None:
    event = tight()
    louder = replace(event, query_epsilon=2 * event.query_epsilon)
    assert pair_of(louder).epsilon_add > 1.9 * pair_of(event).epsilon_add
    lower = replace(event, theta=1 + (event.theta - 1) / 2)
    assert pair_of(lower).epsilon_remove > pair_of(event).epsilon_remove + 0.1


def test_random_stopping_costs_threshold_and_query_and_needs_its_theta() -> None:
    event = tight(p_min=0.0, stop_probability=0.05)
    pair = pair_of(event)
    assert pair.epsilon_remove == pytest.approx(0.162 + 0.136, rel=1e-8)
    # Theta is where a random stop hides one expert: β·n + 1 ≤ e^ε_q·β·n for n = theta − 1.
    hidden = 0.05 * (event.theta - 1)
    assert hidden + 1 == pytest.approx(math.exp(0.136) * hidden, rel=1e-9)
    with pytest.raises(QuorumError, match="random stopping needs"):
        pair_of(replace(event, theta=event.theta - 0.5))


def test_with_fewer_experts_than_theta_the_little_that_comes_out_is_covered() -> None:
    """Then the empty output's probability may change by δ', which both losses must allow."""
    pair = pair_of(tight(delta=0.4, query_epsilon=0.01, threshold_epsilon=0.01, least_count=200.0))
    assert min(pair.epsilon_remove, pair.epsilon_add) >= -math.log1p(-pair.delta)
    assert points(pair)[0].min() >= -1e-6  # so it is a pair of distributions


def published(experts: int = 3000, epsilon: float = 7.5, iterations: int = 25) -> ReleaseEvent:
    declared = Setting(
        experts=experts,
        actions=2,
        p_min=0.02,
        stop_probability=0.0,
        horizon=200,
        prefix_cap=200,
        epsilon=epsilon,
        delta=3e-4,
        overflow_epsilon=epsilon,
    )
    return paper_event(declared, iterations)


def test_mode_paper_costs_what_the_paper_says_of_one_iteration() -> None:
    pair = pair_of(published())
    assert pair.epsilon_remove == pytest.approx(
        7.5 / math.sqrt(8 * 25 * math.log(2 / 3e-4)), rel=1e-7
    )
    assert pair.epsilon_add == pair.epsilon_remove
    assert pair.delta == pytest.approx(3e-4 / (2 * 25), rel=1e-7)


def test_mode_paper_with_few_experts_costs_the_draw_that_the_paper_forgets() -> None:
    pair = pair_of(published(experts=100, epsilon=1.0, iterations=400))
    query_epsilon = published(experts=100, epsilon=1.0, iterations=400).query_epsilon
    assert pair.epsilon_add >= query_epsilon + math.log(100 / 99) > 1.5 * pair.epsilon_remove


def test_mode_paper_needs_theta_above_one_over_p_min() -> None:
    with pytest.raises(QuorumError, match="theta is 40"):
        pair_of(replace(published(), theta=40.0))


@pytest.mark.parametrize(("experts", "iterations", "pool"), [(10, 4, 2), (6, 5, 1), (4, 6, 3)])
def test_the_pool_overflows_no_more_often_than_charged(
    experts: int, iterations: int, pool: int
) -> None:
    draws = np.indices((experts,) * iterations).reshape(iterations, -1)
    most = np.max([np.sum(draws == expert, axis=0) for expert in range(experts)], axis=0)
    exact = float(np.mean(most > pool))
    event = replace(tight(experts=experts), iterations=iterations, pool_size=pool)
    assert 0 < exact <= overflow_probability(event)
    # A charge for a pool that is one trajectory larger would be too little.
    assert exact > overflow_probability(replace(event, pool_size=pool + 1))


def test_a_pool_as_large_as_the_iterations_never_overflows() -> None:
    assert overflow_probability(replace(tight(), pool_size=25)) == 0
    assert overflow_probability(replace(tight(), pool_size=0)) == 1
