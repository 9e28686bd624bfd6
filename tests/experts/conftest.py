"""A tiny population, trained once: compiling takes seconds, training less than one."""

from itertools import pairwise
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pytest

from quorum_rl.envs.cartpole import CartPole
from quorum_rl.experts.networks import Layer, Network
from quorum_rl.experts.population import Population
from quorum_rl.experts.ppo.agent import PpoRecipe
from quorum_rl.experts.ppo.plan import Plan
from quorum_rl.experts.ppo.training import JudgedAgents, train_population


class Trained(NamedTuple):
    """What was trained, how, and what came of it."""

    world: CartPole
    plan: Plan
    recipe: PpoRecipe
    seed: int
    judged: JudgedAgents
    chosen: npt.NDArray[np.intp]


@pytest.fixture(scope="session")
def recipe() -> PpoRecipe:
    return PpoRecipe(hidden=(8,), copies=4, roll_out_steps=16, epochs=4, slice_size=16)


@pytest.fixture(scope="session")
def trained(recipe: PpoRecipe) -> Trained:
    """Four agents after 300 iterations each, without an interruption and in one wave."""
    plan = Plan(
        settings=2,
        candidates=2,
        experts=3,
        total_steps=300 * recipe.steps_per_iteration,
        judging_episodes=4,
        learning_rates=(1e-3, 5e-4),
    )
    judged, chosen = train_population(CartPole(), plan, recipe, seed=1)
    return Trained(CartPole(), plan, recipe, 1, judged, chosen)


@pytest.fixture(scope="session")
def population() -> Population:
    """37 random experts (no multiple of a block), sharp enough that rounding shows."""
    return Population(
        observation_size=4,
        action_count=3,
        network=random_network(37, (4, 17, 9, 3), seed=0),
        origin={"world": "CartPole", "hidden": [17, 9], "seed": 0},
    )


def random_network(experts: int, sizes: tuple[int, ...], seed: int) -> Network:
    rng = np.random.default_rng(seed)
    return tuple(
        Layer(
            jnp.asarray(rng.normal(0, 1.0, (experts, inputs, outputs)), jnp.float32),
            jnp.asarray(rng.normal(0, 1.0, (experts, outputs)), jnp.float32),
        )
        for inputs, outputs in pairwise(sizes)
    )
