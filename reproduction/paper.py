"""`quorum paper`: the paper's evaluation at its scale, stage by stage."""

import time
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import tyro

from quorum_rl.cli.comparison import show_comparison
from quorum_rl.cli.fit import Settings
from quorum_rl.cli.output import check_makeable, console, make_folder, timed_bar
from quorum_rl.errors import QuorumError
from quorum_rl.pipeline.settings import FitSettings
from reproduction.checks import check_asked, check_numbers, their_epsilons

if TYPE_CHECKING:
    from collections.abc import Callable

    from quorum_rl.experts import LoggedExperts, Population
    from quorum_rl.logs import Demonstrations
    from quorum_rl.pipeline import Method, Study
    from quorum_rl.pipeline.results import Result

# The first three make the main comparison; the others are asked for by name.
MAIN_STAGES: Final = ("experts", "demonstrations", "comparison")
COUNTS: Final = (1000, 2000)  # of experts, beside all of them
FLOOR: Final = 0.02
TRAJECTORIES: Final = 20
RETURN_EPISODES: Final = 10
CURVE_TRAJECTORIES: Final = 100
SHORT_STEPS: Final = 20_000
# What is written of each of the grid's hundreds of methods; the rest is in their names.
GRID_FACTS: Final = ("name", "epsilon", "scores", "returns", "released", "noise_multiplier")


