"""What one program of a sweep does: train its trials together, and judge them alike."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, Protocol

import jax

from quorum_rl.budget import SeededEntropy
from quorum_rl.envs import AnyWorld, get_world
from quorum_rl.errors import QuorumError
from quorum_rl.pipeline import FitPlan, Progress, Study, policy_of
from quorum_rl.policy import Policy
from quorum_rl.sweep.judge import agreement, judged_on
from quorum_rl.sweep.options import SweepOptions
from quorum_rl.sweep.trials import Program, Trial
from quorum_rl.types import Released


@dataclass(frozen=True)
class Inputs:
    """What every program of a sweep learns from and is judged by. SENSITIVE.

    Without `keys` seed s of every trial has the same keys and a release of its own, as in a
    comparison. With them, one secret for each trial, there is one seed, and all trials learn from
    `released` where their plan has a release: it was made before.

    The score is a trial's mean return in the world that was asked for, which is public, and so are
    its episodes; or how often it does what prefixes do that were released and paid for
    (`judged_on`).
    """

    asked: SweepOptions
    seeds: range
    keys: tuple[int, ...] | None = None
    released: Released | None = None

    @property
    def judged_on(self) -> Released | None:
        return judged_on(self.asked.judge, self.asked.world, self.released)


@dataclass(frozen=True)
class TrialResult:
    """How a trial did, seed by seed: scores from 0 (random) to 1 (the world's reference policy), or
    the share of released actions that it takes too, and then no returns.

    Without scores it could not be run, and `reason` says why.
    """

    number: int
    scores: tuple[float, ...] = ()
    returns: tuple[float, ...] = ()
    released: tuple[int, ...] = ()
    reason: str = ""

    @property
    def score(self) -> float:
        """The mean over the seeds; of what could not be run, worse than any."""
        return sum(self.scores) / len(self.scores) if self.scores else float("-inf")


@dataclass(frozen=True)
class Found:
    """What a program found: its trials in order, and the policy of the best with its first seed."""

    program: int
    judged: tuple[TrialResult, ...]
    best: Policy | None


Kept = tuple[TrialResult, Policy | None]
"""How a trial did, and its policy with the first seed."""


class Spread(Protocol):
    """Where programs run: what each found comes in whatever order they end."""

    def __call__(
        self, inputs: Inputs, programs: Sequence[Program], progress: Progress | None
    ) -> Iterator[Found]: ...


def one_by_one(
    inputs: Inputs, programs: Sequence[Program], progress: Progress | None
) -> Iterator[Found]:
    """On this machine, with all its devices."""
    for program in programs:
        yield found_by(inputs, program, progress)


def found_by(inputs: Inputs, program: Program, progress: Progress | None = None) -> Found:
    """Train a program's trials and judge them.

    Guarantee: a function of its arguments, so a program that is run again, wherever that is, draws
    the same noise and tells nothing new.
    """
    asked = inputs.asked
    delta = asked.common.delta
    study = Study(asked.experts, asked.log, _world(asked), delta, inputs.seeds)
    kept: list[Kept] = []
    able = []
    for trial in program.trials:
        reason = _refused(study, inputs, trial.feasible)
        if reason is None:
            able.append(trial)
        else:
            kept.append((TrialResult(trial.number, reason=reason), None))
    kept += _judged(study, inputs, able, progress) if able else []
    kept.sort(key=lambda pair: pair[0].number)
    _, policy = max(kept, key=lambda pair: pair[0].score)
    return Found(program.number, tuple(result for result, _ in kept), policy)


def _world(asked: SweepOptions) -> AnyWorld:
    """Where trials are judged; its sizes alone where they are judged on released prefixes."""
    if asked.world is not None:
        return get_world(asked.world)
    nowhere: Any = SimpleNamespace(name="", spaces=asked.log.declared)  # which has both sizes
    made: AnyWorld = nowhere
    return made


def _refused(study: Study, inputs: Inputs, plan: FitPlan) -> str | None:
    """Make the release of a trial; why it cannot be run, if nothing comes out of that."""
    if plan.release is not None and inputs.keys is not None:
        assert inputs.released is not None  # it was made and paid for before
        study.use_release(plan.release, inputs.released)
    elif plan.release is not None:
        try:
            study.check_releases(plan)
        except QuorumError as error:
            return str(error)
    return None


def _judged(
    study: Study, inputs: Inputs, trials: Sequence[Trial], progress: Progress | None
) -> list[Kept]:
    """As one program; where one of the trials diverges, in halves until it stands alone."""
    try:
        return _together(study, inputs, trials, progress)
    except QuorumError as error:
        if len(trials) == 1:
            return [(TrialResult(trials[0].number, reason=str(error)), None)]
        half = len(trials) // 2
        halves = trials[:half], trials[half:]
        return [pair for part in halves for pair in _judged(study, inputs, part, progress)]


def _together(
    study: Study, inputs: Inputs, trials: Sequence[Trial], progress: Progress | None
) -> list[Kept]:
    plans = [trial.feasible for trial in trials]
    learner = plans[0].learner
    if inputs.keys is not None:
        own = [SeededEntropy(inputs.keys[trial.number]) for trial in trials]
        study = replace(study, entropy_of=lambda number, _: own[number])
    policies = study.trained(plans, progress)
    returns: list[tuple[float, ...]] = [() for _ in trials]
    if inputs.judged_on is not None:
        scores = [agreement(learner, last, inputs.judged_on) for *_, last in policies]
    else:
        results = study.judged([learner] * len(policies), policies, inputs.asked.episodes)
        scores = [tuple(map(float, each)) for _, each in results]
        returns = [tuple(map(float, each.mean(axis=1))) for each, _ in results]
    kept: list[Kept] = []
    for trial, (*_, last), each, earned in zip(trials, policies, scores, returns, strict=True):
        first = jax.tree.map(lambda leaf: leaf[0], last)
        result = TrialResult(trial.number, each, earned, study.released_by(trial.feasible))
        world, named = study.world.name or None, study.log.declared.dictionary
        kept.append((result, policy_of(learner, first, world=world, dictionary=named)))
    return kept
