"""`quorum fit` and `quorum train`: from demonstrations to a policy, in one command or in two."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import tyro

from quorum_rl.cli.configuration import as_toml
from quorum_rl.cli.expert_files import Output, experts_from
from quorum_rl.cli.learner_flags import LearnerFlags
from quorum_rl.cli.output import check_seed, console, show_facts, stoppable, timed_bar
from quorum_rl.errors import Interrupted, QuorumError
from quorum_rl.pipeline import FitSettings

if TYPE_CHECKING:
    from quorum_rl.experts import LoggedExperts
    from quorum_rl.logs import Demonstrations
    from quorum_rl.pipeline import Fitted

SETTINGS_IN_WORDS: Final = {
    "method": "Noisy sums of what experts learn by themselves; of last layers; of gradients; a "
    "release first, the paper's method; or no noise, which needs --diagnostics-not-private.",
    "mode": "Our analysis, or the published one, which is for reproduction only.",
    "release_share": "The release's part of epsilon.",
    "private_share": "The private steps' part of all steps.",
    "private_steps": "How many steps have noise.",
    "noise_multiplier": "The noise of a private step; calibrated unless given.",
    "local_steps": "Steps that an expert takes by itself in a private step.",
    "local_rate": "The learning rate of an expert by itself.",
    "transitions_per_expert": "Transitions of an expert in a gradient or a step of its own.",
    "sampling_rate": "How likely an expert takes part in a private step.",
    "clip_norm": "What an expert's contribution is clipped to.",
    "normalised": "Scale every expert's contribution to the clip norm, small ones too.",
    "learning_rate": "Of steps without noise.",
    "private_learning_rate": "Of private steps; chosen for their noise unless given.",
    "falling_rates": "Let both learning rates fall to zero over the training.",
    "batch_size": "Released transitions in a step without noise.",
    "optimiser": "How sums become steps: sgd, momentum or adam.",
    "averaging": "Decay of the average over the parameters, which is the policy; 0 for the last, "
    "1 for the mean of the last half.",
    "release_only_steps": "Steps without noise, where no step is private.",
    "least_released": "Where fewer released transitions are expected, every step is private.",
    "least_reached": "Where prefixes reach less of the horizon than this, every step is private.",
    "stop_probability": "For experts without a floor: how often a release stops before a query.",
    "iterations": "How many trajectories the release tries; chosen unless given.",
    "prefix_cap": "The most steps of a trajectory that may come out; the horizon unless given.",
    "agreement": "Of the experts who agree up to a step, the share expected to agree at the next.",
    "pool_limit": "The most trajectories per expert that the release may reserve.",
    "allow_noise": "Train although the plan says that it would be on noise.",
}

Optimiser = Literal["sgd", "momentum", "adam"]


def _unchecked_settings() -> Any:
    """`FitSettings` as flags: numbers out of range are refused when the command runs."""
    # What a command line can say: an optimiser by name.
    types = {one.name: one.type for one in fields(FitSettings)} | {"optimiser": Optimiser | None}
    return make_dataclass(
        "Settings",
        [
            (
                one.name,
                Annotated[
                    types[one.name],
                    tyro.conf.arg(help=SETTINGS_IN_WORDS.get(one.name, "")),
                ],
                field(default=one.default),
            )
            for one in fields(FitSettings)
        ],
        frozen=True,
        kw_only=True,
    )


Settings: Any = _unchecked_settings()


@dataclass(frozen=True, kw_only=True)
class _Training(LearnerFlags, ABC):
    """What both commands are told."""

    demonstrations: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DEMONSTRATIONS")]
    """What the experts did: a file of 'quorum demos collect' or 'quorum demos import'."""
    epsilon: float
    """The cost of both stages together."""
    delta: float
    """At this delta."""
    minimum_experts: int | None = None
    """How many experts there are at least, where the demonstrations do not declare it."""
    folder: Path = Path("runs/fit")
    """Where everything is written."""
    ledger: Path | None = None
    """The ledger of these experts; otherwise a new one in the folder, with this budget."""
    accept: tuple[str, ...] = ()
    """Assumptions that you answer for, by name; an error lists those that your logs need."""
    seed: int | None = None
    """For reproduction only: noise that is not private against who knows the seed."""
    diagnostics_not_private: bool = False
    """I know that the non-private method must not be used on real experts."""
    json: bool = False
    """Print the facts at the end as JSON, and everything else to the standard error."""
    settings: Settings = field(default_factory=Settings)

    def run(self) -> None:
        check_seed(self.seed)
        settings = FitSettings(**asdict(self.settings))
        from quorum_rl.distributed import prepare

        prepare()
        from quorum_rl.distributed import is_first, join

        join()
        if not is_first():
            with stoppable(console(stderr=True)):  # Ctrl-C is for the first, and ends its help
                self._help(self._options(settings))
            return
        try:
            with self._told(settings) as options:
                made = self._fitted(options)
        except Interrupted as stop:
            repeated = f"quorum {self._name} --config {self.folder / 'config.toml'}"
            raise Interrupted(f"{stop} Go on with: {repeated}") from None
        self._show(made)

    @property
    def _name(self) -> str:
        return type(self).__name__.lower()

    @abstractmethod
    def _fitted(self, options: dict[str, Any]) -> "Fitted":
        """Do what the command is for."""

    @abstractmethod
    def _help(self, options: dict[str, Any]) -> None:
        """Do this process's share of it, where this is not the first."""

    def _options(self, settings: FitSettings) -> dict[str, Any]:
        """What is the same in all processes."""
        return {
            "minimum_experts": self.minimum_experts,
            "learner": self.learner,
            "learner_settings": self.learner_settings(),
            "settings": settings,
            "seed": self.seed,
            "diagnostics_not_private": self.diagnostics_not_private,
        }

    @contextmanager
    def _told(self, settings: FitSettings) -> Iterator[dict[str, Any]]:
        """The run's options, with a bar for its steps while the block lasts."""
        shown = console(stderr=self.json)
        with stoppable(shown) as asked, timed_bar(shown, "steps") as update:

            def progress(done: int, total: int) -> bool:
                update(done, total)
                return asked[0]

            yield {
                **self._options(settings),
                "accepted": self.accept,
                "folder": self.folder,
                "report": shown.print,
                "progress": progress,
                "command": as_toml([self._name], self),
            }

    def _show(self, made: "Fitted") -> None:
        certified = made.certificate
        facts = {
            "folder": str(made.folder),
            "policy": str(made.folder / "policy.safetensors"),
            "ledger": None
            if certified is None
            else str(self.ledger or made.folder / "ledger.jsonl"),
            "epsilon": None if certified is None else certified.epsilon,
            "delta": None if certified is None else certified.delta,
            "statement": None if certified is None else certified.statement,
            "released_prefixes": 0 if made.released is None else len(made.released),
            "released_transitions": 0 if made.released is None else int(made.released.offsets[-1]),
            "private_steps": made.plan.private_steps,
            "steps_without_noise": made.plan.plain_steps,
        }
        if self.json:
            show_facts(facts, as_json=True)
            return
        if certified is not None:
            console().print(certified.statement)
        console().print(f"the policy is in {facts['policy']}")