@dataclass(frozen=True)
class Paper:
    """Reproduce the paper's evaluation in one world, and put our method beside it.

    Stages, each of which takes up what the one before left in the folder: experts (train them),
    demonstrations (collect, and how long the experts agree), comparison (DP-SGD and our method at
    every epsilon, without privacy as the bound). By name only: published (the paper's best
    settings, by its own account), ablation (its p, our split), counts (fewer experts) and grid (its
    search, in short trainings). Large files stay in the folder; small results go to the other one.

    The experts are synthetic, so everything is charged to research ledgers.

    Example: quorum paper LunarLander --stage experts --folder /tmp/paper
    """

    world: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="WORLD")]
    """CartPole, Acrobot, LunarLander or HIV."""
    stage: Literal[
        "main", "experts", "demonstrations", "comparison", "published", "ablation", "counts", "grid"
    ] = "main"
    """What to do; the first three in order unless given."""
    folder: Path = Path("paper")
    """Where experts and demonstrations are kept."""
    results: Path = Path("results/paper")
    """Where results are written."""
    preset: Literal["paper", "small"] = "paper"
    """The paper's experts, for a GPU; or a few hundred small ones."""
    learners: tuple[Literal["cql", "bcq"], ...] = ("cql", "bcq")
    """Who learns."""
    epsilons: tuple[float, ...] = (1.0, 2.5, 5.0, 7.5, 10.0)
    """At which epsilon our method and DP-SGD are compared, and which of the paper's are trained in
    published (it has 5, 7.5 and 10) and in grid (2.5 to 10); delta is 1 / experts."""
    seeds: int = 3
    """How many trainings of each method."""
    first_seed: int = 0
    """The first of them."""
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
    bound_steps: int = 20_000
    """Steps of the bound without privacy."""
    reward_scale: float | None = None
    """What rewards are multiplied by: as the world's units say, unless given."""
    raw: bool = False
    """Let learners see the world's numbers as they are, and not in its units."""
    commit: str | None = None
    """What to note as the commit, where the source is not in git."""
    settings: Settings = field(default_factory=Settings)

    def run(self) -> None:
        check_asked(self)
        from quorum_rl.distributed import prepare

        # Whoever is asked must round as those did who acted: no kernels are raced but in training.
        prepare(fast=self.stage == "experts")
        stages = MAIN_STAGES if self.stage == "main" else (self.stage,)
        self._check_before_anything_is_made(stages)
        for folder in (self._home, self.results):
            make_folder(folder)
        for stage in stages:
            begun = time.monotonic()
            getattr(self, f"_{stage}")()
            console().print(f"{self.world}, {stage}: {time.monotonic() - begun:.0f} s")

    def _check_before_anything_is_made(self, stages: tuple[str, ...]) -> None:
        from quorum_rl.envs import get_world

        world = get_world(self.world)  # or one sentence that names those there are
        if self.stage in ("published", "grid"):
            self._their_epsilons()
        check_makeable(self._home, self.results)
        for stage in stages:
            self._check_places(stage)
        if stages[0] in ("demonstrations", "counts"):
            self._require(self._expert_file, "experts")
        elif stages[0] != "experts":
            self._require(self._log_file, "demonstrations")
        if stages != ("demonstrations",):
            check_numbers(self, world)

    def _require(self, file: Path, stage: str) -> None:
        if not file.exists():
            raise QuorumError(f"{str(file)!r} is not there: run --stage {stage}.")

    def _check_places(self, stage: str) -> None:
        """Fail, as far as can be known before anything is done, if a result would be lost."""
        parts = [stage]
        if stage == "published":
            parts = [f"published-{epsilon:g}" for epsilon in self._their_epsilons()]
        elif stage == "counts":
            parts = [f"{count}-experts" for count in COUNTS]
        known = {
            "seeds": list(self._seeds),
            "episodes": self.episodes,
            "bound_steps": self.bound_steps,
            "settings": asdict(self._ours),
        }
        if stage in ("comparison", "counts"):
            known["epsilons"] = list(self.epsilons)
        for part, learner in product(parts, self.learners):
            name = f"{learner}-{part}{self._other_than_usual}"
            self._result(name, **known).check_place(self.results)

    @property
    def _seeds(self) -> range:
        return range(self.first_seed, self.first_seed + self.seeds)

    @property
    def _home(self) -> Path:
        return self.folder / self.world.lower()

    @property
    def _expert_file(self) -> Path:
        return self._home / "experts.safetensors"

    @property
    def _log_file(self) -> Path:
        return self._home / "demonstrations.arrow"

    def _result(self, stage: str, **configuration: Any) -> "Result":
        from quorum_rl.pipeline.results import Result

        chosen = {"preset": self.preset, "expert_seed": self.expert_seed} | configuration
        return Result(self.world, stage, chosen, self.commit)

    def _their_epsilons(self) -> tuple[float, ...]:
        return their_epsilons(self.stage, self.epsilons, usual=Paper.epsilons)

    @property
    def _other_than_usual(self) -> str:
        """What tells a result from the usual one of its stage, which it must not replace."""
        papers = self.stage in ("published", "ablation", "grid")
        ours = self.stage not in ("published", "grid")
        marks = [
            (self.raw, "raw"),
            (papers and self.steps is not None, f"{self.steps}-steps"),
            (self.reward_scale is not None, f"rewards-{self.reward_scale}"),
            (papers and self.paper_optimiser != "adam", self.paper_optimiser),
            (ours and self.settings != Settings(), "other-settings"),
        ]
        return self._other_experts + "".join(f"-{mark}" for differs, mark in marks if differs)

    @property
    def _other_experts(self) -> str:
        """The same for experts other than the usual."""
        preset = "" if self.preset == "paper" else f"-{self.preset}"
        usual = self.expert_seed == Paper.expert_seed
        return preset + ("" if usual else f"-seed-{self.expert_seed}")

    def _experts(self) -> None:
        from quorum_rl.cli.experts import Train

        Train(
            self.world,
            out=self._expert_file,
            preset=self.preset,
            candidates=3 if self.preset == "paper" else None,
            seed=self.expert_seed,
            fast=self.stage == "experts",  # as `run` has prepared this process
            overwrite=True,
        ).run()

    def _demonstrations(self) -> None:
        from quorum_rl.envs import get_world
        from quorum_rl.logs import save_demonstrations
        from reproduction.population import acted, described

        result = self._result(
            f"experts{self._other_experts}", trajectories=TRAJECTORIES, p_min=FLOOR
        )
        result.check_place(self.results)
        population, world = self._population(), get_world(self.world)
        log, experts = acted(population, world, FLOOR, TRAJECTORIES, self.expert_seed)
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
        console().print(str(result.save(self.results, found)))

    def _population(self) -> "Population":
        """The experts in the folder, if they are those that results would name."""
        from quorum_rl.envs import get_world
        from quorum_rl.experts import load_population
        from reproduction.population import check_origin

        self._require(self._expert_file, "experts")
        found = load_population(self._expert_file)
        check_origin(found, get_world(self.world), self.preset, self.expert_seed)
        return found

    def _study(self) -> "Study":
        """The experts and their log, as an earlier stage left them."""
        from quorum_rl.logs import open_demonstrations
        from quorum_rl.release import experts_who_acted

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

    def _study_of(self, log: "Demonstrations", experts: "LoggedExperts") -> "Study":
        from quorum_rl.envs import get_world
        from quorum_rl.pipeline import Study

        return Study(experts, log, get_world(self.world), 1 / log.expert_count, self._seeds)

    @property
    def _ours(self) -> FitSettings:
        return FitSettings(**asdict(self.settings))

    def _comparison(self) -> None:
        self._main_comparison("comparison", self._study())

    def _counts(self) -> None:
        """Fewer experts, spread evenly over all of them, with demonstrations of their own."""
        from quorum_rl.envs import get_world
        from reproduction.population import acted, some_of

        world, everyone = get_world(self.world), self._population()
        fewer = [count for count in COUNTS if count < len(everyone)]
        if not fewer:
            raise QuorumError(
                f"--stage counts takes {' or '.join(map(str, COUNTS))} of the experts, and there "
                f"are {len(everyone)}: --preset paper has more."
            )
        for count in fewer:
            some = some_of(everyone, count)
            study = self._study_of(*acted(some, world, FLOOR, TRAJECTORIES, self.expert_seed))
            self._main_comparison(f"{count}-experts", study, self._theirs_by_release)

    def _theirs_by_release(self, learner: str) -> "list[Method]":
        """The paper's settings without private steps, whose meaning hangs on no number of experts;
        at the largest ε, as in its figure."""
        from reproduction.columns import best_settings, published_column

        most = max(self.epsilons)
        return [
            published_column(one, optimiser=self.paper_optimiser)
            for one in best_settings(self.world, learner)
            if one.private_share == 0 and one.epsilon == most
        ]

    def _main_comparison(
        self, stage: str, study: "Study", theirs: "Callable[[str], list[Method]] | None" = None
    ) -> None:
        from reproduction.columns import main_columns

        ours = main_columns(self.epsilons, self._ours, self.bound_steps)
        self._compared(
            stage,
            study,
            lambda learner: ours if theirs is None else [*ours, *theirs(learner)],
            settings=asdict(self._ours),
            bound_steps=self.bound_steps,
            epsilons=list(self.epsilons),
        )

    def _published(self) -> None:
        from reproduction.columns import best_settings, published_column

        study = self._study()
        # A file for each: their trainings are long, and may be in processes of their own.
        for epsilon in self._their_epsilons():

            def methods(learner: str, epsilon: float = epsilon) -> "list[Method]":
                return [
                    published_column(one, self.steps, self.paper_optimiser)
                    for one in best_settings(self.world, learner)
                    if one.epsilon == epsilon
                ]

            self._compared(
                f"published-{epsilon:g}",
                study,
                methods,
                steps=self.steps,
                optimiser=self.paper_optimiser,
            )

    def _ablation(self) -> None:
        from reproduction.columns import ablation_columns

        steps = self.steps or SHORT_STEPS

        def methods(learner: str) -> "list[Method]":
            return ablation_columns(self.world, learner, steps, self._ours, self.paper_optimiser)

        self._compared(
            "ablation",
            self._study(),
            methods,
            steps=steps,
            optimiser=self.paper_optimiser,
            settings=asdict(self._ours),
        )

    def _grid(self) -> None:
        from reproduction.columns import grid_columns

        steps, epsilons = self.steps or SHORT_STEPS, self._their_epsilons()

        def methods(learner: str) -> "list[Method]":
            return grid_columns(self.world, learner, steps, epsilons, self.paper_optimiser)

        self._compared(
            "grid", self._study(), methods, GRID_FACTS, steps=steps, optimiser=self.paper_optimiser
        )

    def _compared(
        self,
        stage: str,
        study: "Study",
        methods: "Callable[[str], list[Method]]",
        facts: tuple[str, ...] | None = None,
        **configuration: Any,
    ) -> None:
        """Compare the methods of every learner, and write down what was found: of each method all
        there is to say, or these facts."""
        from quorum_rl.pipeline import compared
        from reproduction.columns import learner_of

        for name in self.learners:
            learner = learner_of(
                study.log.declared, name, reward_scale=self.reward_scale, raw=self.raw
            )
            result = self._result(
                f"{name}-{stage}{self._other_than_usual}",
                learner=name,
                learner_settings=repr(learner),
                seeds=list(study.seeds),
                episodes=self.episodes,
                **configuration,
            )
            result.check_place(self.results)
            with timed_bar(console(), f"{name}, steps") as update:
                found = compared(
                    study, learner, methods(name), episodes=self.episodes, progress=update
                )
            show_comparison(found)
            written = found.to_json()
            if facts is not None:
                written["methods"] = [
                    {key: one[key] for key in facts} for one in written["methods"]
                ]
            console().print(str(result.save(self.results, written)))
