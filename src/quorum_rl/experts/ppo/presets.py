"""How each world's experts are trained: the paper's scale, and one that fits a laptop.

The paper gives settings, network sizes, "updates" (1e6, HIV 2e6; we read environment steps) and
the number of experts. Everything else here is ours, found by trying.
"""

import os
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import jax

from quorum_rl.distributed import own_share
from quorum_rl.envs import AnyWorld
from quorum_rl.experts.ppo.agent import PpoRecipe
from quorum_rl.experts.ppo.iteration import VALUE_STEPS
from quorum_rl.experts.ppo.plan import Plan

PresetName = Literal["paper", "small"]


@dataclass(frozen=True)
class Preset:
    """A plan and the recipe that goes with it."""

    plan: Plan
    recipe: PpoRecipe


def preset(world: AnyWorld, name: PresetName) -> Preset:
    """The preset of a world; one that comes without Quorum is treated like CartPole."""
    available = len(world.settings().time_limit)
    if world.name == "LunarLander":
        return _lander(name)
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
