"""What judges of continuous actions tell: how near a policy comes, and what it is worth."""

from types import SimpleNamespace
from typing import Any, Final

import jax
import numpy as np
import pytest
from dosing import BOUNDS, dosing, right

from quorum_rl.dictionary import Dictionary
from quorum_rl.errors import QuorumError
from quorum_rl.judging import (
    Candidate,
    Judges,
    JudgingPlan,
    ValuePlan,
    Values,
    ValueUnits,
    fitted_values,
    told_by,
    value_step,
    verdicts,
)
from quorum_rl.judging.answers import DOUBT_OF_CONTINUOUS, Answer, doubt_of, unknown
from quorum_rl.judging.fitting import value_data
from quorum_rl.judging.values import beside, nearness, worth
from quorum_rl.learners import Bc
from quorum_rl.logs import Declared, Demonstrations, from_episodes
from quorum_rl.nets import Layer
from quorum_rl.pipeline.export import policy_of
from quorum_rl.policy import Policy

HORIZON: Final = 3
DOSES: Final = ValueUnits((0.0,), (0.5,), 5, 10.0, (-1.0, 0.0), 2, BOUNDS)


def dosed(rule: Any) -> Any:
    """A policy as code."""
    return SimpleNamespace(action_numbers=lambda seen: rule(np.asarray(seen)).astype(np.float32))


def moving(experts: int) -> Demonstrations:
    """Experts who go anywhere: an action is where one is next, and being at x earns x."""
    rng, episodes = np.random.default_rng(0), 30 * experts
    at = rng.uniform(-1, 1, (episodes, HORIZON + 1, 1)).astype(np.float32)
    return from_episodes(
        Declared(1, 1, HORIZON, dictionary=Dictionary((), (), ((-1.0, 1.0),))),
        expert=np.arange(episodes) // 30,
        length=np.full(episodes, HORIZON),
        observations=at.reshape(-1, 1),
        actions=at[:, 1:].reshape(-1, 1),
        rewards=at[:, :-1].reshape(-1),
        terminated=np.zeros(episodes, bool),
        truncated=np.ones(episodes, bool),
    )


@pytest.mark.parametrize("to", [-0.7, 0.4])
def test_fitted_values_of_continuous_actions_are_near_the_exact_ones(to: float) -> None:
    units = ValueUnits((0.0,), (1.0,), HORIZON, 6.0, (-0.5, 0.5), 1, ((-1.0, 1.0),))
    policy = dosed(lambda seen: np.full((len(seen), 1), to))
    log, key = moving(100), np.zeros(2, np.uint32)
    values = fitted_values(log, policy, units, value_step(0.01, 100), key)
    rows = [beside(log, expert, policy) for expert in range(100)]
    found = float(np.mean([worth(row, values) for row in rows]))
    # Nothing in the features says that the last action leads nowhere: some of the way is lost.
    assert abs(found - 2 * to) < 0.4
    assert abs(found + 2 * to) > 1.2
    better, worse = (values.of([[0.0]], [0], [[action]])[0] for action in (0.8, -0.8))
    assert (better - worse) * units.reward == pytest.approx(1.6, abs=0.5)


def plan_of(policies: int) -> JudgingPlan:
    return JudgingPlan(
        judges=Judges(share=0.5, return_bounds=(-9, 9)),
        action_count=2,
        expected=30.0,
        noise_multiplier=1.0,
        action_bounds=BOUNDS,
        policies=policies,
        values=ValuePlan(
            horizon=5, return_bounds=(-9, 9), noise_multiplier=1.0, expected=9.0, policies=policies,
            action_count=2, action_bounds=BOUNDS,
        ),
    )  # fmt: skip


def test_equations_of_continuous_actions_depend_on_nobody_else() -> None:
    """To the bit, also where the policy has no answer."""

    def none(seen: Any) -> Any:
        raise QuorumError(f"no answer to {len(seen)} states")

    log = dosing()
    for policy in (dosed(right), SimpleNamespace(action_numbers=none)):
        alone = log.select(log.episodes.expert == 5)
        own, all_of = (value_data(some, policy, DOSES) for some in (alone, log))  # type: ignore[arg-type]
        shown = own.transitions.observation[0]
        assert (shown == all_of.transitions.observation[5]).all()
        assert np.isfinite(shown).all()


