"""The audit that needs nothing but the product: every mechanism on its own worst case."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

from quorum_rl.audit.finding import Finding
from quorum_rl.audit.pipeline import audit_pipeline, small_case
from quorum_rl.audit.planted import planted
from quorum_rl.audit.releases import DEVIATOR, LEAVER, audit_release
from quorum_rl.audit.trainings import EVERYBODY, SAMPLED, audit_in_one_run, audit_training

Part = Literal["release", "training", "pipeline"]


@dataclass(frozen=True)
class Sizes:
    """How many runs of each kind the parts have. With these every planted bug is caught."""

    release: int = 30_000
    lone_release: int = 80_000  # that of the deviator, who is seldom drawn and let through
    training: int = 40_000
    pipeline: int = 1000
    canaries: int = 1000

    @classmethod
    def all(cls, runs: int) -> "Sizes":
        """The same number everywhere."""
        return cls(runs, runs, runs, runs)


def audited(part: Part, sizes: Sizes, seed: int) -> Iterator[Finding]:
    """Everything that is known of one part."""
    if part == "release":
        yield audit_release(LEAVER, sizes.release, seed)
        yield audit_release(DEVIATOR, sizes.lone_release, seed)
    elif part == "training":
        for training in (EVERYBODY, SAMPLED):
            yield from audit_training(training, sizes.training, seed)
        if find_spec("jax_privacy") is not None:
            yield audit_in_one_run(EVERYBODY, sizes.canaries, seed)
    else:
        yield from audit_pipeline(small_case(), sizes.pipeline, seed)


def audit_with_planted(name: str, sizes: Sizes, seed: int) -> list[Finding]:
    """What the audit of that stage finds while a bug is planted: a claim must be refuted.

    Raises:
        QuorumError: if there is no such bug.
    """
    with planted(name):
        if name == "query-noise-halved":
            return [audit_release(LEAVER, sizes.release, seed)]
        if name == "offset-halved":
            return [audit_release(DEVIATOR, sizes.lone_release, seed)]
        return audit_training(EVERYBODY, sizes.training, seed)
