"""A population at a glance: how good its experts are, and how long they agree."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from quorum_rl.envs import AnyWorld, get_world, world_names
from quorum_rl.errors import QuorumError
from quorum_rl.experts import LoggedExperts, Population, default_returns, preset
from quorum_rl.experts.ppo.plan import PresetName
from quorum_rl.logs import Demonstrations, agreement_curve, collect

FLOOR = 0.02  # under which no action's probability is
TRAJECTORIES = 20
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
BINS = 40
LONGEST_PREFIX = 100  # of a curve that is written down


def check_origin(population: Population, world: AnyWorld, name: PresetName, seed: int) -> None:
    """Fail if experts came to be in another way than results would say; what is not known passes.

    Raises:
        QuorumError: naming what differs.
    """
    usual = preset(world, name)
    expected = {
        "world": world.name,
        "seed": seed,
        "experts": usual.plan.experts,  # public, as everything that is computed from it
        "total_steps": usual.plan.total_steps,
        "hidden": list(usual.recipe.hidden),
    }
    for what, value in expected.items():
        there = population.origin.get(what, value)
        if there != value:
            raise QuorumError(
                f"the experts in the folder have {what} = {there}, and those of --preset {name} "
                f"--expert-seed {seed} in {world.name} have {value}: say whose they are, or give "
                "another --folder."
            )


def world_trained_on(origin: Mapping[str, Any]) -> AnyWorld:
    """The world of experts; a file of theirs may not name a Python file that would be run.

    Raises:
        QuorumError: if it is none of Quorum's own.
    """
    name = str(origin.get("world"))
    if name not in world_names():
        raise QuorumError(f"these experts were trained on {name!r}: give those of a shipped world.")
    return get_world(name)


def described(
    population: Population,
    world: AnyWorld,
    log: Demonstrations,
    experts: LoggedExperts,
    *,
    episodes: int,
    curve_trajectories: int,
    seed: int,
) -> dict[str, Any]:
    """What can be said of a population whose smoothed `experts` made the log.

    Not private: for synthetic experts.
    """
    returns = default_returns(
        population, world, world.default_params(), episodes=episodes, p_min=experts.p_min, seed=seed
    )
    curve = agreement_curve(experts, log, trajectories=curve_trajectories, seed=seed)
    heights, edges = np.histogram(returns, bins=BINS)
    return {
        "experts": len(population),
        "transitions": log.transition_count,
        "mean_return": float(returns.mean()),
        "return_quantiles": dict(
            zip(map(str, QUANTILES), np.quantile(returns, QUANTILES).tolist(), strict=True)
        ),
        "histogram": {"counts": heights.tolist(), "edges": edges.tolist()},
        "agreement": {
            "mean": curve.mean[:LONGEST_PREFIX].tolist(),
            "trajectories": curve.trajectories[:LONGEST_PREFIX].tolist(),
        },
    }


def acted(
    population: Population, world: AnyWorld, *, seed: int, trajectories: int = TRAJECTORIES
) -> tuple[Demonstrations, LoggedExperts]:
    """What the smoothed experts do in the default world."""
    return collect(
        population.smoothed(FLOOR),
        world,
        trajectories=trajectories,
        minimum_experts=len(population) - 1,
        seed=seed,
    )


def own_returns(log: Demonstrations) -> npt.NDArray[np.float64]:
    """What each expert earned in the mean of its episodes. Shapes: (experts,)."""
    return np.array(
        [
            np.mean([log.episode(episode).rewards.sum() for episode in log.episodes_of(expert)])
            for expert in range(log.expert_count)
        ]
    )


def some_of(population: Population, count: int) -> Population:
    """So many of the experts, spread evenly over all of them."""
    chosen = np.arange(count) * len(population) // count
    network = jax.tree.map(lambda leaf: leaf[chosen], population.network)
    return replace(population, network=network)
