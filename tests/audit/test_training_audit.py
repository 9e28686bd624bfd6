"""The audit of training: its scores are what theory says, and it sees the bugs that are planted."""

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from audited_networks import CONVOLVED, GAUSSIANS
from scipy.stats import kstest

from quorum_rl.audit.adversary import Looking, contributed, watched
from quorum_rl.audit.audits import audit_last_bits, audit_training, judged
from quorum_rl.audit.cases import EVERYBODY, NETWORKS, ONE_STEP, ROUNDS, SAMPLED, STEADY, WIDE, Case
from quorum_rl.audit.finding import GAUSSIAN, ITERATES, REST
from quorum_rl.audit.planted_bugs import BUGS, Bug, planted
from quorum_rl.audit.suite import WORST_CASES, caught
from quorum_rl.audit.trainings import (
    Scores,
    noise_keys,
    same_public,
    trailing_zeros,
    trained,
    training_data,
    training_transitions,
)
from quorum_rl.errors import QuorumError
from quorum_rl.learners import Bc
from quorum_rl.pipeline.driver import runs_of, steps_of
from quorum_rl.training.contributions import Solve, mean_gradient
from quorum_rl.training.mechanism import StepShape
from quorum_rl.training.recipe import Optimiser

RUNS = 20_000  # always, so that programs are compiled once
FEWER = {WIDE.name: 800, STEADY.name: 4000, CONVOLVED.name: 4000, GAUSSIANS.name: 4000}
NETS = {"convolution": CONVOLVED, "gaussian-policy": GAUSSIANS}
IN_TRAINING = [
    bug for bug, case in WORST_CASES.items() if case.plan.private and case is not ONE_STEP
]
IN_TRAINING.sort(key=lambda bug: BUGS[bug].compiled)  # after these, all is compiled again
CASES = {"everybody": EVERYBODY, "sampled": SAMPLED, "rounds": ROUNDS}


def runs_for(case: Case) -> int:
    return FEWER.get(case.name, RUNS)


@cache
def scores(case: Case, present: bool) -> Scores:
    return trained(case, runs_for(case), present, seed=3)


@pytest.mark.parametrize(
    "case", [EVERYBODY, ROUNDS, *NETS.values()], ids=["everybody", "rounds", *NETS]
)
@pytest.mark.parametrize("present", [True, False])
def test_the_scores_are_those_of_a_gaussian_mechanism(case: Case, present: bool) -> None:
    """μ = √steps/σ = 1: normal, with mean ±μ²/2 and variance μ². False alarm 1e-4 each."""
    score = scores(case, present)[ITERATES]
    assert kstest(score, "norm", (0.5 if present else -0.5, 1.0)).pvalue > 1e-4


@pytest.mark.parametrize("present", [True, False])
def test_the_rest_is_noise_and_nothing_else(present: bool) -> None:
    """Four steps of 130 parameters, two directions taken out. False alarm 1e-4 each."""
    rest = scores(WIDE, present)[REST] / WIDE.private.noise_multiplier**2
    assert kstest(rest, "chi2", (4 * (130 - 2),)).pvalue > 1e-4


def test_with_sampling_they_are_likelihood_ratios() -> None:
    """So that e to the power of each has the mean 1 without the canary; within 4.9 deviations."""
    ratio = np.exp(scores(SAMPLED, False)[ITERATES])
    assert abs(ratio.mean() - 1) < 4.9 * ratio.std() / np.sqrt(RUNS)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_training_is_not_accused_and_the_bound_comes_close(case: Case) -> None:
    """Wrongly it would be with probability 0.1% for each finding, but for the fixed seed."""
    findings = judged(case, scores(case, True), scores(case, False))
    assert all(finding.claimed == case.claimed for finding in findings)
    assert not any(finding.refuted for finding in findings)
    iterates, actions, *_ = (finding.bound.epsilon for finding in findings)
    assert 0.65 * case.claimed < iterates < case.claimed
    assert 0.15 * case.claimed < actions < iterates
    gaussian = [finding.bound.epsilon for finding in findings if finding.note == GAUSSIAN]
    assert len(gaussian) == (case.private.sampling_rate == 1)
    assert all(0.9 * case.claimed < epsilon < case.claimed for epsilon in gaussian)


@pytest.mark.parametrize("case", [STEADY, NETWORKS, WIDE], ids=["steady", "networks", "wide"])
def test_nor_is_it_by_what_is_there_for_bugs(case: Case) -> None:
    """Wrongly it would be with probability 0.1% each, but for the fixed seed."""
    (finding,) = judged(case, scores(case, True), scores(case, False))
    assert finding.refutable
    assert not finding.refuted


