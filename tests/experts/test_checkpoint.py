"""Where training stands, on disk: what damage is refused."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from quorum_rl.envs.cartpole import CartPole
from quorum_rl.errors import QuorumError
from quorum_rl.experts.ppo import training
from quorum_rl.experts.ppo.agent import PpoRecipe
from quorum_rl.experts.ppo.training import JudgedAgents, WaveState, shape_of_agents
from quorum_rl.tensors import write_tensors


def standing_tensors(recipe: PpoRecipe) -> dict[str, Any]:
    """A standing of two judged agents and three under way, as it is written."""
    shape = shape_of_agents(CartPole(), recipe, 3)
    agents: Any = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shape)
    network = jax.tree.map(lambda leaf: leaf[:2], agents.networks.actor)
    parts = {"judged": JudgedAgents(network, np.zeros(2, np.float32)), "agents": agents}
    return {
        f"{part}.{number}": leaf
        for part, tree in parts.items()
        for number, leaf in enumerate(jax.tree.leaves(tree))
    }


STANDING: dict[str, Any] = {"iteration": 1, "under_way": 3, "configuration": {"seed": 1}}
NOT_STANDINGS: dict[str, tuple[dict[str, Any], Any, str]] = {
    "a missing tensor": ({"agents.7": None}, STANDING, "lacks 'agents.7'"),
    "a missing layer": ({"judged.4": None}, STANDING, "lacks 'judged.4'"),
    "one tensor more": ({"judged.5": np.zeros(2)}, STANDING, "holds .'judged.5'. besides"),
    "another width": (
        {"judged.0": np.zeros((2, 4, 9), "f")},
        STANDING,
        r"judged.0 is float32\(4, 9",
    ),
    "another type": ({"judged.4": np.zeros(2, np.int32)}, STANDING, "judged.4 is int32"),
    "fewer of one tensor": ({"judged.4": np.zeros(1, "f")}, STANDING, "not equally many"),
    "a single number": ({"judged.4": np.zeros((), "f")}, STANDING, "not equally many"),
    "a cut description": ({}, '{"iteration": 1', "Expecting"),
    "a deep description": ({}, "[" * 200_000, "recursion"),
    "a list as description": ({}, [1], "no JSON object"),
    "no configuration": ({}, {}, "lacks 'configuration'"),
    "a list as configuration": ({}, {**STANDING, "configuration": [1]}, "configuration is no"),
    "a text as iteration": ({}, {**STANDING, "iteration": "1"}, "iteration is '1'"),
    "more under way than there are": ({}, {**STANDING, "under_way": 4}, "3 agents 4 are under way"),
}


@pytest.mark.parametrize("damage", NOT_STANDINGS)
def test_a_damaged_standing_is_refused_with_the_reason(
    recipe: PpoRecipe, tmp_path: Path, damage: str
) -> None:
    changes, about, reason = NOT_STANDINGS[damage]
    path, right = tmp_path / "standing", standing_tensors(recipe)

    def loaded(tensors: dict[str, Any], about: Any) -> WaveState:
        kept = {name: tensor for name, tensor in tensors.items() if tensor is not None}
        text = about if isinstance(about, str) else json.dumps(about)
        write_tensors(kept, path, {training.KEY: text})
        return training.load_standing(path, CartPole(), recipe, {"seed": 1})

    assert loaded(right, STANDING).under_way == 3
    with pytest.raises(QuorumError, match=rf"standing' is not .*{reason}.*: delete it to start"):
        loaded({**right, **changes}, about)
