"""The audit that needs nothing but the product: every mechanism on its own worst case."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Literal, NamedTuple

from quorum_rl.audit.chain import Chain
from quorum_rl.audit.finding import ACTIONS, Finding
from quorum_rl.audit.last_bits import ONE_STEP, audit_last_bits
from quorum_rl.audit.pipeline import (
    audit_pipeline,
    release_first,
    small_case,
    training_first,
)
from quorum_rl.audit.planted_bugs import planted
from quorum_rl.audit.releases import DEVIATOR, LEAVER, audit_release
from quorum_rl.audit.trainings import (
    EVERYBODY,
    NETWORKS,
    ROUNDS,
    SAMPLED,
    STEADY,
    WIDE,
    TrainingCase,
    audit_in_one_run,
    audit_training,
)
from quorum_rl.audit.workers import spread
from quorum_rl.privacy import Event, event_to_json

AuditPart = Literal["release", "training", "one-run", "pipeline"]

TRAININGS: Final = (EVERYBODY, SAMPLED, ROUNDS, STEADY, NETWORKS, WIDE)
"""The last one has many parameters, and shows what it shows in few runs."""

MOST_WIDE: Final = 20_000  # trainings of thousands of parameters at once

QUERY_NOISE: Final = "query-noise-halved"
RELEASE_BUGS: Final = {QUERY_NOISE: LEAVER, "offset-halved": DEVIATOR}
LAST_BITS: Final = "lattice-off"
TRAINING_BUGS: Final = {
    "noise-halved": EVERYBODY,
    "noise-reused": STEADY,
    "clipping-off": EVERYBODY,
    "clipped-apart": NETWORKS,
    "divided-by-drawn": WIDE,
    "coin-accounting": EVERYBODY,
}
"""All bugs but the one that only last bits show, with the cases that show them."""

WITHOUT_BUGS: Final = (
    *RELEASE_BUGS,
    "noise-halved",
    "noise-reused",
    "clipped-apart",
    "divided-by-drawn",
    LAST_BITS,
)
"""Their audits are all that find bugs, and must find nothing where there is none."""


@dataclass(frozen=True)
class Sizes:
    """How many runs of each kind the parts have. With these every planted bug is caught."""

    release: int = 30_000
    lone_release: int = 80_000  # that of the deviator, who is seldom drawn and let through
    training: int = 40_000
    wide: int = 2000  # trainings of many parameters
    pipeline: int = 1000
    training_first: int = 1000
    release_first: int = 1000
    canaries: int = 1000

    @classmethod
    def all(cls, runs: int) -> "Sizes":
        """The same number everywhere, as far as memory has room for it."""
        each = {one.name: runs for one in fields(cls) if one.name != "canaries"}
        return cls(**each | {"wide": min(runs, MOST_WIDE)})

    @classmethod
    def full(cls) -> "Sizes":
        """As many as a GPU and sixteen cores make in minutes."""
        return cls(
            release=600_000,
            lone_release=400_000,
            training=4_000_000,
            wide=MOST_WIDE,
            pipeline=20_000,
            training_first=60_000,
            release_first=50_000,
            canaries=5000,
        )


def audited(part: AuditPart, sizes: Sizes, seed: int, workers: int = 1) -> Iterator[Finding]:
    """Everything that is known of one part."""
    if part == "release":
        yield audit_release(LEAVER, sizes.release, seed, workers)
        yield audit_release(DEVIATOR, sizes.lone_release, seed, workers)
    elif part == "training":
        for training in TRAININGS:
            yield from audit_training(training, _runs(training, sizes), seed)
        yield audit_last_bits(sizes.wide, seed)
    elif part == "one-run":
        yield audit_in_one_run(EVERYBODY, sizes.canaries, seed)
    else:
        for case, runs in (
            (training_first(), sizes.training_first),
            (release_first(), sizes.release_first),
            (small_case(), sizes.pipeline),
        ):
            yield from audit_pipeline(case, runs, seed, workers=workers)


def _runs(case: TrainingCase, sizes: Sizes) -> int:
    return sizes.wide if case is WIDE else sizes.training


def described(part: AuditPart) -> dict[str, Any]:
    """The cases of one part as plain facts: who takes part, and what is charged for."""
    if part == "release":
        return {one.name: _facts(one.chain, [one.event]) for one in (LEAVER, DEVIATOR)}
    if part == "training":
        return {one.name: one.to_json() for one in (*TRAININGS, ONE_STEP)}
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
        if trial.bug == LAST_BITS:
            return [audit_last_bits(trial.sizes.wide, trial.seed)]
        case = TRAINING_BUGS[trial.bug]
        return audit_training(case, _runs(case, trial.sizes), trial.seed)


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