def test_who_never_does_quite_the_same_is_judged_by_its_values_from_the_first_state() -> None:
    log, policy = dosing(), dosed(right)

    def of(seen: Any, time: Any, action: Any) -> Any:
        return seen[:, 0] + action[:, 1] + time

    values: Any = SimpleNamespace(units=DOSES, of=of)
    row = beside(log, 3, policy)
    assert not row.agrees.any()
    firsts = row.observations[row.first]
    wanted = 10 * (firsts[:, 0] + right(firsts)[:, 1]).mean()
    assert worth(row, values) == pytest.approx(wanted)


def test_nothing_is_known_below_and_above_it_takes_a_policy_that_is_near() -> None:
    def doubt(low: float) -> tuple[float, float]:
        return doubt_of(Answer(0.97, low, 1.0, (0.0, 1.0), tells=True), continuous=True)

    assert doubt(1.0) == doubt(0.86) == (np.inf, DOUBT_OF_CONTINUOUS)
    assert doubt(0.84) == doubt_of(unknown(0.0, 1.0), continuous=True) == (np.inf, np.inf)


@pytest.mark.parametrize(
    ("earned", "value", "near", "better"),
    [(0.8, -0.7, 0.97, "no"), (0.8, 0.0, 0.97, "cannot tell"), (-0.8, 0.9, 0.97, "cannot tell"),
     (0.8, -0.7, 0.8, "cannot tell")],
)  # fmt: skip
def test_a_policy_is_worse_or_nobody_can_tell(
    earned: float, value: float, near: float, better: str
) -> None:
    """Between −1 and 1, told by 200 judges who are all alike."""
    gain, same = (value - earned) / 2, 2 * near - 1
    each = {
        "judges": 1, "mean_return": earned, "spread_of_returns": 2 * earned**2 - 1,
        "value": value, "spread_of_value": 2 * value**2 - 1, "spread_of_gain": 2 * gain**2 - 1,
        "agreement": same, "spread_of_agreement": 2 * same**2 - 1, "actions": 0.25,
    }  # fmt: skip
    plan = plan_of(1)
    told = [np.full(block.size, 200.0 * each[name]) for name, block in plan.blocks.items()]
    (said,) = verdicts(np.concatenate(told), plan)
    assert said.better == better
    assert said.value is not None
    assert said.value.low == -9
    assert not said.value.tells
    words = said.describe()
    assert f"better than what is done today: {better}" in words
    assert ("for it may be further off what they did than 15%" in words) == (near < 0.85)
    assert "as near, in number 1 of the action" in words


def test_nearness_is_one_less_the_mean_distance_as_a_part_of_the_bounds() -> None:
    log, learner = dosing(), Bc(hidden_sizes=(), action_bounds=BOUNDS)
    policy = policy_of(learner, learner.init(jax.random.key(0), 1, 2))
    low, high = np.array(BOUNDS).T
    for expert in (0, 7):
        own = [log.episode(number) for number in log.episodes_of(expert)]
        off = [np.abs(policy.act(one.observations[:-1]) - one.actions) for one in own]
        wanted = 1 - np.concatenate(off).mean(axis=0) / (high - low)
        near = nearness(beside(log, expert, policy), BOUNDS)
        np.testing.assert_allclose(near, wanted, rtol=1e-6)
        alone = log.select(np.array(log.episodes_of(expert)))
        np.testing.assert_array_equal(nearness(beside(alone, 0, policy), BOUNDS), near)


def test_what_a_judge_of_continuous_actions_tells_is_no_longer_than_one() -> None:
    """Also where the policy is as far off as can be, or right everywhere."""
    log = dosing()
    plan = plan_of(2)
    values = Values(DOSES, np.full(DOSES.weights, 1e9, np.float32))
    corners = [Dictionary((), (), BOUNDS)] * 2
    for dictionary, bias in zip(corners, ((-50.0, -50.0), (50.0, -50.0)), strict=True):
        layer = Layer(np.zeros((1, 2), np.float32), np.array(bias, np.float32))
        policy = Policy(
            networks={"policy": (layer,)}, squashed="policy", learner="bc", dictionary=dictionary
        )
        told = told_by(log, [Candidate(policy, values)] * 2, plan)
        assert np.linalg.norm(told, axis=1).max() <= 1
        assert told.shape == (log.expert_count, plan.size)
