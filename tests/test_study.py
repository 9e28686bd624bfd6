"""Trainings that are one program do what each would do alone; what cannot be run is said."""

import json
import math
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
from cartpole import alike

from quorum_rl.envs import get_world
from quorum_rl.errors import QuorumError
from quorum_rl.learners import get_learner
from quorum_rl.logs import collect
from quorum_rl.pipeline import Comparison, FitSettings, Method, Outcome, Study, compared
from quorum_rl.privacy.accounting import total_epsilon
from quorum_rl.privacy.events import Event, ReleaseEvent, TrainingEvent
from quorum_rl.types import Released

EXPERTS = 60
LEARNER = get_learner("cql", hidden_sizes=())
PRIVATE = FitSettings(method="dp-sgd", private_steps=40, transitions_per_expert=2).filled()
ALONE = FitSettings(method="selective", release_share=1.0)
PUBLISHED = replace(PRIVATE, mode="paper", averaging=0.0, private_steps=600)


@pytest.fixture(scope="module", name="study")
def _study() -> Study:
    world = get_world("CartPole")
    acting = alike(EXPERTS).smoothed(0.1)
    log, experts = collect(acting, world, trajectories=3, minimum_experts=EXPERTS - 1, seed=0)
    return Study(experts, log, world, 1e-3, range(2))


def same(one: object, other: object) -> bool:
    return jax.tree.all(jax.tree.map(lambda a, b: np.allclose(a, b, atol=1e-6), one, other))


def prefix(study: Study, length: int) -> Released:
    """The first steps of the first trajectory as one that was released."""
    taken = study.log.transitions(np.arange(length))
    return Released(taken, np.array([0, length]), 4, 2, horizon=200)


def test_methods_that_differ_in_noise_alone_are_one_program_and_do_not_mix(study: Study) -> None:
    plans = [study.planned(LEARNER, PRIVATE, epsilon) for epsilon in (20.0, 10.0)]
    told: list[tuple[int, int]] = []
    together = study.trained(plans, lambda done, total: told.append((done, total)))
    assert told == [(40, 40)]  # one training for both
    alone = [study.trained([plan])[0] for plan in reversed(plans)]
    assert same(together, alone[::-1])
    assert not same(together[0], together[1])


def test_policies_of_several_networks_are_judged_as_each_would_be_alone(study: Study) -> None:
    wider = get_learner("cql", hidden_sizes=(3,))
    learners = [LEARNER, wider, LEARNER]
    keys = (jax.random.split(jax.random.key(seed), len(study.seeds)) for seed in range(3))
    policies = [
        [jax.vmap(lambda key, one=one: one.init(key, 4, 2))(key)]
        for one, key in zip(learners, keys, strict=True)
    ]
    together = study.judged(learners, policies, episodes=3)
    assert len({tuple(returns.ravel()) for returns, _ in together}) > 1
    for number, (learner, found) in enumerate(zip(learners, together, strict=True)):
        (alone,) = study.judged([learner], policies[number : number + 1], episodes=3)
        np.testing.assert_array_equal(found[0], alone[0])


def test_the_papers_method_is_evaluated_ten_times_and_averaged(study: Study) -> None:
    plan = study.planned(LEARNER, PUBLISHED, 20.0)
    (policies,) = study.trained([plan])
    assert len(policies) == 10
    assert not same(policies[0], policies[-1])
    (returns, scores), (last, _), (first, _) = study.judged(
        [LEARNER] * 3, [policies, policies[-1:], policies[:1]], episodes=3
    )
    assert returns.shape == (2, 30)
    np.testing.assert_array_equal(last, returns[:, -3:])
    np.testing.assert_array_equal(first, returns[:, :3])
    world = study.world.facts
    np.testing.assert_allclose(scores, [world.normalised(mean) for mean in returns.mean(axis=1)])


