"""Training a population: waves of agents, each wave in compiled chunks of iterations.

A wave is as many agents as fit the devices at once; between two chunks the host can report, save
and stop. What an agent becomes depends on the seed and its number alone, not on waves, chunks or
interruptions; up to rounding, where another number of agents per device changes how sums are made.
Of several processes each trains its share, and in the end all have all.

A standing says where training stands. It is kept on disk, so that an interrupted training goes on
as if nothing had happened.
"""

import json
import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from quorum_rl.dictionary import Bounds
from quorum_rl.distributed import joined, over_experts, own_share, padded, placed
from quorum_rl.envs import AnyWorld
from quorum_rl.errors import QuorumError
from quorum_rl.experts.evaluation import population_returns
from quorum_rl.experts.heads import stretched
from quorum_rl.experts.networks import Array, Network, folded
from quorum_rl.experts.ppo.agent import Agent, PpoRecipe, Tuning, new_agent
from quorum_rl.experts.ppo.iteration import Earned, population_iteration
from quorum_rl.experts.ppo.plan import Plan, chosen_agents, tunings
from quorum_rl.tensors import (
    Tensors,
    map_tensors,
    numbered_leaves,
    parsed_object,
    refusing_damage,
    whole_number,
    write_tensors,
)

KEY: Final = "quorum_rl.standing"


@dataclass(frozen=True)
class PopulationProgress:
    """Where training stands after a chunk, in environment steps of all agents together."""

    steps: int
    total_steps: int
    mean_return: float  # of the episodes that ended in the chunk; NaN if none did


class JudgedAgents(NamedTuple):
    """The agents of finished waves, as policies that see raw observations, and their returns."""

    network: Network  # leaves (agents, …)
    returns: npt.NDArray[np.float32]  # (agents,), on the own setting


class WaveState(NamedTuple):
    """Everything needed to go on later: finished waves, and the wave under way.

    Behind its `under_way` agents may come copies that filled up the devices.
    """

    judged: JudgedAgents | None
    agents: Agent | None
    iteration: int
    under_way: int


class Stopped(Exception):  # noqa: N818 - not an error: somebody asked for it
    """Training was asked to stop; `standing` is where to go on."""

    def __init__(self, standing: WaveState) -> None:
        super().__init__("training was asked to stop")
        self.standing = standing


def train_population(
    world: AnyWorld,
    plan: Plan,
    recipe: PpoRecipe,
    *,
    seed: int,
    agents_per_wave: int | None = None,
    iterations_per_chunk: int = 8,
    standing: WaveState | None = None,
    report: Callable[[PopulationProgress, WaveState], bool] | None = None,
) -> tuple[JudgedAgents, npt.NDArray[np.intp]]:
    """All agents of `plan`, trained and judged, and the numbers of those that become experts.

    `report` is called after every chunk; when it returns True, training stops. Unless it does, the
    memory of the agents it is shown is used again once it returns: to keep them, save them. Of
    several processes each reports, stops and resumes its own share.

    Raises:
        Stopped: when `report` asked for it.
    """
    share = own_share(plan.agents)
    every = jax.tree.map(lambda leaf: leaf[share], tunings(world, plan, recipe))
    count = share.stop - share.start
    per_wave = min(agents_per_wave or count, count)
    total = plan.iterations(recipe)
    key = jax.random.key(seed)
    judged, agents, iteration, size = standing or WaveState(None, None, 0, 0)
    done = len(judged.returns) if judged else 0
    now: WaveState | None = None
    while done < count:
        if agents is None:
            size = min(per_wave, count - done)
        wave = jax.tree.map(lambda leaf: leaf[done : done + size], every)  # noqa: B023
        wave_padded = placed(padded(wave, size))
        if agents is None:
            agents = _new_agents(world, recipe)(wave_padded, key)
        else:
            agents = _going_on(agents, size)
        while iteration < total:
            last = min(iteration + iterations_per_chunk, total)
            chunk = _chunk(world, recipe)
            agents, earned = chunk(agents, wave_padded, key, iteration, last, total)
            iteration = last
            now = WaveState(judged, agents, iteration, size)
            progress = _progress(plan, recipe, (done, count), now, earned)
            if report is not None and report(progress, now):
                raise Stopped(now)
        judged = _judge(world, plan, seed, wave, agents, judged)
        # Nothing may hold this wave while the next one is on the devices.
        agents, now, iteration, done = None, None, 0, done + size
    assert judged is not None
    judged = joined(judged, plan.agents)
    return judged, chosen_agents(plan, judged.returns)


