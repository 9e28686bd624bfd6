"""The planner: the thresholds of docs/theory.md, what a plan promises, and its choices."""

import json
import math
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.stats import norm

from quorum_rl.errors import QuorumError
from quorum_rl.privacy import ReleaseEvent, ReleasePlan, plan_release, total_delta, total_epsilon
from quorum_rl.privacy.constants import START, Setting, tight_event
from quorum_rl.privacy.expectation import expected_lengths, expected_transitions

DELTA = 1 / 3000


class Row(NamedTuple):
    """One row of the analysis: what is declared, and what both modes need."""

    actions: int
    horizon: int
    epsilon: float
    delta: float
    iterations: int
    paper: float
    longest: int
    tight: float


ROWS = {
    "Acrobot 5": Row(3, 200, 5, DELTA, 20, 1786, 12, 204),
    "Acrobot 10": Row(3, 200, 10, DELTA, 25, 1017, 26, 126),
    "CartPole 7.5": Row(2, 200, 7.5, 0.9 * DELTA, 25, 1360, 39, 164),
    "CartPole 3.75": Row(2, 200, 3.75, 0.9 * DELTA, 20, 2395, 11, 268),
    "CartPole 1": Row(2, 200, 1, DELTA, 10, 6103, 0, 593),
    "LunarLander 7.5": Row(4, 1000, 7.5, 0.9 * DELTA, 100, 2963, 0, 343),
    "HIV 7.5": Row(4, 50, 7.5, 0.9 * DELTA, 50, 1869, 7, 236),
    "CartPole 10": Row(2, 200, 10, DELTA, 400, 4362, 0, 569),
}


@lru_cache
def planned(name: str, **changes: Any) -> ReleasePlan:
    row = ROWS[name]
    return plan_release(
        **{
            "experts": 3000,
            "actions": row.actions,
            "p_min": 0.02,
            "horizon": row.horizon,
            "epsilon": row.epsilon,
            "delta": row.delta,
            "iterations": row.iterations,
            **changes,
        }
    )


@pytest.mark.parametrize("name", ROWS)
def test_mode_paper_needs_the_published_thresholds(name: str) -> None:
    plan, row = planned(name, mode="paper"), ROWS[name]
    assert plan.event.threshold == pytest.approx(row.paper, rel=0.01)
    assert plan.longest_prefix_if_all_agree == row.longest
    assert plan.feasible == (row.longest > 0)
    assert plan.event.prefix_cap == row.horizon


@pytest.mark.parametrize("name", ROWS)
def test_mode_tight_needs_no_higher_thresholds_than_the_analysis_found(name: str) -> None:
    plan = planned(name, objective="threshold")
    assert 0.9 * ROWS[name].tight < plan.event.threshold <= 1.02 * ROWS[name].tight
    assert plan.feasible
    assert plan.longest_prefix_if_all_agree == ROWS[name].horizon


@pytest.mark.parametrize("name", ["CartPole 7.5", "HIV 7.5", "CartPole 10"])
@pytest.mark.parametrize("floor", [True, False])
def test_a_plan_costs_what_it_claims_and_hardly_less(name: str, floor: bool) -> None:
    plan = planned(name) if floor else planned(name, p_min=None, stop_probability=0.05)
    assert total_delta([plan.event], plan.epsilon) <= plan.delta
    assert total_epsilon([plan.event], plan.delta) > 0.99 * plan.epsilon


@pytest.mark.parametrize(
    "change",
    [
        {"query_epsilon": 2.0},
        {"threshold_epsilon": 2.0},
        {"iterations": 2},
        {"experts": 0.01},
    ],
)
def test_another_release_than_the_planned_one_would_cost_more(change: dict[str, float]) -> None:
    plan = planned("CartPole 7.5")
    ((name, factor),) = change.items()
    planned_value = getattr(plan.event, name)
    changed = replace(plan.event, **{name: type(planned_value)(planned_value * factor)})
    assert total_delta([changed], plan.epsilon) > plan.delta


def test_a_halved_offset_or_a_higher_theta_within_the_threshold_costs_more() -> None:
    plan = planned("CartPole 7.5")
    event = plan.event
    halved = replace(event, threshold=(event.theta + event.threshold) / 2)
    assert total_delta([halved], plan.epsilon) > plan.delta


