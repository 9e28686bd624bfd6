"""What a judge tells, and that no more than one contribution of it can be seen in the sums."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
from fits import HORIZON, crowd

from quorum_rl.budget import SplitKey
from quorum_rl.judging import (
    Candidate,
    Judges,
    JudgingPlan,
    ask,
    parted,
    plan_judging,
    told_by,
    verdicts,
)
from quorum_rl.learners import get_learner
from quorum_rl.logs import Demonstrations, from_step_arrays, to_step_arrays
from quorum_rl.pipeline import policy_of
from quorum_rl.policy import Policy
from quorum_rl.privacy import total_epsilon

CROWD = crowd()
NO_KEY = np.zeros(2, np.uint32)
EARNED = HORIZON  # at most, with rewards from 0 to 1


def plan_of(noise: float = 1.0, bounds: Any = (0.0, EARNED)) -> JudgingPlan:
    judges = Judges(share=0.5, return_bounds=bounds)
    return JudgingPlan(judges=judges, action_count=2, expected=200, noise_multiplier=noise)


@pytest.fixture(scope="module")
def policy() -> Policy:
    learner = get_learner("bc", hidden_sizes=(4,))
    return policy_of(learner, learner.init(jax.random.key(0), 1, 2))


def some(log: Demonstrations, experts: list[int]) -> Demonstrations:
    return log.select(np.isin(log.episodes.expert, experts))


def test_a_judge_tells_what_its_own_log_says(policy: Policy) -> None:
    plan, log = plan_of(), some(CROWD.log, [3, 7])
    rows = told_by(log, [Candidate(policy)], plan)
    assert rows.shape == (2, plan.size)
    for row, expert in zip(rows, (3, 7), strict=True):
        own = to_step_arrays(some(CROWD.log, [expert]))
        share = own.actions == policy.act(own.observations)
        earned = own.rewards.sum() / (len(own.rewards) / HORIZON)
        blocks = {name: row[block.place] / block.weight for name, block in plan.blocks.items()}
        assert blocks["judges"] == pytest.approx(1)
        assert blocks["mean_return"] == pytest.approx(2 * earned / EARNED - 1, abs=1e-6)
        assert blocks["agreement"] == pytest.approx(2 * share.mean() - 1)
        each = [np.mean(share & (own.actions == action)) for action in (0, 1)]
        each += [np.mean(~share & (own.actions == action)) for action in (0, 1)]
        assert blocks["actions"] == pytest.approx(each)
        assert blocks["spread_of_returns"] == pytest.approx(2 * blocks["mean_return"] ** 2 - 1)


@pytest.mark.parametrize("rewards", [0.0, 1e30, -1e30, 0.31])
@pytest.mark.parametrize("bounds", [(0.0, EARNED), (-1e300, 1e300), (2.0, 2.1), None])
def test_nobody_tells_more_than_one(policy: Policy, rewards: float, bounds: Any) -> None:
    plan, log = plan_of(bounds=bounds), some(CROWD.log, [0, 1, 2])
    strange = replace(
        log, columns=log.columns._replace(rewards=np.full_like(log.columns.rewards, rewards))
    )
    assert (np.linalg.norm(told_by(strange, [Candidate(policy)], plan), axis=1) <= 1).all()


def test_a_log_of_huge_numbers_stops_nobody_else(policy: Policy) -> None:
    plan, log = plan_of(), some(CROWD.log, [0, 1, 2])
    before = told_by(log, [Candidate(policy)], plan)
    huge = log.columns.observations.copy()
    first = log.episodes.first_state[log.episodes_of(1)]
    for state in first:
        huge[state : state + HORIZON + 1] = 3e38
    after = told_by(
        replace(log, columns=log.columns._replace(observations=huge)), [Candidate(policy)], plan
    )
    assert (after[[0, 2]] == before[[0, 2]]).all()
    assert np.linalg.norm(after[1]) <= 1


def test_what_a_judge_tells_depends_on_nobody_else(policy: Policy) -> None:
    """To the bit: floats depend on what else is computed with them."""
    plan = plan_of()
    alone = told_by(some(CROWD.log, [5]), [Candidate(policy)], plan)
    beside = told_by(some(CROWD.log, list(range(40))), [Candidate(policy)], plan)
    assert (beside[5] == alone[0]).all()


def test_sums_are_exact_but_for_noise_of_the_declared_size() -> None:
    """On 400 keys; false alarm 1e-6 for each number."""
    plan = plan_of(noise=2.0)
    told = np.random.default_rng(0).dirichlet(np.ones(plan.size), 50)
    weights = np.concatenate([np.full(b.size, b.weight) for b in plan.blocks.values()])
    keys = np.random.default_rng(1).integers(0, 2**32, (400, 2), dtype=np.uint32)
    found = np.array([ask(told, plan, key) for key in keys]) * weights - told.sum(axis=0)
    assert np.abs(found.mean(axis=0)).max() < 5 * 2.0 / 20
    assert np.abs(found.std(axis=0) / 2.0 - 1).max() < 5 / np.sqrt(2 * 400)
    assert (ask(told, plan, keys[0]) == ask(told, plan, keys[0])).all()


def test_one_judge_moves_the_sums_by_at_most_one_whatever_it_tells() -> None:
    plan = plan_of()
    weights = np.concatenate([np.full(b.size, b.weight) for b in plan.blocks.values()])
    others = np.random.default_rng(0).dirichlet(np.ones(plan.size), 20)
    without = ask(others, plan, NO_KEY) * weights
    longest = np.full(plan.size, 100.0)
    for own in (longest, -longest, np.full(plan.size, np.nan), np.eye(plan.size)[0]):
        with_it = ask(np.vstack([others, own]), plan, NO_KEY) * weights
        moved = np.linalg.norm(with_it - without)
        assert moved <= 1 + 1e-6
    # The sums, not the clip, are what bounds a vector that is within it already.
    assert (
        np.linalg.norm(
            ask(np.vstack([others, np.eye(plan.size)[0]]), plan, NO_KEY) * weights - without
        )
        > 0.99
    )


def test_nobody_at_all_gives_noise_alone(policy: Policy) -> None:
    plan = plan_of()
    nobody = CROWD.log.select(np.zeros(len(CROWD.log), bool))
    told = told_by(nobody, [Candidate(policy)], plan)
    assert told.shape == (0, plan.size)
    sums = ask(told, plan, NO_KEY)
    assert np.isfinite(sums).all()
    assert verdicts(sums, plan)[0].agreement.estimate is None


def test_the_parts_are_whole_experts_by_name_and_nobody_is_in_both() -> None:
    key = SplitKey(0.3, bytes(32))
    others, judges = parted(CROWD.log, key)
    assert len(others) + len(judges) == len(CROWD.log)
    assert not set(others.experts) & set(judges.experts)
    assert [str(i) for i in judges.experts] == [
        name
        for name, is_judge in zip(CROWD.log.names, key.judges(CROWD.log.names), strict=True)
        if is_judge
    ]


def test_a_named_expert_stays_where_it_is_when_others_come() -> None:
    """Names are sorted and numbered, so a newcomer moves the numbers: not the parts."""
    key, log = SplitKey(0.4, bytes(32)), CROWD.log
    arrays = to_step_arrays(some(log, list(range(30))))
    names = np.char.add("expert ", arrays.experts.astype(str))

    def judging(chosen: Any) -> set[str]:
        called = arrays._replace(experts=names)
        part: Any = [None if column is None else column[chosen] for column in called]
        named = from_step_arrays(type(arrays)(*part), replace(log.declared, minimum_experts=None))
        return set(parted(named, key)[1].names)

    everybody = judging(np.ones(len(names), bool))
    fewer = judging(arrays.experts >= 10)
    assert fewer == {name for name in everybody if int(name.split()[1]) >= 10}
    assert len(everybody) > len(fewer) > 0


def test_the_plan_costs_what_it_was_given_and_says_how_it_is_split() -> None:
    judges = Judges(share=0.15, return_bounds=(0, 500))
    plan = plan_judging(CROWD.log.declared, judges, epsilon=1.0, delta=1e-3)
    assert 0.99 < total_epsilon([plan.event], 1e-3) <= 1.0
    assert plan.event.part == "judging"
    assert sum(block.weight**2 for block in plan.blocks.values()) <= 1
    assert "mean return 38%" in plan.describe()
    assert "noise alone lets judges know what the experts earn to ±" in plan.describe()
    unasked = plan_judging(CROWD.log.declared, Judges(share=0.15), epsilon=1.0, delta=1e-3)
    assert "return" not in unasked.describe()
    assert verdicts(np.ones(unasked.size), unasked)[0].mean_return is None


@pytest.mark.parametrize(("experts", "tells"), [(1000, True), (20, False)])
def test_the_plan_says_before_whether_judges_will_tell(experts: int, tells: bool) -> None:
    """Against the spread of 4000 noisy sums: its 95% half-width within 5%, 4.5 deviations."""
    declared = replace(CROWD.log.declared, minimum_experts=experts)
    plan = plan_judging(declared, Judges(share=0.3, return_bounds=(0, 1)), epsilon=3, delta=1e-5)
    assert ("let more of them judge" in plan.describe()) is not tells
    rng = np.random.default_rng(0)
    noise = rng.normal(scale=plan.deviation("mean_return"), size=4000) / plan.expected
    half = 1.96 * noise.std() / 2  # of −1 to 1
    assert plan.left_by_noise("mean_return") == pytest.approx(min(half, 1), rel=0.05)
