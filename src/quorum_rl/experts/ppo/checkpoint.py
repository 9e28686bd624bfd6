"""Where training stands, on disk: so that an interrupted one goes on as if nothing had happened."""

import json
from pathlib import Path
from typing import Any, Final

import jax
import numpy as np

from quorum_rl.envs import AnyWorld
from quorum_rl.errors import QuorumError
from quorum_rl.experts.networks import Layer
from quorum_rl.experts.ppo.agent import Recipe
from quorum_rl.experts.ppo.training import Judged, Standing, shape_of_agents
from quorum_rl.experts.storage import map_tensors, write_tensors

KEY: Final = "quorum_rl.standing"


def save_standing(standing: Standing, path: Path, configuration: dict[str, Any]) -> None:
    """Write a standing, with the configuration it belongs to."""
    layers = len(standing.judged.network) if standing.judged else 0
    tensors = {
        f"{part}.{number}": np.asarray(leaf)
        for part, tree in (("judged", standing.judged), ("agents", standing.agents))
        for number, leaf in enumerate(jax.tree.leaves(tree))
    }
    about = {
        "iteration": standing.iteration,
        "under_way": standing.under_way,
        "layers": layers,
        "configuration": configuration,
    }
    write_tensors(tensors, path, {KEY: json.dumps(about)})


def load_standing(
    path: Path, world: AnyWorld, recipe: Recipe, configuration: dict[str, Any]
) -> Standing:
    """A standing that belongs to the same configuration.

    Raises:
        QuorumError: if it belongs to another configuration, naming what differs, or is none.
    """
    tensors, metadata = map_tensors(path)
    if KEY not in metadata:
        raise QuorumError(f"{str(path)!r} holds no standing of a training: delete or move it.")
    about = json.loads(metadata[KEY])
    before = about["configuration"]
    configuration = json.loads(json.dumps(configuration))  # as it was written: tuples are lists
    for name in sorted(before.keys() | configuration.keys()):
        if before.get(name) != configuration.get(name):
            raise QuorumError(
                f"{str(path)!r} was begun with {name} = {before.get(name)}, not "
                f"{configuration.get(name)}: go on with that, or delete the file to start anew."
            )
    parts = {
        part: [
            tensors[f"{part}.{n}"] for n in range(sum(name.startswith(part) for name in tensors))
        ]
        for part in ("judged", "agents")
    }
    judged = agents = None
    if parts["judged"]:
        leaf: Any = 0
        like = Judged(tuple(Layer(leaf, leaf) for _ in range(about["layers"])), leaf)
        judged = jax.tree.unflatten(jax.tree.structure(like), parts["judged"])
    if parts["agents"]:
        shape = shape_of_agents(world, recipe, len(parts["agents"][0]))
        agents = jax.tree.unflatten(jax.tree.structure(shape), parts["agents"])
    return Standing(judged, agents, about["iteration"], about["under_way"])