def test_random_stopping_asks_for_no_floor() -> None:
    plan = plan_release(
        experts=3000, actions=2, horizon=200, epsilon=7.5, delta=3e-4, iterations=25
    )
    assert plan.event.p_min == 0
    assert plan.event.stop_probability > 0
    assert plan.feasible
    given = planned("CartPole 7.5", p_min=None, stop_probability=plan.event.stop_probability)
    assert given.event == plan.event


@pytest.mark.parametrize(("iterations", "pool_size"), [(25, 5), (100, 6), (400, 8)])
def test_the_pool_is_as_large_as_its_overflow_needs(iterations: int, pool_size: int) -> None:
    plan = planned(
        "CartPole 7.5", iterations=iterations, overflow_epsilon=10.0, objective="threshold"
    )
    assert plan.event.pool_size == pool_size
    # 1% of δ may go to overflow: a pool with one trajectory less would take more.
    smaller = replace(plan.event, pool_size=pool_size - 1)
    whole = replace(plan.event, pool_size=iterations)
    assert total_delta([smaller], 10.0) - total_delta([whole], 10.0) > 0.01 * plan.delta
    assert total_delta([plan.event], 10.0) - total_delta([whole], 10.0) <= 0.01 * plan.delta


# ---- What is expected to come out ------------------------------------------------------------