@dataclass(frozen=True, kw_only=True)
class Fit(_Training):
    """Learn one policy that may be published, at a cost of at most epsilon at delta.

    Every expert learns from its own log; noisy sums of where they went move the policy. Prints its
    plan before it spends, and refuses one that would be noise. Ctrl-C stops after the steps under
    way; the same command goes on from there, with the same noise and without paying again. Uses all
    devices; for several processes see docs/scale.md.

    Example: quorum fit cartpole.arrow --epsilon 1 --delta 1e-4 --minimum-experts 299 --folder
    runs/cartpole --accept one-expert-each
    """

    experts: Annotated[
        Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="EXPERTS", name="experts")
    ] = None
    """The experts who did it: a file of 'quorum experts train', or ONNX files (a folder, a pattern
    in quotes, or a .txt file that lists them). Without them nothing is released, and every step has
    noise."""
    experts_output: Output = "probabilities"
    """What ONNX experts answer."""

    def _fitted(self, options: dict[str, Any]) -> "Fitted":
        from quorum_rl.budget import Budget
        from quorum_rl.pipeline import fit

        return fit(
            *self._given(),
            epsilon=self.epsilon,
            delta=self.delta,
            budget=None if self.ledger is None else Budget.open(self.ledger),
            **options,
        )

    def _help(self, options: dict[str, Any]) -> None:
        from quorum_rl.pipeline import help_fit

        help_fit(*self._given(), epsilon=self.epsilon, delta=self.delta, **options)

    def _given(self) -> "tuple[Demonstrations, LoggedExperts | None]":
        from quorum_rl.logs import open_demonstrations

        log = open_demonstrations(self.demonstrations)
        if self.experts is None:
            return log, None
        return log, experts_from(self.experts, log, self.experts_output)


@dataclass(frozen=True, kw_only=True)
class Train(_Training):
    """Stage 2 alone: train after a release that 'quorum release' made, or with noise everywhere.

    Training sees only what the release left of the demonstrations. The noise is such that the
    release and the training cost at most epsilon at delta together.

    Example: quorum train cartpole.arrow --released released.parquet --ledger cartpole.ledger
    --epsilon 10 --delta 2e-4 --minimum-experts 299 --folder runs/cartpole --accept one-expert-each
    """

    folder: Path = Path("runs/train")
    """Where everything is written."""
    released: Path | None = None
    """What 'quorum release' wrote; the ledger must hold that release. Without it every step has
    noise."""

    def _fitted(self, options: dict[str, Any]) -> "Fitted":
        from quorum_rl.budget import Budget
        from quorum_rl.logs import open_demonstrations
        from quorum_rl.pipeline import fit, fit_after_release

        log = open_demonstrations(self.demonstrations)
        budget = None if self.ledger is None else Budget.open(self.ledger)
        if self.released is None:
            return fit(log, None, epsilon=self.epsilon, delta=self.delta, budget=budget, **options)
        if budget is None:
            raise QuorumError("a release is in the ledger of its experts: name that with --ledger.")
        del options["diagnostics_not_private"]  # what is released is learned from, whatever it says
        return fit_after_release(
            log,
            self.released,
            epsilon=self.epsilon,
            delta=self.delta,
            budget=budget,
            **options,
        )

    def _help(self, options: dict[str, Any]) -> None:
        from quorum_rl.logs import open_demonstrations
        from quorum_rl.pipeline import help_fit

        if self.released is not None:
            raise QuorumError("training after a release is for one process: start it by itself.")
        log = open_demonstrations(self.demonstrations)
        help_fit(log, None, epsilon=self.epsilon, delta=self.delta, **options)
