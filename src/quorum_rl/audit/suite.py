"""The audit that needs nothing but the product: every mechanism on its own worst case, and the
self-test, whose planted bugs must be found."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, NamedTuple

from quorum_rl.audit.audits import (
    audit_last_bits,
    audit_pipeline,
    audit_release,
    audit_training,
)
from quorum_rl.audit.cases import (
    DEVIATOR,
    EVERYBODY,
    LEAVER,
    NETWORKS,
    ONE_STEP,
    ROUNDS,
    SAMPLED,
    STEADY,
    WIDE,
    Case,
    pipelines,
)
from quorum_rl.audit.finding import ACTIONS, Finding
from quorum_rl.audit.planted_bugs import planted
from quorum_rl.audit.releases import spread

AuditPart = Literal["release", "training", "pipeline"]

MOST_WIDE: Final = 20_000  # trainings of thousands of parameters at once
WORST_CASES: Final = {
    "query-noise-halved": LEAVER,
    "offset-halved": DEVIATOR,
    "noise-halved": EVERYBODY,
    "noise-reused": STEADY,
    "clipping-off": EVERYBODY,
    "clipped-apart": NETWORKS,
    "divided-by-drawn": WIDE,
    "lattice-off": ONE_STEP,
    "coin-accounting": EVERYBODY,
}
"""The case that shows each planted bug."""

WITHOUT_BUGS: Final = tuple(
    bug for bug in WORST_CASES if bug not in ("clipping-off", "coin-accounting")
)
"""Their audits are all that find bugs, and must find nothing where there is none."""


@dataclass(frozen=True)
class AuditSizes:
    """How many runs of each kind the parts have. With these every planted bug is caught."""

    release: int = 30_000
    lone_release: int = 80_000  # that of the deviator, who is seldom drawn and let through
    training: int = 40_000
    wide: int = 2000  # trainings of many parameters
    pipeline: int = 1000
    training_first: int = 1000
    release_first: int = 1000

    @classmethod
    def all(cls, runs: int) -> "AuditSizes":
        """The same number everywhere, as far as memory has room for it."""
        each = {field.name: runs for field in fields(cls)}
        return cls(**each | {"wide": min(runs, MOST_WIDE)})

    @classmethod
    def full(cls) -> "AuditSizes":
        """As many as a GPU and sixteen cores make in minutes."""
        return cls(
            release=600_000,
            lone_release=400_000,
            training=4_000_000,
            wide=MOST_WIDE,
            pipeline=20_000,
            training_first=60_000,
            release_first=50_000,
        )


def audited(part: AuditPart, sizes: AuditSizes, seed: int, workers: int = 1) -> Iterator[Finding]:
    """Everything that is known of one part."""
    if part == "pipeline":
        counts = sizes.training_first, sizes.release_first, sizes.pipeline
        for case, runs in zip(pipelines(), counts, strict=True):
            yield from audit_pipeline(case, runs, seed, workers=workers)
    else:
        for case in _cases(part):
            yield from _alone(case, sizes, seed, workers)


def _cases(part: AuditPart) -> Sequence[Case]:
    if part == "release":
        return LEAVER, DEVIATOR
    if part == "training":
        return EVERYBODY, SAMPLED, ROUNDS, STEADY, NETWORKS, WIDE, ONE_STEP
    return pipelines()


def _alone(case: Case, sizes: AuditSizes, seed: int, workers: int = 1) -> list[Finding]:
    """The audit of one release or training by itself."""
    if case.plan.release is not None:
        runs = sizes.lone_release if case is DEVIATOR else sizes.release
        return [audit_release(case, runs, seed, workers)]
    if case is ONE_STEP:
        return [audit_last_bits(sizes.wide, seed)]
    return audit_training(case, sizes.wide if case is WIDE else sizes.training, seed)


def described(part: AuditPart) -> dict[str, Any]:
    """The cases of one part as plain facts: who takes part, and what is charged for."""
    return {case.name: case.to_json() for case in _cases(part)}


class SelfTest(NamedTuple):
    """The audit that must find a bug, with the bug or, to see that it accuses nobody, without."""

    bug: str
    is_planted: bool
    sizes: AuditSizes
    seed: int


def tried(test: SelfTest) -> list[Finding]:
    """What one audit of a self-test finds.

    Raises:
        QuorumError: if there is no such bug.
    """
    with planted(test.bug) if test.is_planted else nullcontext():
        return _alone(WORST_CASES[test.bug], test.sizes, test.seed)


def caught(findings: Iterable[Finding]) -> bool:
    """Whether an audit accuses: by what came out or the white box, and without assumptions."""
    return any(
        finding.refuted and not finding.note and finding.threat != ACTIONS for finding in findings
    )


def self_test(
    bugs: Sequence[str], sizes: AuditSizes, seeds: Sequence[int], workers: int = 1
) -> tuple[dict[str, Any], dict[str, list[Finding]]]:
    """Plant bugs, each by itself; with several seeds look as often where there is none.

    Returns how often each was caught and whether anybody was accused without, as plain facts; and
    what was found of each bug with the first seed.
    """
    tests = [SelfTest(bug, True, sizes, seed) for bug in bugs for seed in seeds]
    if len(seeds) > 1:
        tests += [SelfTest(bug, False, sizes, seed) for bug in WITHOUT_BUGS for seed in seeds]
    found = _all_tried(tests, workers)

    def outcomes(names: Sequence[str], is_planted: bool) -> dict[str, list[dict[str, Any]]]:
        return {
            bug: [_outcome(*each) for each in found.items() if each[0][:2] == (bug, is_planted)]
            for bug in names
        }

    first = {bug: found[SelfTest(bug, True, sizes, seeds[0])] for bug in bugs}
    with_bugs = outcomes(bugs, True)
    sound = [finding for test in found if not test.is_planted for finding in found[test]]
    facts = {
        "planted": {bug: [finding.to_json() for finding in first[bug]] for bug in bugs},
        "repeats": len(seeds),
        "caught": {bug: sum(each["caught"] for each in with_bugs[bug]) for bug in bugs},
        "outcomes": with_bugs,
        "without bugs": {
            "findings": len(sound),
            "accused": sum(finding.refuted for finding in sound),
            "outcomes": outcomes(WITHOUT_BUGS, False),
        },
    }
    return facts, first


def _outcome(test: SelfTest, findings: Sequence[Finding]) -> dict[str, Any]:
    """What one audit of a self-test came to, as plain facts."""
    return {
        "seed": test.seed,
        "claimed": findings[0].claimed if findings else None,
        "certain": [finding.certain for finding in findings],
        "caught": caught(findings),
    }


def _all_tried(tests: Sequence[SelfTest], workers: int) -> dict[SelfTest, list[Finding]]:
    """What every test finds: those of releases in several processes, those of training here."""
    released = [test for test in tests if WORST_CASES[test.bug].plan.release is not None]
    found = dict(zip(released, spread(tried, released, workers), strict=True))
    return {test: found[test] if test in found else tried(test) for test in tests}
