"""What one program of a sweep does: train its trials together, and judge them alike."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, Protocol

import jax

from quorum_rl.budget import SeededEntropy
from quorum_rl.envs import AnyWorld, get_world
from quorum_rl.errors import QuorumError
from quorum_rl.experts import LoggedExperts
from quorum_rl.logs import Demonstrations
from quorum_rl.pipeline import Progress, Study, policy_of
from quorum_rl.policy import Policy
from quorum_rl.sweep.judge import agreement
from quorum_rl.sweep.trials import Program, Trial
from quorum_rl.types import Released


@dataclass(frozen=True)
class Inputs:
    """What every program of a sweep learns from and is judged by. SENSITIVE.

    Without `keys` seed s of every trial has the same keys and a release of its own, as in a
    comparison. With them, one secret for each trial, there is one seed, and all trials learn from
    `released` where their plan has a release: it was made before.

    The score is a trial's mean return in `world`, which is public, and so are its episodes; or how
    often it does what prefixes do that were released and paid for (`judged_on`).
    """

    experts: LoggedExperts | None
    log: Demonstrations
    world: str | None
    delta: float
    episodes: int
    seeds: range
    keys: tuple[int, ...] | None = None
    released: Released | None = None
    judged_on: Released | None = None


@dataclass(frozen=True)
class Judged:
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
    judged: tuple[Judged, ...]
    best: Policy | None


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
    study = Study(inputs.experts, inputs.log, _world(inputs), inputs.delta, inputs.seeds)
    kept, able = [], []
    for trial in program.trials:
        reason = _refused(study, inputs, trial)
        if reason is None:
            able.append(trial)
        else:
            kept.append(_Kept(Judged(trial.number, reason=reason)))
    kept += _judged(study, inputs, able, progress) if able else []
    kept.sort(key=lambda one: one.judged.number)
    best = max(kept, key=lambda one: one.judged.score)
    return Found(program.number, tuple(one.judged for one in kept), best.policy)


def _world(inputs: Inputs) -> AnyWorld:
    """Where trials are judged; its sizes alone where they are judged on released prefixes."""
    if inputs.world is not None:
        return get_world(inputs.world)
    declared = inputs.log.declared
    sizes: Any = SimpleNamespace(
        observation_size=declared.observation_size, action_count=declared.action_count
    )
    nowhere: Any = SimpleNamespace(name="", spaces=sizes)
    made: AnyWorld = nowhere
    return made


@dataclass(frozen=True)
class _Kept:
    judged: Judged
    policy: Policy | None = field(default=None, repr=False)


def _refused(study: Study, inputs: Inputs, trial: Trial) -> str | None:
    """Make the release of a trial; why it cannot be run, if nothing comes out of that."""
    assert trial.plan is not None  # or it would be in no program
    release = trial.plan.release
    if release is None:
        return None
    if inputs.keys is not None:
        assert inputs.released is not None  # it was made and paid for before
        study.use_release(release, inputs.released)
        return None
    try:
        study.check_releases(trial.plan)
    except QuorumError as error:
        return str(error)
    return None


def _judged(
    study: Study, inputs: Inputs, trials: Sequence[Trial], progress: Progress | None
) -> list[_Kept]:
    """As one program; where one of the trials diverges, in halves until it stands alone."""
    try:
        return _together(study, inputs, trials, progress)
    except QuorumError as error:
        if len(trials) == 1:
            return [_Kept(Judged(trials[0].number, reason=str(error)))]
        half = len(trials) // 2
        return [
            *_judged(study, inputs, trials[:half], progress),
            *_judged(study, inputs, trials[half:], progress),
        ]


def _together(
    study: Study, inputs: Inputs, trials: Sequence[Trial], progress: Progress | None
) -> list[_Kept]:
    plans = [trial.plan for trial in trials if trial.plan is not None]
    learner = plans[0].learner
    if inputs.keys is not None:
        own = [SeededEntropy(inputs.keys[trial.number]) for trial in trials]
        study = replace(study, entropy_of=lambda number, _: own[number])
    policies = study.trained(plans, progress)
    if inputs.judged_on is not None:
        scores = [agreement(learner, last, inputs.judged_on) for *_, last in policies]
        returns: list[tuple[float, ...]] = [() for _ in trials]
    else:
        results = study.judged([learner] * len(policies), policies, inputs.episodes)
        scores = [tuple(map(float, each)) for _, each in results]
        returns = [tuple(map(float, each.mean(axis=1))) for each, _ in results]
    return [
        _Kept(
            Judged(trial.number, each, earned, study.released_by(plan)),
            policy_of(
                learner, jax.tree.map(lambda leaf: leaf[0], last), world=study.world.name or None
            ),
        )
        for trial, plan, (*_, last), each, earned in zip(
            trials, plans, policies, scores, returns, strict=True
        )
    ]
