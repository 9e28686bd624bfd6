"""`quorum fit`: from demonstrations to a policy."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from quorum_rl import budget, logs, pipeline, release
from quorum_rl.cli.configuration import as_toml, going_on
from quorum_rl.cli.flags import POLICY, ExpertFlags, PolicyFlags, TrainingFlags, given
from quorum_rl.cli.output import console, start_jax, stoppable, stoppable_bar
from quorum_rl.cli.plan import show_plan
from quorum_rl.errors import QuorumError
from quorum_rl.pipeline import UnitsName

if TYPE_CHECKING:
    from quorum_rl.experts import LoggedExperts


@dataclass(frozen=True, kw_only=True)
class Fit(ExpertFlags, TrainingFlags, PolicyFlags):
    """Learn one policy that may be published, at a cost of at most epsilon at delta.

    Every expert learns from its own log; noisy sums of where they went move the policy. Prints its
    plan before it spends, and refuses one that would be noise. Ctrl-C stops after the steps under
    way; the same command goes on from there, with the same noise and without paying again. Uses all
    devices; for several processes see docs/scale.md, and for logs that stay at their own sites
    'quorum site fit'.

    Example: quorum fit cartpole.arrow --epsilon 1 --delta 1e-4 --minimum-experts 299 --folder
    runs/cartpole --accept one-expert-each
    """

    released: Path | None = None
    """Go on after a release: the file that 'quorum release' wrote, which the ledger must hold. Both
    stages together then cost at most epsilon."""
    judges: float | None = None
    """The share of the experts who judge the policy instead of being learned from, such as 0.15: at
    no further cost, once and for good, by a secret coin for each."""
    return_bounds: tuple[float, ...] | None = None
    """Two public numbers between which an expert's mean return lies: the judges then say what the
    experts and the policy earn, and which is better."""
    units: UnitsName = "auto"
    """What observations and rewards are measured by, where no public numbers say so. auto: what the
    experts say of them, privately, if so many are declared that a part of epsilon suffices;
    private: always, or the fit is refused; public: they stay as they are."""
    dry_run: bool = False
    """Print the plan, made from declared facts alone, and stop: nothing is written or charged."""

    common: ClassVar = ("epsilon", "delta", "learner", "method", "folder", "ledger",
                        "minimum-experts", "accept", "dry-run", "json", "seed")  # fmt: skip

    def run(self) -> None:
        self._check_flags()
        if self.dry_run:
            self._plan()
            return
        if not start_jax(together=True):
            with stoppable(console(stderr=True)):  # Ctrl-C is for the first, and ends its help
                self._help()
            return
        shown = console(stderr=self.json)
        with (
            going_on(["fit"], self),
            self.tracked() as track,
            stoppable_bar(shown, "steps") as progress,
        ):
            made = self._fitted(
                {
                    **self._options(),
                    "track": track,
                    "accepted": self.accept,
                    "accepted_by": self.accepted_by,
                    "folder": self.folder,
                    "report": shown.print,
                    "progress": progress,
                    "command": as_toml(["fit"], self),
                }
            )
        released = made.released
        self.tell(
            made,
            released_prefixes=0 if released is None else len(released),
            released_transitions=0 if released is None else int(released.offsets[-1]),
            private_steps=made.plan.private_steps,
            steps_without_noise=made.plan.plain_steps,
            judges=None if made.judging is None else made.judging.to_json(),
        )

    def _check_flags(self) -> None:
        """Refuse what has no effect after a release that is made."""
        if self.released is None:
            return
        if self.ledger is None:
            raise QuorumError("a release is in the ledger of its experts: name that with --ledger.")
        for name in ("experts", "minimum_trajectories", "judges", "return_bounds", "units",
                     "dry_run", "diagnostics_not_private"):  # fmt: skip
            if getattr(self, name) != getattr(type(self), name):
                said = "EXPERTS" if name == "experts" else f"--{name.replace('_', '-')}"
                raise QuorumError(f"--released goes on after a release: leave out {said}.")

    def _options(self) -> dict[str, Any]:
        """What is the same in all processes, by the names that `fit` has."""
        return {
            **given(self, "epsilon delta minimum_experts settings seed"),
            "learner": self.chosen_learner(),
            "learner_settings": self.learner_settings(),
        }

    def _fitted(self, options: dict[str, Any]) -> "pipeline.Fitted":
        paid = None if self.ledger is None else budget.Budget.open(self.ledger)
        if self.released is None or paid is None:
            asked = given(self, "judges return_bounds units")
            return pipeline.fit(*self._given(), budget=paid, **(options | self._of_fit() | asked))
        log = logs.open_demonstrations(self.demonstrations)
        return pipeline.fit_after_release(log, self.released, budget=paid, **options)

    def _help(self) -> None:
        """Do this process's share of it, where this is not the first."""
        if self.released is not None:
            raise QuorumError("training after a release is for one process: start it by itself.")
        if self.judges is not None:
            raise QuorumError("a fit with judges is for one process: start it by itself.")
        if self.units == "private":
            raise QuorumError("a fit with private units is for one process: start it by itself.")
        pipeline.help_fit(*self._given(), **(self._options() | self._of_fit()))

    def _of_fit(self) -> dict[str, Any]:
        """What only a fit without a release before it takes."""
        return given(self, "minimum_trajectories diagnostics_not_private")

    def _given(self) -> "tuple[logs.Demonstrations, LoggedExperts | None]":
        log = logs.open_demonstrations(self.demonstrations)
        return log, self.experts_of(log)

    def _plan(self) -> None:
        """Say what the fit would do and cost, and fail as it would."""
        plan, log = self._planned()
        least = log.declared.minimum_experts if plan.events else None
        removal = log.said_of_removal(least, plan.trajectories_needed)
        remarks = [] if removal is None else [removal]
        show_plan(plan, self._refusal(plan, log), remarks, as_json=self.json)

    def _planned(self) -> "tuple[pipeline.FitPlan, logs.Demonstrations]":
        pipeline.check_noisy([self.settings], self.diagnostics_not_private)
        log = logs.open_demonstrations(self.demonstrations).of_at_least(
            self.minimum_experts, self.minimum_trajectories
        )
        cost, asked = (self.epsilon, self.delta), self.learner_settings()
        called = self.chosen_learner()
        learner = pipeline.chosen_learner(log.declared, self.settings, cost, called, asked)
        asking = pipeline.units_to_ask(
            self.units, log.declared, self.settings, learner, called=called, given=asked
        )
        options = given(self, "epsilon delta settings")
        can_query = self.experts is not None
        judges = pipeline.judges_of(self.judges, self.return_bounds)
        plan = pipeline.plan_fit(
            log.declared, learner, **options, can_query=can_query, judges=judges, asking=asking
        )
        if plan.events:
            log.check_usable(log.declared.minimum_experts, plan.trajectories_needed)
        return plan, log

    def _refusal(self, plan: "pipeline.FitPlan", log: "logs.Demonstrations") -> str | None:
        """Why the fit would be refused, as far as plan, folder and ledger tell, or nothing."""
        if (refused := pipeline.refusal_of(plan)) is not None:
            return refused
        if self.folder.is_file():
            return f"{str(self.folder)!r} is a file: choose another folder."
        if (self.folder / POLICY).exists():
            return f"{str(self.folder)!r} holds a finished run: choose another folder."
        if (self.folder / "config.json").exists():  # the same run may have begun, and paid
            return None
        try:
            self._check_charges(plan, log)
        except QuorumError as error:
            return str(error)
        return None

    def _check_charges(self, plan: "pipeline.FitPlan", log: "logs.Demonstrations") -> None:
        """Fail if budget, data or the accepted assumptions do not suffice, or the log forbids it.

        Whether the experts are those who acted is left to the fit: that takes the experts.
        """
        kind: budget.Kind = "production"
        record, path = None, self.ledger or self.folder
        reads = {"pool" if plan.release is not None else "whole_log": log.declared.identity}
        if self.ledger is not None:
            with budget.Ledger.open(self.ledger) as opened:
                opened.check_affordable(plan.events)
                for event in plan.events:
                    opened.check_fresh(event, reads)
                record = opened.record
                kind = record.kind
        charges = [(event, reads) for event in plan.events]
        release.check_belongs(log, record, path, self.accept, charges)
        for event in plan.events:
            by_making = plan.release is not None and event == plan.release.event
            release.acceptance(event, self.accept, self.accepted_by, kind, by_making=by_making)