def simulated_lengths(
    event: ReleaseEvent, agreement: float, runs: int
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Lengths of released prefixes in the stated model, run by run."""
    generator = np.random.default_rng(5)
    threshold = event.threshold + generator.laplace(0, event.threshold_noise_scale, runs)
    count = np.full(runs, float(event.experts))
    running = np.ones(runs, dtype=bool)
    lengths = np.zeros(runs, dtype=np.int64)
    kept = agreement * (event.p_max if event.mode == "paper" else 1.0)
    for _ in range(event.prefix_cap):
        deviates = generator.random(runs) < (event.actions - 1) * event.p_min
        count *= kept * np.where(deviates, event.p_min / event.p_max, 1.0)
        running &= generator.random(runs) >= event.stop_probability
        running &= count + generator.laplace(0, event.query_noise_scale, runs) > threshold
        lengths += running
    return lengths


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("CartPole 7.5", {}),
        ("HIV 7.5", {"prefix_cap": 20}),
        ("CartPole 7.5", {"p_min": None, "stop_probability": 0.05}),
        ("CartPole 7.5", {"p_min": 0.2, "agreement": 0.8}),  # a deviation does not end it at once
        ("Acrobot 10", {"mode": "paper"}),
    ],
)
def test_the_expected_transitions_are_those_of_the_model(
    name: str, changes: dict[str, Any]
) -> None:
    plan = planned(name, **changes)
    runs = 40_000
    lengths = simulated_lengths(plan.event, plan.agreement, runs)
    # False alarms: 1e-6 for each case. That the planner's threshold noise has 64 values only
    # changes less than 1e-4 of the expectation, by comparison with 4096 of them.
    error = norm.isf(0.5e-6) * lengths.std() / math.sqrt(runs)
    each = plan.expected_transitions / plan.event.iterations
    assert abs(lengths.mean() - each) <= error + 1e-4 * each
    assert error < 0.05 * each
    chance = expected_lengths(plan.event, plan.agreement)
    assert np.all(np.diff(chance) <= 0)
    assert chance[0] <= 1


def test_agreement_and_noise_matter_for_what_comes_out() -> None:
    event = planned("CartPole 7.5").event
    assert expected_transitions(event, 0.95) > 1.2 * expected_transitions(event, 0.9)
    assert expected_transitions(replace(event, threshold=3000.0), 0.9) < 1


def test_the_transitions_objective_gives_at_least_what_the_lowest_threshold_gives() -> None:
    for name in ("CartPole 7.5", "HIV 7.5"):
        lowest, richest = planned(name, objective="threshold"), planned(name)
        assert richest.expected_transitions >= lowest.expected_transitions
        assert richest.event.threshold >= lowest.event.threshold * (1 - 1e-4)


def test_the_lowest_threshold_is_a_minimum_over_other_starts_of_the_search() -> None:
    declared = Setting(
        experts=3000,
        actions=2,
        p_min=0.02,
        stop_probability=0.0,
        horizon=200,
        prefix_cap=200,
        epsilon=7.5,
        delta=3e-4,
        overflow_epsilon=7.5,
    )
    best, _ = tight_event(declared, 25)
    for shift in ((1.5, 0.0, 0.0), (0.0, 1.0, 0.0), (-1.0, 0.5, 1.0)):
        start = (START[0] + shift[0], START[1] + shift[1], START[2] + shift[2])
        other, _ = tight_event(declared, 25, start=start)
        assert best.threshold <= 1.001 * other.threshold


def test_chosen_iterations_give_more_than_half_as_many_or_twice_as_many() -> None:
    common = {"epsilon": 2.0, "delta": 1e-4, "prefix_cap": 100}
    best = planned("CartPole 7.5", **common, iterations=None)
    count = best.event.iterations
    for other in (count // 2, round(count / 1.5), 2 * count):
        plan = planned("CartPole 7.5", **common, iterations=other)
        assert plan.expected_transitions <= best.expected_transitions


def test_chosen_iterations_keep_within_the_pool_limit() -> None:
    plan = planned("CartPole 7.5", iterations=None, pool_limit=4)
    assert plan.event.pool_size <= 4
    more = planned("CartPole 7.5", iterations=None, pool_limit=6)
    assert more.expected_transitions > plan.expected_transitions


# ---- Edges -----------------------------------------------------------------------------------


@pytest.mark.parametrize("experts", [2, 10, 100])
@pytest.mark.parametrize("mode", ["tight", "paper"])
def test_too_few_experts_make_an_infeasible_plan_and_no_error(experts: int, mode: str) -> None:
    plan = planned("CartPole 7.5", experts=experts, mode=mode)
    assert not plan.feasible
    assert plan.expected_transitions < 1
    assert plan.longest_prefix_if_all_agree == 0


def test_a_plan_as_json_has_every_fact_that_is_promised() -> None:
    facts = json.loads(json.dumps(planned("CartPole 7.5").to_json()))
    promised = """mode experts actions p_min stop_probability horizon prefix_cap iterations epsilon
        delta theta threshold threshold_noise_scale query_noise_scale iteration_epsilon_remove
        iteration_epsilon_add iteration_delta pool_size longest_prefix expected_transitions
        feasible"""
    assert set(promised.split()) <= set(facts)
    assert facts["feasible"] is True
    assert facts["query_noise_scale"] == 1 / planned("CartPole 7.5").event.query_epsilon


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"experts": 1}, "experts is 1"),
        ({"actions": 1}, "actions is 1"),
        ({"horizon": 0}, "horizon is 0"),
        ({"prefix_cap": 0}, "prefix_cap is 0"),
        ({"epsilon": 0.0}, "epsilon is 0"),
        ({"epsilon": math.nan}, "epsilon is nan"),
        ({"delta": 1.0}, "delta is 1"),
        ({"p_min": 0.6}, "p_min is 0.6"),
        ({"p_min": -0.1}, "p_min is -0.1"),
        ({"p_min": None, "stop_probability": 1.0}, "stop_probability is 1"),
        ({"stop_probability": 0.1}, "exclude each other"),
        ({"p_min": None, "mode": "paper"}, "mode paper needs a floor"),
        ({"agreement": 0.0}, "agreement is 0"),
        ({"agreement": 1.5}, "agreement is 1.5"),
        ({"iterations": 0}, "iterations is 0"),
        ({"iterations": 10**7}, "iterations is 10000000"),
    ],
)
def test_a_number_that_makes_no_release_is_refused_in_one_sentence(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(QuorumError, match=message) as caught:
        planned("CartPole 7.5", **changes)
    text = str(caught.value)
    assert text.endswith(".")
    assert text.count(". ") == 0


def test_a_plan_costs_what_it_claims_also_if_overflow_is_to_be_charged_at_less() -> None:
    plan = plan_release(
        experts=300,
        actions=2,
        p_min=0.02,
        horizon=50,
        epsilon=8.0,
        delta=1e-3,
        iterations=40,
        objective="threshold",
        overflow_epsilon=0.1,
    )
    assert total_delta([plan.event], plan.epsilon) <= plan.delta


def test_a_larger_epsilon_never_plans_for_less_where_the_pool_is_what_limits() -> None:
    """The charge for overflow grows with e^ε; a plan that costs less is as good a plan."""
    expected = []
    for epsilon in (7.5, 10.0, 15.0):
        plan = plan_release(
            experts=3000, actions=2, horizon=200, p_min=0.02, epsilon=epsilon, delta=3e-4
        )
        assert plan.event.pool_size <= 8
        assert total_epsilon([plan.event], 3e-4) <= epsilon
        expected.append(plan.expected_transitions)
    assert all(more >= 0.999 * less for less, more in pairwise(expected))