def _progress(
    plan: Plan, recipe: PpoRecipe, finished: tuple[int, int], now: WaveState, earned: Earned
) -> PopulationProgress:
    """How far training is, so many of so many agents having finished before the wave under way."""
    done, count = finished
    per_iteration = recipe.steps_per_iteration
    per_agent = plan.iterations(recipe) * per_iteration
    episodes = np.asarray(earned.episodes)[: now.under_way].sum()
    total = np.asarray(earned.total)[: now.under_way].sum()
    return PopulationProgress(
        steps=done * per_agent + now.under_way * now.iteration * per_iteration,
        total_steps=count * per_agent,
        mean_return=float(total / episodes) if episodes else float("nan"),
    )


def _going_on(agents: Agent, count: int) -> Agent:
    """A copy of `count` agents on the devices there are now, whatever filled up those before.

    A copy, because chunks use their agents' memory again and a standing belongs to the caller.
    """
    own: Agent = jax.tree.map(lambda leaf: np.array(leaf[:count]), agents)
    return placed(padded(own, count))


def shape_of_agents(world: AnyWorld, recipe: PpoRecipe, count: int) -> Agent:
    """The shapes and types of `count` agents, without making them."""
    first = tunings(world, Plan(1, 1, 1, 1), recipe)
    wave = jax.tree.map(lambda leaf: jnp.repeat(leaf[:1], count, axis=0), first)
    made: Agent = jax.eval_shape(
        lambda tuning: jax.vmap(partial(new_agent, world, recipe, jax.random.key(0)))(tuning), wave
    )
    return made


def _judge(
    world: AnyWorld, plan: Plan, seed: int, wave: Tuning, agents: Agent, before: JudgedAgents | None
) -> JudgedAgents:
    """The wave's policies and their returns, after those of the waves before."""
    count = len(wave.number)
    network: Network = jax.tree.map(
        lambda leaf: np.asarray(leaf)[:count], _folding(world.spaces.action_bounds)(agents)
    )
    returns = population_returns(
        world,
        network,
        wave.params,
        episodes=plan.judging_episodes,
        seed=seed,
        numbers=np.asarray(wave.number),
    ).mean(axis=1)
    if before is None:
        return JudgedAgents(network, returns)
    joined: JudgedAgents = jax.tree.map(
        lambda early, late: np.concatenate([early, late]), before, JudgedAgents(network, returns)
    )
    return joined


@lru_cache(maxsize=4)
def _folding(bounds: Bounds) -> Any:
    """Actors with the normalisation of observations folded in: an expert is self-contained."""

    def policies(agents: Agent) -> Network:
        actor, seen = agents.networks.actor, agents.seen
        with jax.default_matmul_precision("highest"):
            made: Network = jax.vmap(folded)(actor, seen.mean, seen.deviation)
        return stretched(made, bounds) if bounds else made

    return over_experts(policies)


@lru_cache(maxsize=4)
def _new_agents(world: AnyWorld, recipe: PpoRecipe) -> Any:
    def make(wave: Tuning, key: Array) -> Agent:
        return jax.vmap(partial(new_agent, world, recipe, jax.random.fold_in(key, 0)))(wave)

    return over_experts(make, shared=1)


@lru_cache(maxsize=4)
def _chunk(world: AnyWorld, recipe: PpoRecipe) -> Any:
    """Iterations `first` to `last` − 1 in one program; agents are changed in place."""

    def run(
        agents: Agent, wave: Tuning, key: Array, first: Array, last: Array, total: Array
    ) -> tuple[Agent, Earned]:
        def iterate(iteration: Array, carry: tuple[Agent, Earned]) -> tuple[Agent, Earned]:
            agents, before = carry
            shuffle_key = jax.random.fold_in(jax.random.fold_in(key, 2), iteration)
            agents, earned = population_iteration(
                world, recipe, agents, wave, jax.random.fold_in(key, 1), shuffle_key, total
            )
            return agents, jax.tree.map(jnp.add, before, earned)

        nothing = Earned(jnp.zeros_like(wave.learning_rate), jnp.zeros_like(wave.number))
        made: tuple[Agent, Earned] = jax.lax.fori_loop(first, last, iterate, (agents, nothing))
        return made

    return over_experts(run, shared=4, donate=True)


