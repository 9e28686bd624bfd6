"""The paper's evaluation at its scale, stage by stage."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from rich.table import Table

from quorum_rl.cli.main import main as quorum
from quorum_rl.cli.output import check_seed, console, timed_bar
from quorum_rl.cli.parser import Positional
from quorum_rl.distributed import prepare
from quorum_rl.envs import AnyWorld, get_world
from quorum_rl.errors import POSITIVE, QuorumError, at_least, require
from quorum_rl.experts import LoggedExperts, Population, load_population
from quorum_rl.logs import Declared, Demonstrations, open_demonstrations, save_demonstrations
from quorum_rl.pipeline import Comparison, FitSettings, Method, Result, Study, compared
from quorum_rl.release import experts_who_acted
from reproduction.columns import (
    BOUND_STEPS,
    EPSILONS,
    GRID_EPSILONS,
    ablation_columns,
    best_settings,
    grid_columns,
    learner_of,
    main_columns,
    published_column,
)
from reproduction.folders import check_makeable, make_folder
from reproduction.population import FLOOR, TRAJECTORIES, acted, check_origin, described, some_of
from reproduction.published_settings import BEST_SETTINGS
from reproduction.results import check_place, save

# The first three make the main comparison; the others are asked for by name.
MAIN_STAGES: Final = ("experts", "demonstrations", "comparison")
COUNTS: Final = (1000, 2000)  # of experts, beside all of them
RETURN_EPISODES: Final = 10
CURVE_TRAJECTORIES: Final = 100
SHORT_STEPS: Final = 20_000
BEST_EPSILONS: Final = tuple(sorted({setting.epsilon for setting in BEST_SETTINGS}))
# What is written of each of the grid's hundreds of methods; the rest is in their names.
GRID_FACTS: Final = ("name", "epsilon", "scores", "returns", "released", "noise_multiplier")


@dataclass(frozen=True)
class Paper:
    """Reproduce the paper's evaluation in one world, and put our method beside it.

    Stages, each of which takes up what the one before left in the folder: experts (train them),
    demonstrations (collect, and how long the experts agree), comparison (DP-SGD and our method at
    every epsilon, without privacy as the bound). By name only: published (the paper's best
    settings, by its own account), ablation (its p, our split), counts (fewer experts) and grid (its
    search, in short trainings).

    The experts are synthetic, so everything is charged to research ledgers.

    Example: python -m reproduction LunarLander --stage experts --folder /tmp/paper
    """

    world: Annotated[str, Positional("WORLD")]
    """CartPole, Acrobot, LunarLander or HIV."""
    stage: Literal[
        "main", "experts", "demonstrations", "comparison", "published", "ablation", "counts", "grid"
    ] = "main"
    """What to do; the first three in order unless given."""
    folder: Path = Path("paper")
    """Where experts and demonstrations are kept."""
    results: Path | None = None
    """The Parquet file that results are added to; results.parquet in the folder unless given."""
    preset: Literal["paper", "small"] = "paper"
    """The paper's experts, for a GPU; or a few hundred small ones."""
    learners: tuple[Literal["cql", "bcq"], ...] = ("cql", "bcq")
    """Who learns."""
    epsilons: tuple[float, ...] = EPSILONS
    """At which epsilon our method and DP-SGD are compared, and which of the paper's are trained in
    published (it has 5, 7.5 and 10) and in grid (2.5 to 10); delta is 1 / experts."""
    seeds: int = 3
    """How many trainings of each method."""
    expert_seed: int = 1
    """Whose experts: settings were chosen on those of others."""
    episodes: int = 100
    """How many episodes a policy is judged on."""
    steps: int | None = None
    """Train the paper's settings for so many steps at the same claim; otherwise to the end of their
    budget, up to 2.3 million, in published, and for 20,000 in ablation and grid."""
    paper_optimiser: Literal["adam", "momentum", "sgd"] = "adam"
    """The optimiser of the paper's settings in published, ablation and grid: it names none, and its
    algorithms have plain steps (sgd)."""
    bound_steps: int = BOUND_STEPS
    """Steps of the bound without privacy."""
    reward_scale: float | None = None
    """What rewards are multiplied by: as the world's units say, unless given."""
    commit: str | None = None
    """What to note as the commit, where the source is not in git."""
    dry: bool = False
    """Check everything, say what would be written, and stop."""

    def run(self) -> None:
        stages = MAIN_STAGES if self.stage == "main" else (self.stage,)
        self._check(stages)
        if self.dry:
            console().print(f"{self.world}: {', '.join(stages)} in {self._home}, {self._file}")
            return
        # Whoever is asked must round as those did who acted: no kernels are raced but in training.
        prepare(fast=self.stage == "experts")
        for folder in (self._home, self._file.parent):
            make_folder(folder)
        for stage in stages:
            begun = time.monotonic()
            getattr(self, f"_{stage}")()
            console().print(f"{self.world}, {stage}: {time.monotonic() - begun:.0f} s")

    def _check(self, stages: tuple[str, ...]) -> None:
        """Fail before an hour of work, and before anything is written.

        Raises:
            QuorumError: naming what is wrong or missing.
        """
        world = get_world(self.world)  # or one sentence that names those there are
        check_seed(self.expert_seed)
        for name in ("learners", "epsilons"):
            given = getattr(self, name)
            if len(set(given)) < len(given) or not given:
                raise QuorumError(f"--{name} is {given}: give at least one, and each once.")
        for name in ("seeds", "episodes", "bound_steps"):
            require(name, getattr(self, name), at_least(1))
        if self.steps is not None:
            require("steps", self.steps, at_least(1))
        for epsilon in self.epsilons:
            require("epsilon", epsilon, POSITIVE)
        for name in self.learners:
            learner_of(_declared(world), name, self.reward_scale)  # or its scale is refused
        check_makeable(self._home, self._file.parent)
        for stage in stages:
            self._check_places(stage)
        if stages[0] in ("demonstrations", "counts"):
            self._require(self._expert_file, "experts")
        elif stages[0] != "experts":
            self._require(self._log_file, "demonstrations")

    def _require(self, file: Path, stage: str) -> None:
        if not file.exists():
            raise QuorumError(f"{str(file)!r} is not there: run --stage {stage}.")

    def _check_places(self, stage: str) -> None:
        """Fail, as far as can be known before anything is done, if a result would be lost."""
        parts = [stage]
        if stage == "published":
            parts = [f"published-{epsilon:g}" for epsilon in self._their_epsilons(BEST_EPSILONS)]
        elif stage == "counts":
            parts = [f"{count}-experts" for count in COUNTS]
        elif stage == "grid":
            self._their_epsilons(GRID_EPSILONS)
        known: dict[str, Any] = {"seeds": list(range(self.seeds)), "episodes": self.episodes}
        if stage in ("comparison", "counts"):
            known |= {"epsilons": list(self.epsilons), "bound_steps": self.bound_steps}
        for part, learner in product(parts, self.learners):
            name = f"{learner}-{part}{self._other_than_usual}"
            check_place(self._result(name, **known), self._file)

    def _their_epsilons(self, there: tuple[float, ...]) -> tuple[float, ...]:
        """At which ε the paper's settings, or its grid, are run: those of them that are asked for.

        Raises:
            QuorumError: for one at which there is nothing to run; all the usual ones are none.
        """
        unknown = [epsilon for epsilon in self.epsilons if epsilon not in there]
        if unknown and self.epsilons != EPSILONS:
            known = ", ".join(f"{epsilon:g}" for epsilon in there)
            raise QuorumError(
                f"--epsilons has {unknown[0]:g}, and --stage {self.stage} is run at {known}: give "
                "some of those."
            )
        return tuple(epsilon for epsilon in there if epsilon in self.epsilons)

    @property
    def _home(self) -> Path:
        return self.folder / self.world.lower()

    @property
    def _file(self) -> Path:
        return self.results or self.folder / "results.parquet"

    @property
    def _expert_file(self) -> Path:
        return self._home / "experts.safetensors"

    @property
    def _log_file(self) -> Path:
        return self._home / "demonstrations.arrow"

    def _result(self, stage: str, **configuration: Any) -> Result:
        chosen = {"preset": self.preset, "expert_seed": self.expert_seed} | configuration
        return Result(self.world, stage, chosen, self.commit)

    @property
    def _other_than_usual(self) -> str:
        """What tells a result from the usual one of its stage, which it must not replace."""
        papers = self.stage in ("published", "ablation", "grid")
        marks = [
            (papers and self.steps is not None, f"{self.steps}-steps"),
            (self.reward_scale is not None, f"rewards-{self.reward_scale}"),
            (papers and self.paper_optimiser != "adam", self.paper_optimiser),
        ]
        return self._other_experts + "".join(f"-{mark}" for differs, mark in marks if differs)

    @property
    def _other_experts(self) -> str:
        """The same for experts other than the usual."""
        preset = "" if self.preset == "paper" else f"-{self.preset}"
        usual = self.expert_seed == Paper.expert_seed
        return preset + ("" if usual else f"-seed-{self.expert_seed}")

    def _experts(self) -> None:
        words = ["--preset", self.preset, "--seed", str(self.expert_seed), "--overwrite"]
        words += ["--candidates", "3"] if self.preset == "paper" else []
        words += ["--fast"] if self.stage == "experts" else []  # as `run` has prepared this process
        quorum(["experts", "train", self.world, "--out", str(self._expert_file), *words])

    def _demonstrations(self) -> None:
        stage = f"experts{self._other_experts}"
        result = self._result(stage, trajectories=TRAJECTORIES, p_min=FLOOR)
        check_place(result, self._file)
        population, world = self._population(), get_world(self.world)
        log, experts = acted(population, world, seed=self.expert_seed)
        save_demonstrations(log, self._log_file)  # others may go on with it
        found = described(
            population,
            world,
            log,
            experts,
            episodes=RETURN_EPISODES,
            curve_trajectories=CURVE_TRAJECTORIES,
            seed=self.expert_seed,
        )
        save(result, self._file, found)

    def _population(self) -> Population:
        """The experts in the folder, if they are those that results would name."""
        self._require(self._expert_file, "experts")
        found = load_population(self._expert_file)
        check_origin(found, get_world(self.world), self.preset, self.expert_seed)
        return found

    def _study(self) -> Study:
        """The experts and their log, as an earlier stage left them."""
        self._require(self._log_file, "demonstrations")
        population, log = self._population(), open_demonstrations(self._log_file)
        if log.declared.world != self.world:
            raise QuorumError(
                f"{str(self._log_file)!r} is a log of {log.declared.world}, and not of "
                f"{self.world}: run --stage demonstrations."
            )
        if log.declared.experts_identity not in (None, population.identity):
            raise QuorumError(
                f"{str(self._log_file)!r} is a log of other experts than those in the folder: run "
                "--stage demonstrations."
            )
        return self._study_of(log, experts_who_acted(population, log))

    def _study_of(self, log: Demonstrations, experts: LoggedExperts) -> Study:
        return Study(experts, log, get_world(self.world), 1 / log.expert_count, range(self.seeds))

    def _comparison(self) -> None:
        self._main_comparison("comparison", self._study())

    def _counts(self) -> None:
        """Fewer experts, spread evenly over all of them, with demonstrations of their own."""
        everyone = self._population()
        fewer = [count for count in COUNTS if count < len(everyone)]
        if not fewer:
            raise QuorumError(
                f"--stage counts takes {' or '.join(map(str, COUNTS))} of the experts, and there "
                f"are {len(everyone)}: --preset paper has more."
            )
        most = max(self.epsilons)

        def theirs(learner: str) -> list[Method]:
            """The paper's settings without private steps, whose meaning hangs on no number of
            experts; at the largest ε, as in its figure."""
            return [
                published_column(setting, optimiser=self.paper_optimiser)
                for setting in best_settings(self.world, learner)
                if setting.private_share == 0 and setting.epsilon == most
            ]

        for count in fewer:
            some = some_of(everyone, count)
            log, experts = acted(some, get_world(self.world), seed=self.expert_seed)
            self._main_comparison(f"{count}-experts", self._study_of(log, experts), theirs)

    def _main_comparison(
        self, stage: str, study: Study, theirs: Callable[[str], list[Method]] | None = None
    ) -> None:
        ours = main_columns(self.epsilons, self.bound_steps)
        self._compared(
            stage,
            study,
            lambda learner: [*ours, *(theirs(learner) if theirs else [])],
            settings=asdict(FitSettings()),
            bound_steps=self.bound_steps,
            epsilons=list(self.epsilons),
        )

    def _published(self) -> None:
        study = self._study()
        # A result for each: their trainings are long, and may be in processes of their own.
        for epsilon in self._their_epsilons(BEST_EPSILONS):

            def methods(learner: str, epsilon: float = epsilon) -> list[Method]:
                return [
                    published_column(setting, self.steps, self.paper_optimiser)
                    for setting in best_settings(self.world, learner)
                    if setting.epsilon == epsilon
                ]

            self._compared(
                f"published-{epsilon:g}",
                study,
                methods,
                steps=self.steps,
                optimiser=self.paper_optimiser,
            )

    @property
    def _short(self) -> dict[str, Any]:
        """How the paper's settings are trained in ablation and grid."""
        return {"steps": self.steps or SHORT_STEPS, "optimiser": self.paper_optimiser}

    def _ablation(self) -> None:
        def methods(learner: str) -> list[Method]:
            return ablation_columns(self.world, learner, **self._short)

        settings = asdict(FitSettings())
        self._compared("ablation", self._study(), methods, settings=settings, **self._short)

    def _grid(self) -> None:
        epsilons = self._their_epsilons(GRID_EPSILONS)

        def methods(learner: str) -> list[Method]:
            return grid_columns(self.world, learner, epsilons=epsilons, **self._short)

        self._compared("grid", self._study(), methods, GRID_FACTS, **self._short)

    def _compared(
        self,
        stage: str,
        study: Study,
        methods: Callable[[str], list[Method]],
        facts: tuple[str, ...] | None = None,
        **configuration: Any,
    ) -> None:
        """Compare the methods of every learner, and write down what was found: of each method all
        there is to say, or these facts."""
        for name in self.learners:
            learner = learner_of(study.log.declared, name, self.reward_scale)
            result = self._result(
                f"{name}-{stage}{self._other_than_usual}",
                learner=name,
                learner_settings=repr(learner),
                seeds=list(study.seeds),
                episodes=self.episodes,
                **configuration,
            )
            check_place(result, self._file)
            with timed_bar(console(), f"{name}, steps") as update:
                found = compared(
                    study, learner, methods(name), episodes=self.episodes, progress=update
                )
            show(found)
            written = found.to_json()
            if facts is not None:
                every = written["methods"]
                written["methods"] = [{key: method[key] for key in facts} for method in every]
            save(result, self._file, written)


def _declared(world: AnyWorld) -> Declared:
    """What a learner has to know of a world."""
    spaces, horizon = world.spaces, int(world.default_params().time_limit)
    return Declared(spaces.action_count, spaces.observation_size, horizon, world=world.name)


def show(comparison: Comparison) -> None:
    """What was found, as a table, methods that could not be run last."""
    made = Table("method", "epsilon", "score [95%]", "return", "released")
    for outcome in comparison.outcomes:
        spread = outcome.summary.mean_interval
        interval = "" if spread is None else f" [{spread.low:.2f}, {spread.high:.2f}]"
        epsilon = outcome.method.epsilon
        made.add_row(
            outcome.method.name,
            "none" if epsilon is None else f"{epsilon:g}",
            f"{outcome.summary.mean:.3f}{interval}",
            f"{outcome.returns.mean():.4g}",
            " ".join(map(str, outcome.released)),
        )
    for method, reason in comparison.infeasible:
        made.add_row(method.name, f"{method.epsilon:g}", "infeasible", "", reason)
    console().print(made)
