"""`quorum audit`: what an adversary can show that was lost, beside what was claimed."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, get_args

from quorum_rl import audit, pipeline
from quorum_rl.cli.output import (
    check_new_file,
    check_picture,
    save_picture,
    show_facts,
    start_jax,
)
from quorum_rl.errors import QuorumError, at_least, require
from quorum_rl.files import write_json

AuditPart = Literal["release", "training", "pipeline"]
REFUTED: Final = 1  # exit status


@dataclass(frozen=True)
class Audit:
    """Attack the guarantee: many runs with and without one expert made to stand out, and a lower
    bound on epsilon that holds with 95% confidence.

    Without flags: release, training and the whole pipeline on the worst cases that are known, in
    a few minutes. Exit status 1 if a claim is refuted (with 99.9% confidence).

    Example: quorum audit --only training --runs 20000
    """

    only: AuditPart | None = None
    """Audit this part alone."""
    runs: int | None = None
    """Runs of each kind, with the expert and without; each part has a default of its own."""
    full: bool = False
    """Instead of --runs: as many as a GPU and sixteen cores make in minutes."""
    workers: int = 1
    """Processes that share the releases, which a GPU does not help."""
    planted: str | None = None
    """Self-test: plant this bug and see that the audit finds it (exit status 1 if not). One of
    noise-halved, noise-reused, clipping-off, clipped-apart, divided-by-drawn, lattice-off,
    coin-accounting, offset-halved, query-noise-halved, or all."""
    repeats: int = 1
    """Self-test: again with so many seeds, from --seed on; and as often without the bugs, where
    nothing may be found."""
    seed: int = 0
    """The same numbers again: audits look at synthetic experts, so nothing is given away."""
    out: Path | None = None
    """Write what was found to this file, as JSON."""
    picture: Path | None = None
    """Draw it: lower bounds beside claims."""
    json: bool = False
    """Print one JSON object."""
    overwrite: bool = False
    """Replace files that exist."""
    commit: str | None = None
    """What to note as the commit, where the source is not in git."""

    common: ClassVar = ("only", "runs", "full", "planted", "workers", "seed", "out", "picture",
                        "json", "overwrite")  # fmt: skip

    def run(self) -> None:
        self._check()
        start_jax()
        if self.planted is not None:
            self._self_test(self.planted)
        else:
            found = self._of_everything()
            if self.picture is not None:
                save_picture(audit.draw_findings(found), self.picture)
            self._tell(*_findings_in_words(found))
            if any(finding.refuted for finding in found):
                sys.exit(REFUTED)

    def _check(self) -> None:
        """Refuse before the work what would fail after it."""
        self._check_flags()
        if self.out is not None:
            check_new_file(self.out, overwrite=self.overwrite)
        if self.picture is not None:
            check_picture(self.picture)
            check_new_file(self.picture, overwrite=self.overwrite)
        least_of = {"runs": 16, "workers": 1, "repeats": 1}
        for name, least in least_of.items():
            value = getattr(self, name)
            if value is not None:
                require(f"--{name}", value, at_least(least))

    def _check_flags(self) -> None:
        """Refuse flags that would have no effect beside others."""
        wrong = ("only", "picture") if self.planted is not None else ("repeats",)
        beside = "beside" if self.planted is not None else "without"
        for name in wrong:
            if getattr(self, name) != getattr(type(self), name):
                raise QuorumError(f"--{name} has no effect {beside} --planted: leave it out.")
        if self.full and self.runs is not None:
            raise QuorumError("--full and --runs both say how many runs: give one of them.")

    def _of_everything(self) -> "list[audit.Finding]":
        parts: tuple[AuditPart, ...] = get_args(AuditPart) if self.only is None else (self.only,)
        sizes = self._sizes()
        cases = {name: facts for part in parts for name, facts in audit.described(part).items()}
        result = self._result(self.only or "audit", sizes=asdict(sizes), cases=cases)
        findings: list[audit.Finding] = []
        for part in parts:
            self._tell(f"auditing: {part} ...")
            findings += audit.audited(part, sizes, self.seed, self.workers)
        self._keep(result, {"findings": [finding.to_json() for finding in findings]})
        return findings

    def _sizes(self) -> "audit.AuditSizes":
        if self.full:
            return audit.AuditSizes.full()
        return audit.AuditSizes() if self.runs is None else audit.AuditSizes.all(self.runs)

    def _self_test(self, name: str) -> None:
        """Plant bugs, each by itself; all of them must be found."""
        names = list(audit.BUGS) if name == "all" else [name]
        for bug in map(audit.bug_named, names):
            self._tell(f"SELF-TEST, a bug is planted on purpose: {bug.said}")
        sizes, seeds = self._sizes(), range(self.seed, self.seed + self.repeats)
        result = self._result("planted", sizes=asdict(sizes), seeds=list(seeds))
        facts, first = audit.self_test(names, sizes, seeds, self.workers)
        self._keep(result, facts)
        for findings in first.values():
            self._tell(*_findings_in_words(findings))
        missed = [bug for bug in names if facts["caught"][bug] < self.repeats]
        self._tell(f"missed: {', '.join(missed)}" if missed else f"caught: {', '.join(names)}")
        if missed:
            sys.exit(REFUTED)

    def _result(self, stage: str, **configuration: Any) -> "pipeline.Result":
        """What will be found, with all that is needed to find it again; its time begins now."""
        return pipeline.Result("chain", stage, {"seed": self.seed} | configuration, self.commit)

    def _keep(self, result: "pipeline.Result", found: dict[str, Any]) -> None:
        """Print or write down what was found, for programs."""
        facts = result.facts(found)
        if self.out is not None:
            write_json(self.out, facts)
        if self.json:
            show_facts(facts, as_json=True)

    def _tell(self, *sentences: object) -> None:
        if not self.json:
            show_facts({}, *sentences, as_json=False)


def _findings_in_words(findings: "Sequence[audit.Finding]") -> Iterator[object]:
    """For people: what was claimed, and what is certain at least."""
    from rich.table import Table

    table = Table("what", "threat", "claimed ε", "ε at least", "δ", "runs", "claim")
    for finding in findings:
        table.add_row(
            finding.what,
            finding.threat.split(":")[0],
            f"{finding.claimed:.3f}",
            f"{finding.bound.epsilon:.3f}",
            f"{finding.bound.delta:g}",
            f"{finding.runs:,}",
            ("REFUTED" if finding.refuted else "stands" if finding.refutable else "too few runs")
            + (" *" if finding.note else ""),
        )
    yield table
    yield from dict.fromkeys(finding.threat for finding in findings)
    yield from dict.fromkeys(f"canary of the {each.what}: {each.canary}" for each in findings)
    yield from dict.fromkeys(f"* {finding.note}" for finding in findings if finding.note)
    yield (
        "Lower bounds hold with 95% confidence; a claim is refuted if it is exceeded with 99.9%. A "
        "low bound proves nothing: another attack may be better."
    )
    hopeless = [finding for finding in findings if not finding.refutable]
    for finding in hopeless:
        yield (
            f"{finding.what}, {finding.threat.split(':')[0]}: this claim cannot be refuted with so "
            f"few runs, which could show at most {finding.ceiling:.3f}"
        )
    if hopeless:
        yield "Without assumptions a claim of ε takes more than 10·exp(ε) runs."