# --- standings on disk ---


def save_standing(standing: WaveState, path: Path, configuration: dict[str, Any]) -> None:
    """Write a standing, with the configuration it belongs to."""
    judged, agents = jax.tree.leaves(standing.judged), jax.tree.leaves(standing.agents)
    tensors = numbered_leaves(judged, "judged.") | numbered_leaves(agents, "agents.")
    about = {
        "iteration": standing.iteration,
        "under_way": standing.under_way,
        "configuration": configuration,
    }
    write_tensors(tensors, path, {KEY: json.dumps(about)})


def load_standing(
    path: Path, world: AnyWorld, recipe: PpoRecipe, configuration: dict[str, Any]
) -> WaveState:
    """A standing that belongs to the same configuration.

    Raises:
        QuorumError: if it belongs to another configuration, naming what differs, or is
            damaged or none.
    """
    tensors, metadata = map_tensors(path)
    if KEY not in metadata:
        raise QuorumError(f"{str(path)!r} holds no standing of a training: delete or move it.")
    start_anew = "delete it to start anew"
    complaint = f"{str(path)!r} is not a standing of this training that Quorum wrote"
    with refusing_damage(complaint, fix=start_anew):
        about = parsed_object(metadata[KEY], "its description")
        before = about["configuration"]
        if not isinstance(before, dict):
            raise ValueError("its configuration is no JSON object")
    configuration = json.loads(json.dumps(configuration))  # as it was written: tuples are lists
    for name in sorted(before.keys() | configuration.keys()):
        if before.get(name) != configuration.get(name):
            raise QuorumError(
                f"{str(path)!r} was begun with {name} = {before.get(name)}, not "
                f"{configuration.get(name)}: go on with that, or delete the file to start anew."
            )
    agent = shape_of_agents(world, recipe, 1)
    agent_judged = JudgedAgents(agent.networks.actor, np.zeros(1, np.float32))
    with refusing_damage(complaint, fix=start_anew):
        judged: JudgedAgents | None = _taken(tensors, "judged", agent_judged)
        agents: Agent | None = _taken(tensors, "agents", agent)
        if tensors:
            raise ValueError(f"it holds {reprlib.repr(sorted(tensors))} besides")
        iteration, under_way = whole_number(about, "iteration"), whole_number(about, "under_way")
        most = len(agents.iteration) if agents else 0
        if agents and not 1 <= under_way <= most:
            raise ValueError(f"of its {most} agents {under_way} are under way")
        if iteration and not agents:
            raise ValueError(f"it stands at iteration {iteration} of no agents")
    return WaveState(judged, agents, iteration, under_way)


def _taken(tensors: Tensors, part: str, like: Any) -> Any:
    """The tree whose leaves are the tensors of `part`, or None; they are taken out of `tensors`.

    Raises:
        KeyError, ValueError: unless they are stacks, equally high, of what `like` is a stack of.
    """
    if not any(name.startswith(f"{part}.") for name in tensors):
        return None
    wanted, structure = jax.tree.flatten(like)
    leaves = [tensors.pop(f"{part}.{number}") for number in range(len(wanted))]
    heights = {leaf.shape[:1] for leaf in leaves}
    if len(heights) > 1 or heights & {(), (0,)}:
        raise ValueError(f"its {part} are not equally many")
    for number, (leaf, right) in enumerate(zip(leaves, wanted, strict=True)):
        if leaf.shape[1:] != right.shape[1:] or leaf.dtype != right.dtype:
            raise ValueError(
                f"{part}.{number} is {leaf.dtype}{leaf.shape[1:]} for each, not "
                f"{right.dtype}{right.shape[1:]}"
            )
    return jax.tree.unflatten(structure, leaves)
