"""Who is trained on what, and who becomes an expert: the paper's scheme.

Every setting of a world gets several candidates, which differ in learning rate and batch size. They
are judged on their own setting; the best `experts / settings` of each setting become experts. Where
that is no whole number (HIV: 3000 of 2000 settings), the best of the next rank fill up.

A preset is a plan and a recipe for a world: at the paper's scale, or small enough for a laptop. The
paper gives settings, network sizes, "updates" (1e6, HIV 2e6; we read environment steps) and the
number of experts. Everything else here is ours, found by trying.
"""

import os
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from quorum_rl.distributed import own_share
from quorum_rl.envs import AnyWorld
from quorum_rl.errors import POSITIVE, QuorumError, Rule, at_least, require
from quorum_rl.experts.ppo.agent import PpoRecipe, Tuning
from quorum_rl.experts.ppo.iteration import VALUE_STEPS

MOST: Final = 10**12  # of anything in a plan: more is a slip of the finger
COUNT: Final = Rule(f"1 to {MOST:,}", lambda value: at_least(1).holds(value) and value <= MOST)


def each(words: str, rule: Rule) -> Rule:
    """At least one value, each of which keeps `rule`."""
    return Rule(words, lambda values: bool(values) and all(map(rule.holds, values)))


@dataclass(frozen=True)
class Plan:
    """How many settings, candidates for each, and experts in the end.

    Candidate c has learning rate c modulo their number; when all rates have been used, the next
    batch size is. Three candidates thus differ in rates, six in batch sizes too.
    """

    settings: int
    candidates: int
    experts: int
    total_steps: int
    judging_episodes: int = 10
    learning_rates: tuple[float, ...] = (1e-3, 3e-4, 1e-4)
    batch_slices: tuple[int, ...] = (1, 2)  # batch sizes, in slices of the recipe

    def __post_init__(self) -> None:
        for name in ("settings", "candidates", "experts", "total_steps", "judging_episodes"):
            require(name, getattr(self, name), COUNT)
        require("learning_rates", self.learning_rates, each("numbers above 0", POSITIVE))
        require("batch_slices", self.batch_slices, each("whole numbers above 0", at_least(1)))
        if self.experts > self.agents:
            raise QuorumError(
                f"{self.experts} experts cannot be chosen from {self.agents} agents "
                f"({self.settings} settings × {self.candidates} candidates): ask for fewer experts "
                "or more candidates."
            )

    @property
    def agents(self) -> int:
        return self.settings * self.candidates

    def iterations(self, recipe: PpoRecipe) -> int:
        """As many as it takes to make `total_steps` steps in every agent's world."""
        return -(-self.total_steps // recipe.steps_per_iteration)


def tunings(world: AnyWorld, plan: Plan, recipe: PpoRecipe) -> Tuning:
    """One agent per setting and candidate, the candidates of a setting next to each other.

    With fewer settings than the world has, those chosen are spread evenly over its grid.
    """
    every = world.settings()
    available = len(every.time_limit)
    if plan.settings > available:
        raise QuorumError(
            f"{world.name} has {available} settings, not {plan.settings}: ask for fewer."
        )
    chosen = np.linspace(0, available - 1, plan.settings).round().astype(int)
    setting = np.repeat(chosen, plan.candidates)
    candidate = np.tile(np.arange(plan.candidates), plan.settings)
    rates, slices = len(plan.learning_rates), len(plan.batch_slices)
    for batch in plan.batch_slices[: -(-plan.candidates // rates)]:
        if recipe.slices % batch:
            raise QuorumError(
                f"a batch of {batch} slices does not divide the {recipe.slices} slices of an "
                "iteration: choose other batch sizes."
            )
    return Tuning(
        learning_rate=jnp.asarray(plan.learning_rates)[candidate % rates],
        slices_per_update=jnp.asarray(plan.batch_slices)[candidate // rates % slices],
        params=jax.tree.map(lambda leaf: np.asarray(leaf)[setting], every),
        number=jnp.arange(plan.agents),
    )


def chosen_agents(plan: Plan, returns: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """The agents that become experts, in the order of their numbers.

    Shapes: `returns` is `(agents,)`, each on its agent's own setting; the result `(experts,)`.
    """
    by_setting = returns.reshape(plan.settings, plan.candidates)
    order = np.argsort(-by_setting, axis=1, kind="stable")
    agents = order + plan.candidates * np.arange(plan.settings)[:, None]
    whole, rest = divmod(plan.experts, plan.settings)
    sure = agents[:, :whole].ravel()
    if rest == 0:
        return np.sort(sure)
    runners_up = agents[:, whole]
    best = np.argsort(-returns[runners_up], kind="stable")[:rest]
    return np.sort(np.concatenate([sure, runners_up[best]]))


# --- presets ---

PresetName = Literal["paper", "small"]


@dataclass(frozen=True)
class Preset:
    """A plan and the recipe that goes with it."""

    plan: Plan
    recipe: PpoRecipe


def preset(world: AnyWorld, name: PresetName) -> Preset:
    """The preset of a world; one that comes without Quorum is treated like CartPole."""
    available = len(world.settings().time_limit)
    if world.name.startswith("LunarLander"):
        return _lander(name)
    if world.name == "Pendulum":
        return _pendulum(name)
    if world.name in ("Breakout", "SpaceInvaders"):
        return _pictured(name)
    if name == "small":
        settings = min(150, available)
        steps = {"Acrobot": 70_000, "HIV": 35_000}.get(world.name, 50_000)
        plan = Plan(
            settings=settings, candidates=3, experts=2 * settings, total_steps=steps,
            learning_rates=(1e-3, 5e-4, 2e-3),
        )  # fmt: skip
        recipe = PpoRecipe(hidden=(64, 64), copies=16, roll_out_steps=64, slice_size=256, epochs=4)
        if world.name == "HIV":
            recipe = replace(recipe, roll_out_steps=50, slice_size=200)
        return Preset(plan, recipe)
    half = jax.default_backend() == "gpu"
    if world.name == "HIV":
        # Episodes last 50 steps, and so do roll-outs; many copies, since 100 sub-steps in a row
        # leave a GPU waiting unless there are many worlds.
        plan = Plan(settings=2000, candidates=3, experts=3000, total_steps=2_000_000)
        recipe = PpoRecipe(
            hidden=(512,), copies=128, roll_out_steps=50, slice_size=1600, half_precision=half
        )
        return Preset(plan, recipe)
    plan = Plan(settings=available, candidates=6, experts=3 * available, total_steps=1_000_000)
    if world.name == "CartPole":
        # Easy: only rates this far apart make experts that differ in how good they are.
        plan = replace(plan, learning_rates=(1e-3, 1e-4, 1e-5))
    return Preset(plan, PpoRecipe(half_precision=half))


def _lander(name: PresetName) -> Preset:
    """Landing needs foresight: a discount near one, little entropy, and many small updates.

    Of 24 choices of discount, trace decay, entropy and learning rate, tried on 8 settings each, all
    but a few land; these land best.
    """
    recipe = PpoRecipe(
        roll_out_steps=128, slice_size=1024, epochs=4, discount=0.995, entropy_weight=0.001,
        half_precision=jax.default_backend() == "gpu",
    )  # fmt: skip
    if name == "paper":
        return Preset(Plan(settings=1000, candidates=3, experts=3000, total_steps=10**6), recipe)
    # Its solver makes this world a hundred times slower on a CPU than the others: fewer agents.
    plan = Plan(
        settings=50, candidates=2, experts=100, total_steps=250_000, learning_rates=(1e-3, 5e-4)
    )
    return Preset(plan, replace(recipe, hidden=(64, 64), copies=16, slice_size=256))


def _pendulum(name: PresetName) -> Preset:
    """What a torque does shows within a second: a discount that looks no further learns fastest."""
    recipe = PpoRecipe(
        roll_out_steps=128, slice_size=1024, epochs=10, discount=0.9, entropy_weight=0.0
    )
    rates = (1e-3, 5e-4, 2e-3)  # lower ones have not learned to swing up by then
    if name == "paper":
        plan = Plan(
            settings=1000, candidates=3, experts=3000, total_steps=500_000, learning_rates=rates
        )
        return Preset(plan, replace(recipe, half_precision=jax.default_backend() == "gpu"))
    plan = Plan(settings=150, candidates=3, experts=300, total_steps=120_000, learning_rates=rates)
    return Preset(plan, replace(recipe, hidden=(64, 64), copies=16, slice_size=256))


def _pictured(name: PresetName) -> Preset:
    """A picture has hundreds of inputs, and a reward comes ten steps after what earned it."""
    recipe = PpoRecipe(slice_size=1024, epochs=4)
    if name == "paper":
        plan = Plan(settings=1000, candidates=3, experts=3000, total_steps=2_000_000)
        return Preset(plan, replace(recipe, half_precision=jax.default_backend() == "gpu"))
    plan = Plan(
        settings=50, candidates=2, experts=100, total_steps=300_000, learning_rates=(1e-3, 2e-3)
    )
    return Preset(plan, replace(recipe, hidden=(64, 64), copies=16, slice_size=256))


def agents_per_wave(world: AnyWorld, plan: Plan, recipe: PpoRecipe) -> int:
    """How many agents to train at once, so that equal waves fit this process's devices."""
    fit = max(1, int(0.8 * _memory() / _bytes_per_agent(world, recipe)))
    count = max(1, len(range(plan.agents)[own_share(plan.agents)]))
    waves = -(-count // fit)
    return -(-count // waves)


def _bytes_per_agent(world: AnyWorld, recipe: PpoRecipe) -> int:
    """An estimate, a quarter above what 3000 agents of the paper's size took."""
    sizes = (world.spaces.observation_size, *recipe.hidden, 1)
    weights = 2 * sum(before * after for before, after in pairwise(sizes))
    width = 2 if recipe.half_precision else 4
    # Weights, two moments, the gathered gradient and a new one, and a copy in low precision.
    optimiser = weights * (5 * 4 + width)
    rows = max(recipe.slice_size, 2 * VALUE_STEPS * recipe.copies)
    activations = 2 * rows * sum(recipe.hidden) * width
    trace = recipe.steps_per_iteration * (3 * sizes[0] + 12) * 4
    return optimiser + activations + trace


def _memory() -> int:
    """Bytes, of this process's devices; a CPU's devices share the machine's memory."""
    device = jax.local_devices()[0]
    if device.platform == "cpu":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    stats = device.memory_stats() or {}
    return len(jax.local_devices()) * int(stats.get("bytes_limit", 8 << 30))
