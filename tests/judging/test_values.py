"""What a policy is worth: right in the mean with exact values, and fitted from those who teach."""

import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pytest
from fits import crowd

from quorum_rl.judging import (
    Candidate,
    Judges,
    JudgingPlan,
    Values,
    ValueUnits,
    fitted_values,
    plan_values,
    told_by,
    value_step,
    values as values_module,
    verdicts,
)
from quorum_rl.judging.answers import (
    DOUBT,
    LEAST_AGREEMENT,
    Answer,
    doubt_of,
)
from quorum_rl.judging.fitting import solved, value_data
from quorum_rl.judging.plan import OF_TRAINING, Block
from quorum_rl.judging.values import STEPS, beside, worth
from quorum_rl.logs import Declared, Demonstrations, from_episodes
from quorum_rl.nets import Layer
from quorum_rl.policy import Policy
from quorum_rl.privacy import noise_multiplier_for, total_epsilon

Floats = npt.NDArray[np.float64]

# Two states and a way out. In state s, action a: the chance to be in state 1 next, that to be over.
TO_ONE: Final = np.array([[0.3, 0.8], [0.6, 0.1]])
OVER: Final = np.array([[0.0, 0.2], [0.1, 0.3]])
REWARD: Final = np.array([[1.0, 0.5], [-0.5, 2.0]])
EXPERT: Final = np.array([0.7, 0.4])  # how likely the expert takes action 1
HORIZON: Final = 3


def choosing(*actions: int) -> Policy:
    """The policy that takes this action in each of both states, which are observed as ±1."""
    scores = np.array([[0.0, 2 * a - 1] for a in actions], np.float32)
    weight = (scores[1:] - scores[:1]) / 2
    bias = (scores[0] + scores[1]) / 2
    layer = Layer(weight.astype(np.float32), bias.astype(np.float32))
    return Policy(networks={"values": (layer,)}, highest="values", learner="bc")


def exact(policy: tuple[int, int]) -> Floats:
    """What an action is worth, by backward induction. Shapes: (time, state, action)."""
    found = np.zeros((HORIZON + 1, 2, 2))
    for time in reversed(range(HORIZON)):
        after = found[time + 1][[0, 1], policy]
        on = 1 - OVER
        found[time] = REWARD + on * ((1 - TO_ONE) * after[0] + TO_ONE * after[1])
    return found


def episodes() -> Iterator[tuple[float, list[int], list[int], bool]]:
    """Every episode that there is: its probability, states, actions, and whether it ended early."""
    ways: list[tuple[float, list[int], list[int]]] = [(0.5, [0], []), (0.5, [1], [])]
    for time in range(HORIZON):
        longer = []
        for (chance, states, actions), action in product(ways, (0, 1)):
            s = states[-1]
            taken = chance * (EXPERT[s] if action else 1 - EXPERT[s])
            yield taken * OVER[s, action], [*states, s], [*actions, action], True
            for following in (0, 1):
                to = TO_ONE[s, action] if following else 1 - TO_ONE[s, action]
                way = taken * (1 - OVER[s, action]) * to, [*states, following], [*actions, action]
                longer.append(way)
                if time == HORIZON - 1:
                    yield *way, False
        ways = longer


def log_of(many: list[tuple[list[int], list[int], bool]], each: int = 1) -> Demonstrations:
    """One expert for every `each` of these episodes."""
    lengths = [len(actions) for _, actions, _ in many]
    states = np.concatenate([states for states, _, _ in many])
    actions = np.concatenate([actions for _, actions, _ in many])
    before = np.concatenate([states[:-1] for states, _, _ in many])
    ended = np.array([over for *_, over in many])
    return from_episodes(
        Declared(2, 1, HORIZON, minimum_experts=2),
        expert=np.arange(len(many)) // each,
        length=np.array(lengths),
        observations=(2.0 * states - 1)[:, None],
        actions=actions,
        rewards=REWARD[before, actions],
        terminated=ended,
        truncated=~ended,
    )


UNITS: Final = ValueUnits((0.0,), (1.0,), HORIZON, 8.0, (-0.25, 0.75), 2)


