"""`quorum demos`: collect demonstrations, look at them, bring your own."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from quorum_rl.cli.expert_files import Output, experts_from
from quorum_rl.cli.output import (
    begin_diagnostics,
    check_gymnasium_flags,
    check_new_file,
    check_seed,
    console,
    save_picture,
    show_facts,
)
from quorum_rl.errors import QuorumError

if TYPE_CHECKING:
    from quorum_rl.experts import Population, UnloggedExperts
    from quorum_rl.logs import Demonstrations

MINARI = "minari:"


@dataclass(frozen=True)
class Collect:
    """Let every expert act, and keep what they did.

    Experts are smoothed to the floor p_min first: afterwards it is too late.

    Example: quorum demos collect cartpole.safetensors --out cartpole.arrow
    """

    experts: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="EXPERTS")]
    """A file that 'quorum experts train' wrote."""
    out: Path
    """The file to write, Arrow."""
    trajectories: int = 20
    """Episodes per expert."""
    p_min: float = 0.02
    """The floor under every action's probability; 0 leaves the experts as they are."""
    smoothing: Literal["greedy", "uniform mixture"] = "greedy"
    """How the floor is reached: near-greedy as in the paper, or mixing with the uniform policy."""
    world: str | None = None
    """The world, where it is in a Python file of yours: path/to/file.py:NAME."""
    param: dict[str, float] = field(default_factory=dict)
    """World parameters to change, such as --param time_limit 500."""
    gymnasium: str | None = None
    """Act in this Gymnasium environment instead of the world; needs --horizon."""
    horizon: int | None = None
    """The time limit of the Gymnasium environment, which you declare."""
    gymnasium_param: dict[str, float] = field(default_factory=dict)
    """Its parameters to change, such as --gymnasium-param gravity -9.8 enable_wind 1."""
    workers: int | None = None
    """Processes that step the Gymnasium environment: as many as there are cores unless given."""
    minimum_experts: int | None = None
    """How many experts there are at least: a public fact that the guarantee will count on."""
    seed: int | None = None
    """For reproduction only: without it, chance comes from the operating system."""
    overwrite: bool = False
    """Replace the file if it exists."""

    def run(self) -> None:
        from quorum_rl.distributed import prepare

        check_new_file(self.out, overwrite=self.overwrite)
        if (self.gymnasium is None) != (self.horizon is None):
            raise QuorumError("--gymnasium and --horizon go together: give both or neither.")
        if self.gymnasium is not None and (self.param or self.world):
            raise QuorumError(
                "--param and --world do not go with --gymnasium: use --gymnasium-param instead."
            )
        check_gymnasium_flags(self.gymnasium, self.gymnasium_param, self.workers)
        check_seed(self.seed)
        prepare()
        from quorum_rl.distributed import is_first, join
        from quorum_rl.experts import load_population, smoothed_by
        from quorum_rl.logs import save_demonstrations

        if self.gymnasium is None:  # whose environments one process steps, with workers of its own
            join()
        population = load_population(self.experts)
        acting = smoothed_by(self.smoothing, population, self.p_min) if self.p_min else population
        demonstrations = self._collected(population, acting)
        if not is_first():  # all have all
            return
        save_demonstrations(demonstrations, self.out)
        kept = "reproducible chance: not private against who knows the seed; "
        console().print(
            f"{kept if self.seed is not None else ''}{self.trajectories} trajectories of every "
            f"expert, floor {demonstrations.declared.p_min:g}: {self.out}"
        )

    def _collected(self, population: "Population", acting: "UnloggedExperts") -> "Demonstrations":
        from quorum_rl.cli.training import world_of
        from quorum_rl.distributed import usable_cores
        from quorum_rl.envs import with_params
        from quorum_rl.logs import collect, collect_from_gymnasium

        if self.gymnasium is not None and self.horizon is not None:
            log, _ = collect_from_gymnasium(
                acting,
                self.gymnasium,
                self.gymnasium_param,
                trajectories=self.trajectories,
                horizon=self.horizon,
                minimum_experts=self.minimum_experts,
                workers=self.workers or usable_cores(),
                seed=self.seed,
            )
            return log
        world = world_of(population, self.world)
        params = with_params(world, **self.param)
        log, _ = collect(
            acting,
            world,
            params,
            trajectories=self.trajectories,
            minimum_experts=self.minimum_experts,
            seed=self.seed,
        )
        return log


@dataclass(frozen=True)
class Show:
    """Say what was declared about a file of demonstrations; nothing that is private.

    Example: quorum demos show cartpole.arrow
    """

    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """A file that 'quorum demos collect' or 'quorum demos import' wrote."""
    json: bool = False
    """Print machine-readable facts."""

    def run(self) -> None:
        from quorum_rl.logs import open_demonstrations

        facts = asdict(open_demonstrations(self.file).declared)
        show_facts(facts, as_json=self.json)


