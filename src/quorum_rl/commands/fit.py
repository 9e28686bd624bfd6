"""`quorum fit`: both stages in one command, from demonstrations and experts to a policy."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from quorum_rl.commands.output import check_seed, console


@dataclass(frozen=True)
class Fit:
    """Learn one policy that may be published, at a cost of at most epsilon at delta.

    Prints its plan before it spends. The same command goes on where an interrupted one stopped.

    Example: quorum fit cartpole.arrow cartpole.safetensors --epsilon 5 --delta 3e-4
    --minimum-experts 2999 --folder runs/cartpole --accept one-expert-each
    """

    demonstrations: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DEMONSTRATIONS")]
    """What the experts did: a file of 'quorum demos collect' or 'quorum demos import'."""
    experts: Annotated[
        Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="EXPERTS", name="experts")
    ] = None
    """The experts who did it. Without them nothing is released, and every step has noise."""
    epsilon: float = tyro.MISSING
    """The cost of both stages together."""
    delta: float = tyro.MISSING
    """At this delta."""
    minimum_experts: int | None = None
    """How many experts there are at least, where the demonstrations do not declare it."""
    folder: Path = Path("runs/fit")
    """Where everything is written."""
    learner: Literal["cql", "bcq", "bc", "double-dqn"] = "cql"
    """How to learn from transitions."""
    method: Literal["selective", "dp-sgd", "non-private"] = "selective"
    """Release what can be released and train on the rest with noise; noise everywhere; none."""
    ledger: Path | None = None
    """The ledger of these experts; otherwise a new one in the folder, with this budget."""
    accept: tuple[str, ...] = ()
    """Assumptions that you answer for, by name; an error lists those that your logs need."""
    seed: int | None = None
    """For reproduction only: noise that is not private against who knows the seed."""
    diagnostics_not_private: bool = False
    """I know that the non-private method must not be used on real experts."""

    def run(self) -> None:
        check_seed(self.seed)
        from quorum_rl.devices import prepare

        prepare()
        from rich.progress import Progress

        from quorum_rl.budget import Budget
        from quorum_rl.experts import load_population
        from quorum_rl.fit import FitSettings, fit
        from quorum_rl.logs import as_they_acted, open_demonstrations

        log = open_demonstrations(self.demonstrations)
        experts = None
        if self.experts is not None:
            experts = as_they_acted(load_population(self.experts), log)
        with Progress(console=console()) as bar:
            task = bar.add_task("training", total=None)

            def progress(done: int, total: int) -> None:
                bar.update(task, completed=done, total=total)

            made = fit(
                log,
                experts,
                epsilon=self.epsilon,
                delta=self.delta,
                minimum_experts=self.minimum_experts,
                learner=self.learner,
                settings=FitSettings(method=self.method),
                folder=self.folder,
                budget=None if self.ledger is None else Budget.open(self.ledger),
                accepted=self.accept,
                seed=self.seed,
                diagnostics_not_private=self.diagnostics_not_private,
                report=bar.console.print,
                progress=progress,
            )
        if made.certificate is not None:
            console().print(made.certificate.statement)
        console().print(f"the policy is in {self.folder}/policy.safetensors")
