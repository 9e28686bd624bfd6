"""`quorum demo`: the whole flow on synthetic experts, from training them to the report."""

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from quorum_rl import budget, envs, experts, logs, pipeline, report
from quorum_rl.cli.evaluate import Evaluate
from quorum_rl.cli.experts import Train
from quorum_rl.cli.fit import Fit
from quorum_rl.cli.output import check_folder, console, start_jax, timed_bar
from quorum_rl.errors import MissingPackageError, QuorumError
from quorum_rl.files import write_json
from quorum_rl.pipeline import FitSettings

if TYPE_CHECKING:
    from rich.table import Table

WORLD: Final = "CartPole"
EXPERTS: Final = 300
FLOOR: Final = 0.02
TRAJECTORIES: Final = 20
EPSILON, DELTA = 1.0, 1e-4
SEEDS: Final = 3
EPISODES: Final = 50
STEPS: Final = 1000  # of what is compared: fewer than its own, so that two cores are soon done
LOCAL: Final = FitSettings()  # as `quorum fit` has it
MARK: Final = "DEMO.txt"  # only in a folder that has it may files be replaced


@dataclass(frozen=True)
class Demo:
    """Train 300 experts on CartPole, learn from them privately, and compare with DP-SGD.

    Everything at epsilon = 1 and delta = 0.0001, three seeds; a minute or two on two cores. Ends in
    a table and a report. The experts are synthetic, so a research ledger is charged, and the
    certificate says that.

    Example: quorum demo --folder demo
    """

    folder: Path = Path("demo")
    """Where everything is written: a new folder, or that of an earlier demo, which is replaced."""
    seed: int = 0
    """Another number, another demo."""

    def run(self) -> None:
        begun = time.monotonic()
        self._prepare_folder()
        start_jax()
        self._experts()
        demonstrations, acting = self._demonstrations()
        self._fit()
        comparison = self._compare(demonstrations, acting)
        console().print(_table(comparison))
        console().print(
            f"DP-SGD and training without privacy take {STEPS:,} steps here, to be soon done."
        )
        where = self._report(comparison)
        console().print(f"{time.monotonic() - begun:.0f} seconds in all. {where}")

    @property
    def _run(self) -> Path:
        return self.folder / "cartpole"

    @property
    def _expert_file(self) -> Path:
        return self.folder / "experts.safetensors"

    @property
    def _log_file(self) -> Path:
        return self.folder / "demonstrations.arrow"

    def _prepare_folder(self) -> None:
        """A folder to write in, without the run of an earlier demo.

        Raises:
            QuorumError: if it has files that no demo made, which could be somebody's ledger.
        """
        if self.folder.exists() and not self.folder.is_dir():
            raise QuorumError(f"{str(self.folder)!r} is a file: give a folder with --folder.")
        mark = self.folder / MARK
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not mark.exists() and any(self.folder.iterdir()):
                raise QuorumError(
                    f"{str(self.folder)!r} has files that no demo made: give a new folder with "
                    "--folder."
                )
            mark.write_text("'quorum demo' made what is here, and replaces it the next time.\n")
            if (self._run / "config.json").exists():
                shutil.rmtree(self._run)
            self._run.mkdir(exist_ok=True)
        except OSError as error:
            raise QuorumError(f"{str(self.folder)!r} cannot be made: {error.strerror}.") from error
        check_folder(self.folder)
        for old in self.folder.glob(f"{self._log_file.name}*"):  # and its mark of a release
            old.unlink()
        (self._run / "ledger.jsonl").unlink(missing_ok=True)

    def _experts(self) -> None:
        from quorum_rl.cli.expert_training import train

        console().print(f"1. Experts: {EXPERTS}, trained on variations of {WORLD}")
        train(Train(world=WORLD, out=self._expert_file, preset="small", seed=self.seed))

    def _demonstrations(self) -> "tuple[logs.Demonstrations, experts.LoggedExperts]":
        """What the experts do, and how long they agree: no secret, as they are synthetic."""
        console().print(
            f"2. Demonstrations: {TRAJECTORIES} trajectories of each, every action with a "
            f"probability of at least {FLOOR}"
        )
        demonstrations, acting = logs.collect(
            experts.load_population(self._expert_file).smoothed(FLOOR),
            envs.get_world(WORLD),
            trajectories=TRAJECTORIES,
            minimum_experts=EXPERTS - 1,
            seed=self.seed,
        )
        logs.save_demonstrations(demonstrations, self._log_file)
        curve = logs.agreement_curve(acting, demonstrations, trajectories=100)
        agreeing = ", ".join(f"{curve.mean[steps - 1]:.0%}" for steps in (1, 5, 10, 20))
        console().print(
            f"   {demonstrations.transition_count:,} transitions; after 1, 5, 10 and 20 steps "
            f"{agreeing} of the experts would have gone along"
        )
        return demonstrations, acting

    def _fit(self) -> None:
        console().print("3. One policy: each learns by itself, noisy sums say where they went")
        ledger = self._run / "ledger.jsonl"
        budget.Budget.create(ledger, epsilon=None, delta=DELTA, kind="research")
        Fit(
            demonstrations=self._log_file,
            epsilon=EPSILON,
            delta=DELTA,
            folder=self._run,
            ledger=ledger,
            accept=("one-expert-each",),
            seed=self.seed,
            settings=LOCAL,
        ).run()
        Evaluate(policy=self._run, episodes=EPISODES, seed=self.seed).run()

    def _compare(
        self, demonstrations: "logs.Demonstrations", acting: "experts.LoggedExperts"
    ) -> "pipeline.Comparison":
        cost = EPSILON, DELTA
        console().print(f"4. The same with {SEEDS} seeds, and what it is measured against")
        with timed_bar(console(), "trainings") as update:
            return pipeline.compare(
                acting,
                demonstrations,
                envs.get_world(WORLD),
                pipeline.chosen_learner(demonstrations.declared, FitSettings(), cost),
                _methods(),
                delta=DELTA,
                seeds=SEEDS,
                first_seed=self.seed,
                episodes=EPISODES,
                progress=update,
            )

    def _report(self, comparison: "pipeline.Comparison") -> str:
        write_json(self._run / "comparison.json", comparison.to_json())
        try:
            return f"The report: {report.write_report(self._run)}"
        except MissingPackageError as error:
            return f"There is no report, for {error}"


def _methods() -> "list[pipeline.Method]":
    method = pipeline.Method
    dp_sgd = FitSettings(method="dp-sgd", private_steps=STEPS)
    without = FitSettings(method="non-private", release_only_steps=STEPS)
    return [
        method(name="local updates", settings=LOCAL, epsilon=EPSILON),
        method(name="DP-SGD", settings=dp_sgd, epsilon=EPSILON),
        method(name="non-private", settings=without),
    ]


def _table(comparison: "pipeline.Comparison") -> "Table":
    from rich.table import Table

    made = Table("method", "epsilon", "delta", "normalised return [95%]", "return")
    for outcome in comparison.outcomes:
        private, spread = outcome.method.epsilon is not None, outcome.summary.mean_interval
        interval = "" if spread is None else f" [{spread.low:.2f}, {spread.high:.2f}]"
        made.add_row(
            outcome.method.name,
            f"{outcome.method.epsilon:g}" if private else "none",
            f"{comparison.delta:g}" if private else "none",
            f"{outcome.summary.mean:.2f}{interval}",
            f"{outcome.returns.mean():.0f}",
        )
    return made