@pytest.mark.parametrize("policy", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_with_exact_values_what_is_told_is_right_in_the_mean(policy: tuple[int, int]) -> None:
    """Over every episode that there is, each with its probability."""
    known = exact(policy)

    def of(observations: Any, time: Any, action: Any) -> Any:
        return known[time, (np.asarray(observations)[:, 0] > 0).astype(int), action] / UNITS.reward

    chances, *ways = zip(*episodes(), strict=True)
    log = log_of(list(zip(*ways, strict=True)))
    values: Any = SimpleNamespace(of=of, units=UNITS)
    told = [worth(beside(log, i, choosing(*policy)), values) for i in range(log.expert_count)]
    assert sum(chances) == pytest.approx(1)
    assert np.dot(chances, told) == pytest.approx(known[0][[0, 1], policy].mean())


@pytest.mark.parametrize("policy", [(0, 0), (1, 1)])
def test_fitted_values_are_near_the_exact_ones(policy: tuple[int, int]) -> None:
    """Of 200 experts with 10 episodes each and hardly any noise: the mean of the first states'."""
    chances, *ways = zip(*episodes(), strict=True)
    every = list(zip(*ways, strict=True))
    drawn = np.random.default_rng(0).choice(len(every), 2000, p=chances)
    log = log_of([every[i] for i in drawn], each=10)
    step = value_step(0.01, 200)
    values = fitted_values(log, choosing(*policy), UNITS, step, np.zeros(2, np.uint32))
    found = values.of([[-1.0], [1.0]], [0, 0], policy).mean() * UNITS.reward
    truth = exact(policy)[0][[0, 1], policy].mean()
    others = exact((1 - policy[0], 1 - policy[1]))[0][[0, 1], [1 - a for a in policy]].mean()
    assert abs(found - truth) < 0.2
    assert abs(truth - others) > 0.6


def test_nobody_to_learn_from_gives_noise_alone() -> None:
    log = crowd().log
    nobody = log.select(np.zeros(len(log), bool))
    units = replace(UNITS, horizon=5)
    made = fitted_values(nobody, choosing(0, 1), units, value_step(1.0, 200), np.ones(2, np.uint32))
    assert np.isfinite(made.weights).all()
    assert (made.weights != 0).any()


def test_an_experts_equations_depend_on_nobody_else() -> None:
    """To the bit: floats depend on what else is computed with them."""
    log, policy, units = crowd().log, choosing(0, 1), replace(UNITS, horizon=5)
    alone = log.select(log.episodes.expert == 5)
    few = log.select(log.episodes.expert < 40)
    own, all_of = value_data(alone, policy, units), value_data(few, policy, units)
    assert (own.transitions.observation[0] == all_of.transitions.observation[5]).all()


def looked_at(log: Demonstrations) -> tuple[int, Floats]:
    """The most memory that an expert's equations and its answer took, and both of them."""
    units, policy = replace(UNITS, horizon=5), choosing(0, 1)
    values = Values(units, np.ones(units.weights, np.float32))
    tracemalloc.start()
    row = beside(log, 0, policy)
    found = np.append(solved(row, units), worth(row, values))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most, found


def test_one_expert_with_an_enormous_log_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For want of memory: it would tell who took part. In pieces it says the same."""
    log = crowd().log
    one = replace(log, episodes=log.episodes._replace(expert=np.zeros(len(log), np.int64)))
    monkeypatch.setattr(values_module, "PIECE", one.transition_count)
    much, whole = looked_at(one)
    monkeypatch.setattr(values_module, "PIECE", 100)
    little, in_pieces = looked_at(one)
    np.testing.assert_allclose(in_pieces, whole, rtol=1e-4, atol=1e-5)
    assert little < much / 4


# --- several policies, jointly clipped ---


def plan_of(policies: int, noise: float = 1.0) -> JudgingPlan:
    declared = replace(crowd().log.declared, minimum_experts=200)
    values = plan_values(declared, (-1.0, 6.0), epsilon=3.0, delta=1e-3, policies=policies)
    return JudgingPlan(
        judges=Judges(share=0.5, return_bounds=(-1, 6)),
        action_count=2,
        expected=200,
        noise_multiplier=noise,
        policies=policies,
        values=values,
    )


def longest(plan: JudgingPlan) -> float:
    """Of what judges tell where everything is at its most: all agree, and values are bounds."""
    assert plan.values is not None  # it has some
    log = crowd(preference=0.999).log
    some = log.select(log.episodes.expert < 3)
    huge = replace(some, columns=some.columns._replace(rewards=some.columns.rewards + 1e9))
    units = plan.values.units((), (), 1)
    values = Values(units, np.full(units.weights, 1e9, np.float32))
    always = Layer(np.zeros((1, 2), np.float32), np.array([1, 0], np.float32))
    policy = Policy(networks={"values": (always,)}, highest="values", learner="bc")
    rows = told_by(huge, [Candidate(policy, values)] * plan.policies, plan)
    assert rows.shape == (3, plan.size)
    return float(np.linalg.norm(rows, axis=1).max())


@pytest.mark.parametrize("policies", [1, 2, 3])
def test_what_is_asked_of_several_policies_is_one_contribution(policies: int) -> None:
    assert longest(plan_of(policies)) <= 1


def test_a_planted_bug_is_found_that_clips_each_policy_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blocks = JudgingPlan.blocks.fget  # type: ignore[attr-defined]

    def apart(plan: JudgingPlan) -> dict[str, Block]:
        found: dict[str, Block] = blocks(plan)
        return {name: block._replace(weight=block.weight * block.copies**0.5)
                for name, block in found.items()}  # fmt: skip

    monkeypatch.setattr(JudgingPlan, "blocks", property(apart))
    assert longest(plan_of(1)) <= 1
    assert longest(plan_of(2)) > 1.1


def test_fitting_takes_its_part_of_what_training_may_spend_however_many_policies() -> None:
    for policies in (1, 3):
        plan = plan_of(policies).values
        assert plan is not None
        assert plan.event.steps == policies * STEPS
        assert plan.event.part == "training"
        alone = noise_multiplier_for(steps=STEPS, sampling_rate=1.0, epsilon=3.0, delta=1e-3)
        assert (alone / plan.noise_multiplier) ** 2 * policies == pytest.approx(OF_TRAINING, 1e-3)
        assert total_epsilon([plan.event], 1e-3) < 1.2


# --- verdicts ---


def told_evenly(plan: JudgingPlan, judges: int, earned: float, value: float, share: float) -> Any:
    """Sums without noise of judges who all tell the same; returns and values between −1 and 1."""
    same, gain = 2 * share - 1, (value - earned) / 2
    each = {
        "judges": 1, "mean_return": earned, "spread_of_returns": 2 * earned**2 - 1,
        "value": value, "spread_of_value": 2 * value**2 - 1, "spread_of_gain": 2 * gain**2 - 1,
        "agreement": same, "spread_of_agreement": 2 * same**2 - 1, "actions": 0.25,
    }  # fmt: skip
    return judges * np.concatenate(
        [np.full(block.size, float(each[name])) for name, block in plan.blocks.items()]
    )


@pytest.mark.parametrize(
    ("earned", "value", "share", "better"),
    [
        (-0.5, 0.6, 0.95, "yes"),
        (0.6, -0.5, 0.95, "no"),
        (0.1, 0.15, 0.95, "cannot tell"),
        (-0.5, 0.6, 0.6, "cannot tell"),
    ],
)
def test_a_verdict_is_given_only_where_the_doubt_leaves_one(
    earned: float, value: float, share: float, better: str
) -> None:
    plan = plan_of(1)
    (found,) = verdicts(told_evenly(plan, 200, earned, value, share), plan)
    assert found.better == better
    assert found.value is not None
    assert found.gain is not None
    if share < LEAST_AGREEMENT:
        assert (found.value.low, found.value.high) == (-1, 6)
        assert "for it may do otherwise in more than 30% of the steps" in found.describe()
        assert (found.gain.low, found.gain.high) == (-7, 7)
        return
    assert found.value.estimate == pytest.approx(-1 + 3.5 * (value + 1))
    assert found.gain.estimate == pytest.approx(3.5 * (value - earned))
    assert found.value.high - found.value.low > 2 * DOUBT * (1 - share) * 7
    assert f"better than what is done today: {better}" in found.describe()


def test_several_policies_have_wider_intervals_each() -> None:
    one, three = (
        verdicts(told_evenly(plan_of(k, noise=0.01), 200, 0.0, 0.2, 0.9), plan_of(k, noise=0.01))
        for k in (1, 3)
    )
    assert len(three) == 3
    alone, beside_others = one[0].value, three[2].value
    assert alone is not None
    assert beside_others is not None
    assert beside_others.high - beside_others.low > alone.high - alone.low
    shares = [(said.agreement, said.agreement_by_action[0]) for said in (one[0], three[2])]
    for own, shared in zip(*shares, strict=True):
        assert shared.high - shared.low > own.high - own.low


def test_doubt_grows_with_disagreement_until_nobody_knows() -> None:
    def answer(estimate: float | None, low: float = 0.71) -> Answer:
        return Answer(estimate, low, 1.0, (0.0, 1.0), tells=True)

    assert doubt_of(answer(1.0)) == (0, 0)
    assert doubt_of(answer(0.8)) == pytest.approx((0.15, 0.15))
    assert doubt_of(answer(0.8, low=0.69)) == (np.inf, np.inf)
    assert doubt_of(answer(None, low=0.0)) == (np.inf, np.inf)
