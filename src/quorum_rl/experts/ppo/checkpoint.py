"""Where training stands, on disk: so that an interrupted one goes on as if nothing had happened."""

import json
import reprlib
from pathlib import Path
from typing import Any, Final

import jax
import numpy as np

from quorum_rl.envs import AnyWorld
from quorum_rl.errors import QuorumError
from quorum_rl.experts.ppo.agent import Agent, PpoRecipe
from quorum_rl.experts.ppo.training import Judged, WaveState, shape_of_agents
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
START_ANEW: Final = "delete it to start anew"


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
    complaint = f"{str(path)!r} is not a standing of this training that Quorum wrote"
    with refusing_damage(complaint, fix=START_ANEW):
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
    one = shape_of_agents(world, recipe, 1)
    one_judged = Judged(one.networks.actor, np.zeros(1, np.float32))
    with refusing_damage(complaint, fix=START_ANEW):
        judged: Judged | None = _taken(tensors, "judged", one_judged)
        agents: Agent | None = _taken(tensors, "agents", one)
        if tensors:
            raise ValueError(f"it holds {reprlib.repr(sorted(tensors))} besides")
        iteration, under_way = whole_number(about, "iteration"), whole_number(about, "under_way")
        most = len(agents.iteration) if agents else 0
        if agents and not 1 <= under_way <= most:
            raise ValueError(f"of its {most} agents {under_way} are under way")
        if iteration and not agents:
            raise ValueError(f"it stands at iteration {iteration} of no agents")
    return WaveState(judged, agents, iteration, under_way)


def _taken(tensors: Tensors, part: str, one: Any) -> Any:
    """The tree whose leaves are the tensors of `part`, or None; they are taken out of `tensors`.

    Raises:
        KeyError, ValueError: unless they are stacks, equally high, of what `one` is a stack of.
    """
    if not any(name.startswith(f"{part}.") for name in tensors):
        return None
    wanted, structure = jax.tree.flatten(one)
    leaves = [tensors.pop(f"{part}.{number}") for number in range(len(wanted))]
    heights = {leaf.shape[:1] for leaf in leaves}
    if len(heights) > 1 or heights & {(), (0,)}:
        raise ValueError(f"its {part} are not equally many")
    for number, (leaf, like) in enumerate(zip(leaves, wanted, strict=True)):
        if leaf.shape[1:] != like.shape[1:] or leaf.dtype != like.dtype:
            raise ValueError(
                f"{part}.{number} is {leaf.dtype}{leaf.shape[1:]} for each, not "
                f"{like.dtype}{like.shape[1:]}"
            )
    return jax.tree.unflatten(structure, leaves)
