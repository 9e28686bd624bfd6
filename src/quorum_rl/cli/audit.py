"""`quorum audit`: what an adversary can show that was lost, beside what was claimed."""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, get_args

from quorum_rl.cli.output import (
    check_new_file,
    check_picture,
    check_seed,
    console,
    save_picture,
    show_facts,
    timed_bar,
)
from quorum_rl.cli.parser import Named
from quorum_rl.errors import QuorumError, at_least, require

if TYPE_CHECKING:
    from quorum_rl.audit import Attack, AuditSizes, Finding
    from quorum_rl.pipeline import Result

AuditPart = Literal["release", "training", "one-run", "pipeline"]
OWN_RUNS: Final = 200  # of a user's own configuration, where a run may take long
REFUTED: Final = 1  # exit status
MODES: Final = {"folder": "--run", "planted": "--planted", "experts": "--experts"}
GO_WITH: Final[dict[str, tuple[str | None, ...]]] = {  # None is an audit without any of MODES
    "only": (None,),
    "runs": (None, "folder", "planted"),
    "full": (None, "planted"),
    "workers": (None, "folder", "planted"),
    "trainees": ("folder",),
    "repeats": ("planted",),
    "demonstrations": ("experts",),
    "games": ("experts",),
    "epsilon": ("experts",),
    "delta": ("experts",),
    "private_steps": ("experts",),
    "diagnostics_not_private": ("experts",),
    "picture": (None, "folder", "experts"),
}