@pytest.mark.parametrize(
    "bug",
    IN_TRAINING,
)
def test_a_planted_bug_is_caught(bug: str) -> None:
    """By the first finding of its case, which the sound mechanism has with probability 0.1%."""
    with planted(bug):
        case = WORST_CASES[bug]
        findings = audit_training(case, runs_for(case), seed=6)
    assert findings[0].refuted
    assert caught(findings)


@pytest.mark.parametrize("case", NETS.values(), ids=NETS)
def test_other_networks_are_not_accused_but_with_a_planted_bug(case: Case) -> None:
    """Wrongly it would be with probability 0.1% for each finding, but for the fixed seed."""
    findings = judged(case, scores(case, True), scores(case, False))
    assert not any(finding.refuted for finding in findings)
    assert 0.5 * case.claimed < findings[0].bound.epsilon < case.claimed
    for bug in ("noise-halved", "clipping-off"):
        with planted(bug):
            findings = audit_training(case, runs_for(case), seed=6)
        assert findings[0].refuted
        assert caught(findings)


def test_last_bits_show_a_sum_of_floats_and_nothing_of_whole_numbers() -> None:
    """A false alarm with probability 0.1% at most, but for the fixed seed."""
    with planted("lattice-off"):
        assert audit_last_bits(200, seed=6).refuted
    finding = audit_last_bits(200, seed=6)
    assert finding.refutable
    assert not finding.refuted


def test_zeros_are_counted_from_the_last_bit() -> None:
    numbers = np.array([1.0, 1.5, 1 + 2.0**-23, -3 * 2.0**-30, 0.0], np.float32)
    assert trailing_zeros(numbers).tolist() == [23, 22, 0, 22, 0]


def test_an_expert_with_one_transition_contributes_that_one_as_often_as_asked() -> None:
    canary, _ = training_transitions(ROUNDS.chain)
    learner, recipe = ROUNDS.plan.learner, ROUNDS.plan.recipe
    params = learner.init(jax.random.key(1), 1, 2)
    target = learner.init_target(params)
    made = contributed(recipe, (params, target, None), canary)
    at, batch = params, jax.tree.map(lambda leaf: leaf[None], canary)
    for _ in range(3):
        by = mean_gradient(learner, at, target, batch, jax.random.key(0))
        at = jax.tree.map(lambda old, one: old - 0.01 * one, at, by)
    for ours, last, first in zip(*map(jax.tree.leaves, (made, at, params)), strict=True):
        np.testing.assert_allclose(ours, first - last, rtol=1e-5)


def test_what_is_not_trained_does_not_count() -> None:
    canary, _ = training_transitions(EVERYBODY.chain)
    learner, shape = Bc(hidden_sizes=(3,)), StepShape(Solve(transitions=4), 8, True)
    recipe = replace(EVERYBODY.plan.recipe, learner=learner, private_shape=shape)
    params = learner.init(jax.random.key(1), 1, 2)
    hidden, last = next(iter(contributed(recipe, (params, {}, None), canary).values()))
    assert not any(jnp.any(leaf) for leaf in hidden)
    assert any(jnp.any(leaf) for leaf in last)


def test_an_optimiser_of_which_nothing_is_known_is_refused() -> None:
    mine = Optimiser("mine", optax.identity())
    plan = replace(EVERYBODY.plan, settings=replace(EVERYBODY.plan.settings, optimiser=mine))
    steps = steps_of(plan, 1, 0)
    runs = runs_of([plan], same_public(noise_keys([0])), steps)
    looking = Looking(plan, *training_transitions(EVERYBODY.chain))
    with pytest.raises(QuorumError, match="sgd, adam, momentum only"):
        watched(looking, runs, steps, (1, 2), training_data(EVERYBODY.chain, True))


def test_a_planted_bug_is_gone_afterwards_and_there_is_none_without_a_name() -> None:
    def there(bug: Bug) -> list[Any]:
        return [vars(patch.owner)[patch.name] for patch in bug.patches]

    before = [there(bug) for bug in BUGS.values()]
    for name, bug in BUGS.items():
        with planted(name):
            assert there(bug) == [patch.in_its_place for patch in bug.patches]
        with pytest.raises(ZeroDivisionError), planted(name):
            raise ZeroDivisionError
    assert [there(bug) for bug in BUGS.values()] == before
    with pytest.raises(QuorumError, match="planted bug"), planted("nothing"):
        pass
