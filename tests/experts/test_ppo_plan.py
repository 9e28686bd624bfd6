"""Who is trained on what, and who is chosen: against brute force."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from quorum_rl.envs.cartpole import CartPole
from quorum_rl.errors import QuorumError
from quorum_rl.experts.ppo.agent import PpoRecipe
from quorum_rl.experts.ppo.plan import Plan, chosen_agents, tunings

WORLD = CartPole()


@st.composite
def plans_and_returns(draw: st.DrawFn) -> tuple[Plan, Any]:
    count, candidates = draw(st.integers(1, 8)), draw(st.integers(1, 5))
    experts = draw(st.integers(1, count * candidates))
    # Few different values, so that ties are common.
    value = st.sampled_from([-3.0, 0.0, 1.0, 2.0, 200.0]) | st.floats(-500, 500, width=32)
    returns = draw(st.lists(value, min_size=count * candidates, max_size=count * candidates))
    return Plan(count, candidates, experts, total_steps=1), np.array(returns, np.float32)


@settings(max_examples=200)
@given(plans_and_returns())
def test_every_setting_gives_its_best_and_the_best_runners_up_fill_up(
    made: tuple[Plan, Any],
) -> None:
    plan, returns = made
    chosen = chosen_agents(plan, returns)
    assert chosen.tolist() == sorted(set(chosen.tolist()))
    assert len(chosen) == plan.experts

    # Agent by agent: its rank within its setting, of equals the first; then the return decides.
    def rank(agent: int) -> int:
        first = agent - agent % plan.candidates
        rivals = range(first, first + plan.candidates)
        return sum((-returns[rival], rival) < (-returns[agent], agent) for rival in rivals)

    order = sorted(range(plan.agents), key=lambda agent: (rank(agent), -returns[agent], agent))
    assert chosen.tolist() == sorted(order[: plan.experts])


def test_an_agent_whose_return_is_not_a_number_comes_last() -> None:
    plan = Plan(2, 2, 2, total_steps=1)
    assert chosen_agents(plan, np.array([np.nan, -9.0, 3.0, np.nan])).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ((0, 1, 1, 1), "settings is 0"),
        ((1, 0, 1, 1), "candidates is 0"),
        ((1, 1, 0, 1), "experts is 0"),
        ((1, 1, 1, 0), "total_steps is 0"),
        ((1, 1, 1, 1, 0), "judging_episodes is 0"),
        ((2, 3, 7, 1), r"7 experts cannot be chosen from 6 agents \(2 settings × 3 candidates\)"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(plan: tuple[int, ...], message: str) -> None:
    with pytest.raises(QuorumError, match=message):
        Plan(*plan)  # type: ignore[arg-type]


def test_all_settings_of_a_world_come_in_their_order_each_with_its_candidates(
    recipe: PpoRecipe,
) -> None:
    made = tunings(WORLD, Plan(1000, 2, 1000, total_steps=1), recipe)
    axes = np.linspace(8.75, 11, 10), np.linspace(9, 11.25, 10), np.linspace(0.8, 1.25, 10)
    expected = np.repeat(np.array(list(product(*axes))), 2, axis=0)
    found = np.stack([made.params.gravity, made.params.force, made.params.cart_mass], axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    np.testing.assert_array_equal(made.number, np.arange(2000))


@pytest.mark.parametrize("count", [1, 2, 3, 150, 501, 667, 999])
def test_fewer_settings_are_different_ones_spread_from_end_to_end(count: int) -> None:
    recipe = PpoRecipe(copies=2, roll_out_steps=4, slice_size=2)
    params = tunings(WORLD, Plan(count, 1, 1, total_steps=1), recipe).params
    rows = np.stack([params.gravity, params.force, params.cart_mass], axis=1)
    assert len(np.unique(rows, axis=0)) == count
    if count > 1:
        np.testing.assert_allclose(rows[[0, -1]], [[8.75, 9, 0.8], [11, 11.25, 1.25]], rtol=1e-6)


def test_three_candidates_differ_in_learning_rate_and_six_in_batch_size_too(
    recipe: PpoRecipe,
) -> None:
    plan = Plan(2, 6, 1, total_steps=1, learning_rates=(0.1, 0.3, 0.2), batch_slices=(1, 4))
    made = tunings(WORLD, plan, recipe)
    pairs = list(zip(made.learning_rate.tolist(), made.slices_per_update.tolist(), strict=True))
    rates = np.array([0.1, 0.3, 0.2], np.float32).tolist()
    assert pairs == [(rate, slices) for slices in (1, 4) for rate in rates] * 2


def test_more_settings_than_there_are_and_slices_left_over_are_refused(recipe: PpoRecipe) -> None:
    with pytest.raises(QuorumError, match="CartPole has 1000 settings, not 1001"):
        tunings(WORLD, Plan(1001, 1, 1, total_steps=1), recipe)
    assert recipe.slices == 4
    for batches, message in [
        ((1, 3), "batch of 3"),
        ((3, 4), "batch of 3"),
        ((1, 8), "batch of 8"),
    ]:
        plan = Plan(1, 6, 1, total_steps=1, batch_slices=batches)
        with pytest.raises(QuorumError, match=f"{message} slices does not divide the 4 slices"):
            tunings(WORLD, plan, recipe)


def test_batches_that_no_candidate_uses_do_not_matter() -> None:
    one_slice = PpoRecipe(copies=2, roll_out_steps=4, slice_size=8)
    made = tunings(WORLD, Plan(1, 3, 1, total_steps=1, batch_slices=(1, 2)), one_slice)
    assert made.slices_per_update.tolist() == [1, 1, 1]


def test_iterations_are_rounded_up_to_reach_the_total(recipe: PpoRecipe) -> None:
    per_iteration = recipe.steps_per_iteration
    for total, expected in [(1, 1), (per_iteration, 1), (per_iteration + 1, 2)]:
        assert Plan(1, 1, 1, total_steps=total).iterations(recipe) == expected


def test_a_slice_that_does_not_divide_an_iteration_is_refused() -> None:
    with pytest.raises(QuorumError, match="slice_size 7 does not divide the 64 steps"):
        PpoRecipe(copies=4, roll_out_steps=16, slice_size=7)