@dataclass(frozen=True)
class Audit:
    """Attack the guarantee: many runs with and without one expert made to stand out, and a lower
    bound on epsilon that holds with 95% confidence.

    Without flags: release, training and the whole pipeline on the worst cases that are known, in
    a few minutes. Exit status 1 if a claim is refuted (with 99.9% confidence).

    Example: quorum audit --run runs/cartpole --runs 200
    """

    folder: Annotated[Path | None, Named("run")] = None
    """Audit the configuration of the run in this folder, on synthetic experts of the same shape."""
    only: AuditPart | None = None
    """Audit this part alone."""
    runs: int | None = None
    """Runs of each kind, with the expert and without; each part has a default of its own. The part
    one-run has no such number: it is one run, with canaries."""
    full: bool = False
    """Instead of --runs: as many as a GPU and sixteen cores make in minutes."""
    workers: int = 1
    """Processes that share the releases, which a GPU does not help."""
    trainees: int = 8
    """With --run: how many experts training sees beside the canary. What they contribute is known
    to the adversary, so that more add nothing but time; 0 for as many as the run declares."""
    planted: str | None = None
    """Self-test: plant this bug and see that the audit finds it (exit status 1 if not). One of
    noise-halved, noise-reused, clipping-off, clipped-apart, divided-by-drawn, lattice-off,
    coin-accounting, offset-halved, query-noise-halved, or all."""
    repeats: int = 1
    """Self-test: again with so many seeds, from --seed on; and as often without the bugs, where
    nothing may be found."""
    experts: Path | None = None
    """Membership game: the experts; with --demonstrations, and not private."""
    demonstrations: Path | None = None
    """Membership game: what they did. Who took part is told from the policy of a training on half
    of them, with privacy and without."""
    games: int = 12
    """Membership game: how many."""
    epsilon: float = 5.0
    """Membership game: the epsilon of the private training."""
    delta: float = 1e-3
    """Membership game: its delta."""
    private_steps: int = 500
    """Membership game: its private steps."""
    diagnostics_not_private: bool = False
    """I know that a membership game looks at the logs without noise."""
    seed: int = 0
    """The same numbers again: audits look at synthetic experts, so nothing is given away."""
    out: Path | None = None
    """Write what was found to this file, as JSON."""
    picture: Path | None = None
    """Draw it: lower bounds beside claims, or the curves of the membership game."""
    json: bool = False
    """Print one JSON object."""
    overwrite: bool = False
    """Replace files that exist."""
    commit: str | None = None
    """What to note as the commit, where the source is not in git."""

    renamed: ClassVar = {"folder": "run"}
    common: ClassVar = ("run", "only", "runs", "full", "workers", "seed", "out", "picture", "json",
                        "overwrite")  # fmt: skip

    def run(self) -> None:
        self._check()
        from quorum_rl.distributed import prepare  # late, for it imports JAX

        prepare()
        if self.experts is not None and self.demonstrations is not None:
            self._play(self.experts, self.demonstrations)
            return
        if self.planted is not None:
            self._self_test(self.planted)
            return
        findings = self._of_run(self.folder) if self.folder is not None else self._of_everything()
        if self.picture is not None:
            from quorum_rl.audit import draw_findings

            save_picture(draw_findings(findings), self.picture)
        if not self.json:
            show_findings(findings)
        if any(finding.refuted for finding in findings):
            sys.exit(REFUTED)

    def _check(self) -> None:
        """Refuse before the work what would fail after it."""
        check_seed(self.seed)
        self._check_flags()
        if self.out is not None:
            check_new_file(self.out, overwrite=self.overwrite)
        if self.picture is not None:
            check_picture(self.picture)
            check_new_file(self.picture, overwrite=self.overwrite)
        least_of = {"runs": 16, "games": 1, "workers": 1, "repeats": 1, "trainees": 0}
        for name, least in least_of.items():
            value = getattr(self, name)
            if value is not None:
                require(f"--{name}", value, at_least(least))
        if self.experts is not None and not self.diagnostics_not_private:
            raise QuorumError(
                "a membership game trains on the logs without noise, too: add "
                "--diagnostics-not-private if these are synthetic experts or nobody else will see "
                "it."
            )

    def _check_flags(self) -> None:
        """Refuse flags that would have no effect beside others."""
        modes = [name for name in MODES if getattr(self, name) is not None]
        if len(modes) > 1:
            said = " and ".join(MODES[name] for name in modes)
            raise QuorumError(f"{said} are different audits: give one of them.")
        if (self.experts is None) != (self.demonstrations is None):
            raise QuorumError("a membership game needs --experts and --demonstrations: give both.")
        mode = modes[0] if modes else None
        for name, allowed in GO_WITH.items():
            if mode in allowed or getattr(self, name) == getattr(type(self), name):
                continue
            flag = "--" + name.replace("_", "-")
            if mode is None:
                said = " or ".join(MODES[other] for other in allowed if other is not None)
                raise QuorumError(
                    f"{flag} has no effect without {said}: add that, or leave it out."
                )
            raise QuorumError(f"{flag} has no effect beside {MODES[mode]}: leave one of them out.")
        if self.full and self.runs is not None:
            raise QuorumError("--full and --runs both say how many runs: give one of them.")
        if self.only == "one-run" and self.runs is not None:
            raise QuorumError(
                "--runs has no effect beside --only one-run, which is one run with many canaries: "
                "leave it out, or take --full for more canaries."
            )

    def _of_everything(self) -> "list[Finding]":
        from quorum_rl.audit import audited, described

        parts: tuple[AuditPart, ...] = get_args(AuditPart) if self.only is None else (self.only,)
        if self.only is None and find_spec("jax_privacy") is None:
            parts = tuple(part for part in parts if part != "one-run")
            self._tell("left out: one-run, which needs pip install 'quorum-rl[audit]'")
        sizes = self._sizes()
        cases = {name: facts for part in parts for name, facts in described(part).items()}
        result = self._result("chain", self.only or "audit", sizes=asdict(sizes), cases=cases)
        findings: list[Finding] = []
        for part in parts:
            self._tell(f"auditing: {part} ...")
            findings += audited(part, sizes, self.seed, self.workers)
        self._keep(result.facts({"findings": [finding.to_json() for finding in findings]}))
        return findings

    def _of_run(self, folder: Path) -> "list[Finding]":
        from quorum_rl.audit import audit_pipeline, case_of_run, ceiling, lower_bound

        case, runs = case_of_run(folder, self.trainees or None), self.runs or OWN_RUNS
        self._tell(case.plan.describe())
        source = "its events" if case.certified is None else "its certificate"
        self._tell(f"claimed by {source}: epsilon = {case.claimed:.4f}")
        most = ceiling(lower_bound, runs, runs, case.plan.delta)
        if most <= case.claimed:  # said before the work, which may take long
            self._tell(f"{runs:,} runs could show at most {most:.3f}: to refute it, give more.")
        result = self._result("chain", "run", runs=runs, case=case.to_json())
        with timed_bar(console(stderr=True), "releases, then steps") as progress:
            findings = audit_pipeline(case, runs, self.seed, progress, self.workers)
        self._keep(result.facts({"findings": [finding.to_json() for finding in findings]}))
        return findings

    def _sizes(self) -> "AuditSizes":
        from quorum_rl.audit import AuditSizes

        if self.full:
            return AuditSizes.full()
        return AuditSizes() if self.runs is None else AuditSizes.all(self.runs)

    def _self_test(self, name: str) -> None:
        """Plant bugs, each by itself; all of them must be found, and nothing without them."""
        from quorum_rl.audit import BUGS, WITHOUT_BUGS, SelfTest, all_tried, bug_named, outcome

        names = list(BUGS) if name == "all" else [name]
        for one in names:
            bug_named(one)
            self._tell(f"SELF-TEST, a bug is planted on purpose: {BUGS[one].said}")
        sizes, seeds = self._sizes(), range(self.seed, self.seed + self.repeats)
        result = self._result("chain", "planted", sizes=asdict(sizes), seeds=list(seeds))
        trials = [SelfTest(one, True, sizes, seed) for one in names for seed in seeds]
        if self.repeats > 1:
            trials += [SelfTest(one, False, sizes, seed) for one in WITHOUT_BUGS for seed in seeds]
        found = dict(zip(trials, all_tried(trials, self.workers), strict=True))
        first = {one: found[SelfTest(one, True, sizes, self.seed)] for one in names}
        outcomes = {
            is_planted: {
                one: [outcome(*each) for each in found.items() if each[0][:2] == (one, is_planted)]
                for one in (names if is_planted else WITHOUT_BUGS)
            }
            for is_planted in (True, False)
        }
        caught = {one: sum(each["caught"] for each in outcomes[True][one]) for one in names}
        sound = [one for trial, each in found.items() if not trial.is_planted for one in each]
        self._keep(
            result.facts(
                {
                    "planted": {one: [each.to_json() for each in first[one]] for one in names},
                    "repeats": self.repeats,
                    "caught": caught,
                    "outcomes": outcomes[True],
                    "without bugs": {
                        "findings": len(sound),
                        "accused": sum(one.refuted for one in sound),
                        "outcomes": outcomes[False],
                    },
                }
            )
        )
        if not self.json:
            for one in names:
                show_findings(first[one])
        missed = [one for one in names if caught[one] < self.repeats]
        self._tell(f"missed: {', '.join(missed)}" if missed else f"caught: {', '.join(names)}")
        if missed:
            sys.exit(REFUTED)

    def _play(self, experts: Path, demonstrations: Path) -> None:
        from quorum_rl.audit import membership_game
        from quorum_rl.cli.expert_files import experts_from
        from quorum_rl.logs import open_demonstrations
        from quorum_rl.pipeline import FitSettings, learner_for

        log = open_demonstrations(demonstrations)
        settings = FitSettings(method="selective", private_steps=self.private_steps)
        budget = {"epsilon": self.epsilon, "delta": self.delta}
        result = self._result(
            log.declared.world or "unknown",
            "membership",
            **budget,
            games=self.games,
            experts=log.expert_count,
            transitions=log.transition_count,
            learner="cql",
            settings=settings.to_json(),
        )
        with timed_bar(console(stderr=True), "games") as progress:
            attacks = membership_game(
                experts_from(experts, log),
                log,
                learner_for(log.declared, "cql"),
                **budget,
                settings=settings,
                games=self.games,
                seed=self.seed,
                progress=progress,
            )
        self._keep(result.facts({"attacks": [attack.to_json() for attack in attacks]}))
        if self.picture is not None:
            from quorum_rl.audit import draw_curves

            save_picture(draw_curves([attack.to_json() for attack in attacks]), self.picture)
        if not self.json:
            show_attacks(attacks)

    def _result(self, world: str, stage: str, **configuration: Any) -> "Result":
        """What will be found, with all that is needed to find it again; its time begins now."""
        from quorum_rl.pipeline import Result

        return Result(world, stage, {"seed": self.seed} | configuration, self.commit)

    def _keep(self, facts: dict[str, Any]) -> None:
        """Print or write down what was found, for programs."""
        if self.out is not None:
            from quorum_rl.files import write_json

            write_json(self.out, facts)
        if self.json:
            show_facts(facts, as_json=True)

    def _tell(self, text: str) -> None:
        if not self.json:
            console().print(text)


