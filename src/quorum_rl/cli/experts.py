"""`quorum experts`: train a population, and look at one."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from quorum_rl import envs, experts, report
from quorum_rl.cli.flags import DiagnosticFlags, NewFile, WorldFlags, given, usual_floor
from quorum_rl.cli.output import save_picture, show_facts, start_jax
from quorum_rl.cli.parser import RUNS_CODE, Positional


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

    common: ClassVar = ("out", "preset", "settings", "candidates", "count", "steps", "seed", "fast",
                        "overwrite")  # fmt: skip

    def run(self) -> None:
        self.check_new()
        start_jax(fast=self.fast, together=True)
        from quorum_rl.cli.expert_training import train

        train(self)

    def planned(self, world: "envs.AnyWorld") -> "experts.Preset":
        """The preset with the flags' changes."""
        base = experts.preset(world, self.preset)
        plan, recipe = base.plan, base.recipe
        asked = given(self, "settings candidates learning_rates batch_slices")
        asked |= {"total_steps": self.steps, "experts": self.count}
        if self.settings is not None and self.count is None:
            asked["experts"] = max(1, round(plan.experts / plan.settings * self.settings))
        changed = {name: value for name, value in asked.items() if value is not None}
        hidden = recipe.hidden if self.hidden is None else self.hidden
        return experts.Preset(replace(plan, **changed), replace(recipe, hidden=hidden))


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
        population = experts.load_population(self.file)
        facts = {
            **given(population, "observation_size action_count"),
            **({"action_bounds": population.action_bounds} if population.action_bounds else {}),
            "hidden": [layer.bias.shape[-1] for layer in population.network[:-1]],
            "declared_floor": population.p_min,
            **population.origin,
        }
        show_facts(facts, as_json=self.json)


@dataclass(frozen=True, kw_only=True)
class Returns(WorldFlags, DiagnosticFlags):
    """Measure how good each expert is on the default world, and draw the histogram.

    This looks at single experts, so it is no release: it needs --diagnostics-not-private.

    Example: quorum experts returns cartpole.safetensors --picture r.png --diagnostics-not-private
    """

    file: Annotated[Path, Positional("EXPERTS")]
    """A file that 'quorum experts train' wrote."""
    p_min: float | None = None
    """The floor to which experts are smoothed before they act, 0.02 if not given; 0 for greedy
    ones. Continuous actions have none: without it experts act with their own spread."""
    episodes: int = 20
    """Episodes per expert."""

    def run(self) -> None:
        self.begin("the returns of single experts")
        import numpy as np

        population = experts.load_population(self.file)
        world, params = self.world_of(population)
        options = given(self, "episodes seed")
        p_min = usual_floor(self.p_min, population)
        returns = experts.default_returns(population, world, params, p_min=p_min, **options)
        quantiles = np.quantile(returns, [0.05, 0.25, 0.5, 0.75, 0.95])
        facts = {
            "experts": len(returns),
            "mean": float(returns.mean()),
            "standard_deviation": float(returns.std()),
            "quantiles_5_25_50_75_95": quantiles.tolist(),
        }
        said = f"{len(returns)} experts on the default world: mean {facts['mean']:.4g}, "
        said += "5/25/50/75/95% " + " ".join(f"{value:.4g}" for value in quantiles)
        show_facts(facts, said, as_json=self.json)
        if self.picture is not None:
            figure = report.draw_returns(returns, world.name, log_scale=world.name == "HIV")
            save_picture(figure, self.picture)
