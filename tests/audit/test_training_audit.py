"""The audit of training: its scores are what theory says, and it sees the bugs that are planted."""

import numpy as np
import pytest
from scipy.stats import kstest

from quorum_rl.audit.finding import ITERATES
from quorum_rl.audit.planted import BUGS, planted
from quorum_rl.audit.trainings import (
    EVERYBODY,
    SAMPLED,
    audit_in_one_run,
    audit_training,
    trained,
)
from quorum_rl.errors import QuorumError
from quorum_rl.privacy import total_epsilon
from quorum_rl.training.mechanism import PrivateStep

RUNS = 20_000  # always, so that programs are compiled once


@pytest.mark.parametrize("present", [True, False])
def test_the_scores_are_those_of_a_gaussian_mechanism(present: bool) -> None:
    """μ = √steps/σ = 1: normal, with mean ±μ²/2 and variance μ². False alarm 1e-4 each."""
    score, _ = trained(EVERYBODY.plan, RUNS, present, seed=3)
    assert kstest(score, "norm", (0.5 if present else -0.5, 1.0)).pvalue > 1e-4


def test_with_sampling_they_are_likelihood_ratios() -> None:
    """So that e to the power of each has the mean 1 without the canary; within 4.9 deviations."""
    ratio = np.exp(trained(SAMPLED.plan, RUNS, False, seed=4)[0])
    assert abs(ratio.mean() - 1) < 4.9 * ratio.std() / np.sqrt(RUNS)


@pytest.mark.parametrize("case", [EVERYBODY, SAMPLED], ids=["everybody", "sampled"])
def test_training_is_not_accused_and_the_bound_comes_close(case: object) -> None:
    """Wrongly it would be with probability 0.1% for each finding, but for the fixed seed."""
    assert isinstance(case, type(EVERYBODY))
    findings = audit_training(case, RUNS, seed=5)
    claimed = total_epsilon(case.plan.events, case.delta)
    for one in findings:
        assert one.claimed == claimed
        assert not one.refuted
    iterates, actions, *gaussian = (one.bound.epsilon for one in findings)
    assert 0.65 * claimed < iterates < claimed
    assert 0.2 * claimed < actions < iterates
    assert all(0.9 * claimed < one < claimed for one in gaussian)


@pytest.mark.parametrize("bug", ["noise-halved", "clipping-off", "coin-accounting"])
def test_a_planted_bug_is_caught(bug: str) -> None:
    with planted(bug):
        findings = audit_training(EVERYBODY, RUNS, seed=6)
    assert any(one.refuted for one in findings if one.threat == ITERATES)


def test_one_run_with_many_canaries_is_a_bound_too() -> None:
    finding = audit_in_one_run(EVERYBODY, 400, seed=7)
    assert finding.runs == 1
    assert 0.2 < finding.bound.epsilon < finding.claimed


def test_a_planted_bug_is_gone_afterwards_and_there_is_none_without_a_name() -> None:
    step = EVERYBODY.plan.private
    assert step is not None
    numbers, event = step.numbers, step.event(3)
    for bug in BUGS:
        with pytest.raises(ZeroDivisionError), planted(bug):
            raise ZeroDivisionError
    assert step.numbers == numbers
    assert step.event(3) == event
    assert isinstance(vars(PrivateStep)["numbers"], property)
    with pytest.raises(QuorumError, match="planted bug"), planted("nothing"):
        pass
