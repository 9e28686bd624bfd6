"""The audit that needs nothing but the product: every mechanism on its own worst case."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, NamedTuple

from quorum_rl.audit.chain import Chain
from quorum_rl.audit.finding import ACTIONS, Finding
from quorum_rl.audit.pipeline import (
    audit_pipeline,
    release_first,
    small_case,
    training_first,
)
from quorum_rl.audit.planted import planted
from quorum_rl.audit.releases import DEVIATOR, LEAVER, audit_release
from quorum_rl.audit.trainings import (
    EVERYBODY,
    FEW,
    SAMPLED,
    audit_in_one_run,
    audit_training,
)
from quorum_rl.audit.workers import spread
from quorum_rl.privacy import Event, event_to_json

Part = Literal["release", "training", "one-run", "pipeline"]

QUERY_NOISE: Final = "query-noise-halved"
RELEASE_BUGS: Final = {QUERY_NOISE: LEAVER, "offset-halved": DEVIATOR}
"""Those of the release, with the case that shows them; the others show in EVERYBODY's training."""

WITHOUT_BUGS: Final = (*RELEASE_BUGS, "noise-halved")
"""Their audits are all that find bugs, and must find nothing where there is none."""


@dataclass(frozen=True)
class Sizes:
    """How many runs of each kind the parts have. With these every planted bug is caught."""

    release: int = 30_000
    lone_release: int = 80_000  # that of the deviator, who is seldom drawn and let through
    training: int = 40_000
    pipeline: int = 1000
    training_first: int = 1000
    release_first: int = 1000
    canaries: int = 1000

    @classmethod
    def all(cls, runs: int) -> "Sizes":
        """The same number everywhere."""
        return cls(runs, runs, runs, runs, runs, runs)

    @classmethod
    def full(cls) -> "Sizes":
        """As many as a GPU and sixteen cores make in minutes."""
        return cls(
            release=600_000,
            lone_release=400_000,
            training=4_000_000,
            pipeline=20_000,
            training_first=60_000,
            release_first=50_000,
            canaries=5000,
        )


def audited(part: Part, sizes: Sizes, seed: int, workers: int = 1) -> Iterator[Finding]:
    """Everything that is known of one part."""
    if part == "release":
        yield audit_release(LEAVER, sizes.release, seed, workers)
        yield audit_release(DEVIATOR, sizes.lone_release, seed, workers)
    elif part == "training":
        for training in (EVERYBODY, SAMPLED):
            yield from audit_training(training, sizes.training, seed)
    elif part == "one-run":
        yield audit_in_one_run(EVERYBODY, sizes.canaries, seed)
    else:
        for case, runs in (
            (training_first(), sizes.training_first),
            (release_first(), sizes.release_first),
            (small_case(), sizes.pipeline),
        ):
            yield from audit_pipeline(case, runs, seed, workers=workers)


def described(part: Part) -> dict[str, Any]:
    """The cases of one part as plain facts: who takes part, and what is charged for."""
    if part == "release":
        return {one.name: _facts(one.chain, [one.event]) for one in (LEAVER, DEVIATOR)}
    if part == "training":
        return {one.name: _facts(FEW, one.plan.events) for one in (EVERYBODY, SAMPLED)}
    if part == "one-run":
        return {EVERYBODY.name: {"events": [event_to_json(one) for one in EVERYBODY.plan.events]}}
    cases = training_first(), release_first(), small_case()
    return {one.name: one.to_json() for one in cases}


def _facts(chain: Chain, events: Iterable[Event]) -> dict[str, Any]:
    return {"chain": asdict(chain), "events": [event_to_json(one) for one in events]}


class Trial(NamedTuple):
    """The audit that must find a bug, with the bug or, to see that it accuses nobody, without."""

    bug: str
    is_planted: bool
    sizes: Sizes
    seed: int


def tried(trial: Trial) -> list[Finding]:
    """What one audit of a self-test finds.

    Raises:
        QuorumError: if there is no such bug.
    """
    with planted(trial.bug) if trial.is_planted else nullcontext():
        if trial.bug in RELEASE_BUGS:
            runs = trial.sizes.release if trial.bug == QUERY_NOISE else trial.sizes.lone_release
            return [audit_release(RELEASE_BUGS[trial.bug], runs, trial.seed)]
        return audit_training(EVERYBODY, trial.sizes.training, trial.seed)


def caught(findings: Iterable[Finding]) -> bool:
    """Whether an audit accuses: by what came out or the white box, and without assumptions."""
    return any(one.refuted and not one.note and one.threat != ACTIONS for one in findings)


def outcome(trial: Trial, findings: Sequence[Finding]) -> dict[str, Any]:
    """What one audit of a self-test came to, as plain facts."""
    return {
        "seed": trial.seed,
        "claimed": findings[0].claimed if findings else None,
        "certain": [one.certain for one in findings],
        "caught": caught(findings),
    }


def all_tried(trials: Sequence[Trial], workers: int = 1) -> list[list[Finding]]:
    """What every trial finds: those of releases in several processes, those of training here."""
    released = [one for one in trials if one.bug in RELEASE_BUGS]
    found = dict(zip(released, spread(tried, released, workers), strict=True))
    return [found[one] if one in found else tried(one) for one in trials]