def show_findings(findings: "Sequence[Finding]") -> None:
    """A table for people: what was claimed, and what is certain at least."""
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
    console().print(table)
    for threat in dict.fromkeys(finding.threat for finding in findings):
        console().print(threat)
    for what, canary in dict.fromkeys((finding.what, finding.canary) for finding in findings):
        console().print(f"canary of the {what}: {canary}")
    for note in dict.fromkeys(finding.note for finding in findings if finding.note):
        console().print(f"* {note}")
    console().print(
        "Lower bounds hold with 95% confidence; a claim is refuted if it is exceeded with 99.9%. A "
        "low bound proves nothing: another attack may be better."
    )
    hopeless = [finding for finding in findings if not finding.refutable]
    for finding in hopeless:
        console().print(
            f"{finding.what}, {finding.threat.split(':')[0]}: this claim cannot be refuted with so "
            f"few runs, which could show at most {finding.ceiling:.3f}"
        )
    if hopeless:
        console().print("Without assumptions a claim of ε takes more than 10·exp(ε) runs.")


def show_attacks(attacks: "Sequence[Attack]") -> None:
    """A table for people: who can be found, at one false alarm in a thousand."""
    from rich.table import Table

    table = Table("training", "attack", "found at 0.1% false positives", "95% interval", "scores")
    for attack in attacks:
        share, low, high = attack.true_positives()
        table.add_row(
            attack.method,
            attack.name,
            f"{share:.2%}",
            f"{low:.2%} to {high:.2%}",
            f"{len(attack.members):,} members, {len(attack.others):,} others",
        )
    console().print(table)
    console().print("This looked at the logs without noise: NOT private, do not publish it.")