@dataclass(frozen=True)
class Import:
    """Bring your own logs: a Parquet or CSV table with one row per transition, or a Minari dataset.

    Columns: expert, episode, step, observation_0 … (or observation, a list), action, reward,
    terminated, truncated; next_observation_… where you have them. A Minari dataset has the expert
    of an episode in its metadata.

    Example: quorum demos import logs.parquet --actions 4 --observations 6 --horizon 200
    --out logs.arrow
    """

    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE")]
    """The .parquet or .csv file, or minari:NAME for a Minari dataset on this machine."""
    out: Path
    """The file to write, Arrow."""
    actions: int | None = None
    """How many actions there are: a public fact, so you declare it. Only a file that Quorum
    exported says this and the next two itself."""
    observations: int | None = None
    """How many numbers an observation has."""
    horizon: int | None = None
    """The time limit under which the experts acted: declared, never measured."""
    p_min: float | None = None
    """The floor under every probability of the policies that acted, if you promise one."""
    minimum_experts: int | None = None
    """How many experts there are at least: a public fact that the guarantee will count on."""
    minimum_trajectories: int | None = None
    """How many trajectories every expert has at least: a release then reserves fewer than that."""
    columns: dict[str, str] = field(default_factory=dict)
    """What columns of the table are called where it is not as above, such as --columns expert desk
    observation price,volume."""
    early_truncation_is_public: bool = False
    """I promise that episodes truncated before the horizon followed a public rule."""
    overwrite: bool = False
    """Replace the file if it exists."""

    def run(self) -> None:
        from quorum_rl.logs import (
            Declared,
            columns_named,
            read_minari,
            read_table,
            save_demonstrations,
        )

        check_new_file(self.out, overwrite=self.overwrite)
        declared = None
        needed = (self.actions, self.observations, self.horizon)
        if any(number is not None for number in needed) or self.p_min is not None:
            if self.actions is None or self.observations is None or self.horizon is None:
                raise QuorumError("--actions, --observations and --horizon go together: give all.")
            declared = Declared(
                action_count=self.actions,
                observation_size=self.observations,
                horizon=self.horizon,
                p_min=self.p_min,
                minimum_experts=self.minimum_experts,
                minimum_trajectories=self.minimum_trajectories,
                early_truncation_is_public=self.early_truncation_is_public,
            )
        if self.source.startswith(MINARI):
            demonstrations = read_minari(self.source.removeprefix(MINARI), declared)
        else:
            named = {
                name: given.split(",") if "," in given else given
                for name, given in self.columns.items()
            }
            demonstrations = read_table(Path(self.source), declared, columns_named(named))
        save_demonstrations(demonstrations.of_at_least(self.minimum_experts), self.out)
        console().print(f"imported: {self.out}")


@dataclass(frozen=True)
class Export:
    """Write demonstrations as a Parquet or CSV table, or as a Minari dataset.

    Example: quorum demos export cartpole.arrow --out cartpole.parquet
    """

    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """A file of demonstrations."""
    out: str
    """The .parquet or .csv file to write, or minari:NAME for a new Minari dataset."""
    overwrite: bool = False
    """Replace the file if it exists."""

    def run(self) -> None:
        from quorum_rl.logs import open_demonstrations, write_minari, write_table

        if self.out.startswith(MINARI):
            write_minari(open_demonstrations(self.file), self.out.removeprefix(MINARI))
        else:
            check_new_file(Path(self.out), overwrite=self.overwrite)
            write_table(open_demonstrations(self.file), Path(self.out))
        console().print(f"exported: {self.out}")


@dataclass(frozen=True)
class Agreement:
    """Measure how long the experts agree along sampled trajectories, and draw the curve.

    This looks at private data without noise: it needs --diagnostics-not-private.

    Example: quorum demos agreement cartpole.arrow cartpole.safetensors --picture a.png
    --diagnostics-not-private
    """

    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """A file of demonstrations."""
    experts: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="EXPERTS")]
    """The experts who made them: a file of 'quorum experts train', or ONNX files (a folder, a
    pattern in quotes, or a .txt file that lists them)."""
    experts_output: Output = "probabilities"
    """What ONNX experts answer."""
    picture: Path | None = None
    """Where to draw the curve: .png or .svg."""
    trajectories: int = 200
    """How many trajectories are sampled."""
    seed: int = 0
    """Another number, other trajectories."""
    json: bool = False
    """Print the whole curve, machine-readable."""
    diagnostics_not_private: bool = False
    """I know that the result is not private and must not be published about real experts."""

    def run(self) -> None:
        accepted = self.diagnostics_not_private
        begin_diagnostics("the agreement of the experts", accepted, self.picture, self.seed)
        from quorum_rl.logs import agreement_curve, open_demonstrations

        demonstrations = open_demonstrations(self.file)
        experts = experts_from(self.experts, demonstrations, self.experts_output)
        curve = agreement_curve(
            experts, demonstrations, trajectories=self.trajectories, seed=self.seed
        )
        if self.json:
            print(json.dumps({"mean": curve.mean.tolist(), "quantiles": curve.quantiles.tolist()}))
        else:
            for steps in (1, 5, 10, 20, 40, 100, 200):
                if steps <= len(curve.mean):
                    console().print(f"{steps:>5} steps: mean agreement {curve.mean[steps - 1]:.4f}")
        if self.picture is not None:
            from quorum_rl.report import draw_agreement

            declared = demonstrations.declared
            title = f"{declared.world or self.file.name}, floor {declared.p_min}"
            save_picture(draw_agreement(curve, title), self.picture)


@dataclass(frozen=True)
class Demos:
    """The demonstrations, what the experts did: collect, show, import, export, agreement."""

    command: (
        Annotated[Collect, tyro.conf.subcommand("collect")]
        | Annotated[Show, tyro.conf.subcommand("show")]
        | Annotated[Import, tyro.conf.subcommand("import")]
        | Annotated[Export, tyro.conf.subcommand("export")]
        | Annotated[Agreement, tyro.conf.subcommand("agreement")]
    )

    def run(self) -> None:
        self.command.run()
