"""`quorum experts`: train a population, and look at one."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from quorum_rl.cli.flags import DiagnosticFlags, NewFile
from quorum_rl.cli.output import check_seed, console, save_picture, show_facts
from quorum_rl.cli.parser import RUNS_CODE, Positional

if TYPE_CHECKING:
    from quorum_rl.envs import AnyWorld
    from quorum_rl.experts import Preset


@dataclass(frozen=True, kw_only=True)
class Train(NewFile):
    """Train experts on the variations of a world, all of them at once.

    Every setting of the world gets several candidates (learning rates, batch sizes); the best of
    each, judged on their own setting, become experts. Ctrl-C stops after the steps under way; the
    same command goes on from there.

    Example: quorum experts train CartPole --preset small --out cartpole.safetensors
    """

    world: Annotated[str, Positional("WORLD"), RUNS_CODE]
    """A world's name, or path/to/file.py:NAME for your own."""
    out: Path
    """The file to write, safetensors."""
    preset: Literal["paper", "small"] = "paper"
    """The paper's scale, for a GPU; or a few hundred small experts, minutes on two cores."""
    settings: int | None = None
    """How many variations of the world; otherwise as the preset says."""
    candidates: int | None = None
    """Agents per setting: the learning rates first, then the batch sizes."""
    count: int | None = None
    """How many of the agents become experts."""
    steps: int | None = None
    """Environment steps per agent."""
    hidden: tuple[int, ...] | None = None
    """Sizes of the hidden layers."""
    learning_rates: tuple[float, ...] | None = None
    """The candidates' learning rates."""
    batch_slices: tuple[int, ...] | None = None
    """The candidates' batch sizes, in slices of the recipe."""
    seed: int = 0
    """The same seed gives the same experts on the same machine."""
    fast: bool = False
    """On a GPU, race kernels for the fastest: a quarter less time, but not the same bits again."""
    half_precision: bool = False
    """Store weights as bfloat16: half the file, slightly other experts."""

    renamed: ClassVar = {"experts": "count"}
    common: ClassVar = ("out", "preset", "settings", "candidates", "count", "steps", "seed", "fast",
                        "overwrite")  # fmt: skip

    def run(self) -> None:
        from quorum_rl.distributed import prepare

        self.check_new()
        check_seed(self.seed)
        prepare(fast=self.fast)
        from quorum_rl.cli.expert_training import train
        from quorum_rl.distributed import join

        join()
        train(self)

    def planned(self, world: "AnyWorld") -> "Preset":
        """The preset with the flags' changes."""
        from quorum_rl.experts import Preset, preset

        base = preset(world, self.preset)
        share = base.plan.experts / base.plan.settings
        asked: dict[str, Any] = {
            "settings": self.settings,
            "candidates": self.candidates,
            "total_steps": self.steps,
            "learning_rates": self.learning_rates,
            "batch_slices": self.batch_slices,
            "experts": self.count,
        }
        if self.settings is not None and self.count is None:
            asked["experts"] = max(1, round(share * self.settings))
        plan = replace(
            base.plan, **{name: value for name, value in asked.items() if value is not None}
        )
        if self.hidden is None:
            return Preset(plan, base.recipe)
        return Preset(plan, replace(base.recipe, hidden=self.hidden))


@dataclass(frozen=True)
class Show:
    """Say what a file of experts holds.

    Example: quorum experts show cartpole.safetensors
    """

    file: Annotated[Path, Positional("EXPERTS")]
    """A file that 'quorum experts train' wrote."""
    json: bool = False
    """Print machine-readable facts."""

    def run(self) -> None:
        from quorum_rl.experts import load_population

        population = load_population(self.file)
        facts: dict[str, Any] = {
            "observation_size": population.observation_size,
            "action_count": population.action_count,
            "hidden": [layer.bias.shape[-1] for layer in population.network[:-1]],
            "declared_floor": population.p_min,
            **population.origin,
        }
        show_facts(facts, as_json=self.json)


@dataclass(frozen=True, kw_only=True)
class Returns(DiagnosticFlags):
    """Measure how good each expert is on the default world, and draw the histogram.

    This looks at single experts, so it is no release: it needs --diagnostics-not-private.

    Example: quorum experts returns cartpole.safetensors --picture r.png --diagnostics-not-private
    """

    file: Annotated[Path, Positional("EXPERTS")]
    """A file that 'quorum experts train' wrote."""
    p_min: float = 0.02
    """The floor to which experts are smoothed before they act; 0 for greedy ones."""
    episodes: int = 20
    """Episodes per expert."""
    world: Annotated[str | None, RUNS_CODE] = None
    """The world, where it is in a Python file of yours: path/to/file.py:NAME."""
    param: dict[str, float] = field(default_factory=dict)
    """World parameters to change, such as --param time_limit 1000."""

    def run(self) -> None:
        self.begin("the returns of single experts")
        import numpy as np

        from quorum_rl.cli.expert_training import world_of
        from quorum_rl.envs import with_params
        from quorum_rl.experts import default_returns, load_population

        population = load_population(self.file)
        world = world_of(population, self.world)
        params = with_params(world, **self.param)
        returns = default_returns(
            population, world, params, episodes=self.episodes, p_min=self.p_min, seed=self.seed
        )
        quantiles = np.quantile(returns, [0.05, 0.25, 0.5, 0.75, 0.95])
        facts = {
            "experts": len(returns),
            "mean": float(returns.mean()),
            "standard_deviation": float(returns.std()),
            "quantiles_5_25_50_75_95": quantiles.tolist(),
        }
        if self.json:
            show_facts(facts, as_json=True)
        else:
            shown = " ".join(f"{value:.4g}" for value in quantiles)
            console().print(
                f"{len(returns)} experts on the default world: mean {facts['mean']:.4g}, "
                f"5/25/50/75/95% {shown}"
            )
        if self.picture is not None:
            from quorum_rl.report import draw_returns

            figure = draw_returns(returns, world.name, log_scale=world.name == "HIV")
            save_picture(figure, self.picture)
