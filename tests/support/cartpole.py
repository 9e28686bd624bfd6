"""Populations and a policy for CartPole: experts who are all alike, or push under the pole."""

from typing import Any

import jax
import numpy as np

from quorum_rl.experts import Population
from quorum_rl.experts.networks import Layer, new_network
from quorum_rl.learners import Bc
from quorum_rl.pipeline.export import policy_of
from quorum_rl.policy import Policy

UNDER_THE_POLE = np.array([0.0, 0.2, 1.0, 1.0])  # push right where this sum of a state is positive
ORIGIN = {"world": "CartPole", "hidden": []}


def alike(experts: int, *hidden: int) -> Population:
    """So many experts with the same random network."""
    one = new_network(jax.random.key(0), (4, *hidden, 2), 1.0)
    everyone = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (experts, *leaf.shape)), one)
    return Population(observation_size=4, action_count=2, network=everyone, origin=ORIGIN)


def under_the_pole(experts: int, spread: float = 0.0) -> Population:
    """Experts who push the cart under the falling pole, each a little otherwise."""
    rng = np.random.default_rng(0)
    lean = UNDER_THE_POLE + rng.normal(0, spread, (experts, 4))
    weight: Any = np.stack([-lean, lean], axis=-1).astype(np.float32)
    bias: Any = np.zeros((experts, 2), np.float32)
    return Population(
        observation_size=4, action_count=2, network=(Layer(weight, bias),), origin=ORIGIN
    )


def balancing(world: str | None = "CartPole") -> Policy:
    """The policy of such an expert."""
    (layer,) = under_the_pole(1).network
    params = {"policy": (Layer(layer.weight[0], layer.bias[0]),)}
    return policy_of(Bc(hidden_sizes=()), params, world=world)