def test_what_cannot_be_run_is_named_and_the_rest_goes_on(study: Study) -> None:
    nothing = Method(name="nothing", settings=ALONE, epsilon=0.01)
    some = Method(name="some", settings=PRIVATE, epsilon=20.0)
    found = compared(study, LEARNER, [nothing, some], episodes=3)
    assert [outcome.method.name for outcome in found.outcomes] == ["some"]
    ((method, reason),) = found.infeasible
    assert method is nothing
    assert "nothing can be released" in reason
    assert found.to_json()["infeasible"][0]["name"] == "nothing"


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan])
def test_what_is_wrong_is_an_error_and_not_infeasible(study: Study, epsilon: float) -> None:
    wrong = Method(name="wrong", settings=PRIVATE, epsilon=epsilon)
    with pytest.raises(QuorumError, match=r"epsilon is .*: give a positive number"):
        compared(study, LEARNER, [wrong], episodes=3)


def test_the_joint_cost_can_be_computed_from_what_is_written(study: Study) -> None:
    both = replace(PRIVATE, method="selective", iterations=2, least_released=0, least_reached=0.0)
    plan = study.planned(LEARNER, both, 20.0)
    assert plan.release is not None
    outcome = Outcome(
        Method(name="both", settings=both, epsilon=20.0), plan, np.zeros((2, 1)), np.zeros(2), ()
    )
    found = Comparison(study.world, study.log.expert_count, study.delta, (outcome,)).to_json()
    (written,) = json.loads(json.dumps(found))["methods"]
    events: list[Event] = [
        ReleaseEvent(**written["release"]),
        TrainingEvent(
            sampling_rate=both.sampling_rate or 0.0,
            noise_multiplier=written["noise_multiplier"],
            steps=written["private_steps"],
        ),
    ]
    assert 19 < total_epsilon(events, written["delta"]) <= 20.0


def test_where_nothing_was_released_only_private_steps_are_taken(study: Study) -> None:
    selective = replace(
        PUBLISHED, method="selective", private_steps=20, private_share=0.5, batch_size=4
    )
    plan = study.planned(LEARNER, replace(selective, iterations=3), 60.0)
    assert plan.release is not None
    assert plan.plain_steps == 20
    full, empty = prefix(study, 8), prefix(study, 0)  # 8 and 7 are one program

    def trained(*released: Released) -> Any:
        own = replace(study, _releases={repr(plan.release): list(released)})
        own.check_releases(plan)
        return own.trained([plan])[0][-1]

    both, one, none = trained(full, full), trained(empty, full), trained(empty, empty)
    first, second = (jax.tree.map(lambda leaf, n=n: leaf[n], one) for n in range(2))
    assert same(second, jax.tree.map(lambda leaf: leaf[1], both))
    assert not same(first, jax.tree.map(lambda leaf: leaf[0], both))
    other = trained(empty, prefix(study, 7))
    assert same(first, jax.tree.map(lambda leaf: leaf[0], other))  # nothing of the other's
    (private,) = study.trained([replace(plan, release=None, plain_steps=0)])
    assert same(none, private[-1])


def test_a_release_alone_out_of_which_nothing_comes_is_infeasible(study: Study) -> None:
    plan = study.planned(LEARNER, replace(ALONE, iterations=2), 60.0)
    nothing = prefix(study, 0)
    with pytest.raises(QuorumError, match="2 of 2 seeds release nothing"):
        replace(study, _releases={repr(plan.release): [nothing] * 2}).check_releases(plan)


def test_what_would_train_alike_is_trained_once(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release that does not pay is left out, and what is left is DP-SGD alone."""
    trained, asked = Study.trained, []

    def counted(self: Study, plans: Any, progress: Any = None) -> Any:
        asked.append([plan.settings.clip_norm for plan in plans])
        return trained(self, plans, progress)

    monkeypatch.setattr(Study, "trained", counted)
    unpaid = replace(PRIVATE, method="selective", least_released=10**9)
    methods = [
        Method(name="alone", settings=PRIVATE, epsilon=20.0),
        Method(name="unpaid", settings=unpaid, epsilon=20.0),
        Method(name="other", settings=replace(PRIVATE, clip_norm=0.3), epsilon=20.0),
    ]
    found = compared(study, LEARNER, methods, episodes=2)
    assert asked == [[PRIVATE.clip_norm, 0.3]]
    np.testing.assert_array_equal(found["alone"].returns, found["unpaid"].returns)
    assert [one.method.name for one in found.outcomes] == ["alone", "unpaid", "other"]
