"""Small nets, and ordinary transitions of a few experts."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quorum_rl.learners import Cql, DenseLearner, Networks
from quorum_rl.training.data import ExpertData
from quorum_rl.types import Transition

OBSERVATION_SIZE, ACTION_COUNT = 3, 4


@pytest.fixture(scope="session")
def learner() -> DenseLearner:
    return Cql(hidden_sizes=(16, 12))


@pytest.fixture(scope="session")
def params(learner: DenseLearner) -> Networks:
    return drawn_for(learner, 0)


@pytest.fixture(scope="session")
def target(learner: DenseLearner) -> Networks:
    return learner.init_target(drawn_for(learner, 1))


def drawn_for(learner: DenseLearner, seed: int) -> Networks:
    """Random parameters, by one program and not by one for each of its operations."""
    init = jax.jit(learner.init, static_argnums=(1, 2))
    made: Networks = init(jax.random.key(seed), OBSERVATION_SIZE, ACTION_COUNT)
    return made


@pytest.fixture(scope="session")
def transitions() -> Callable[..., Transition]:
    """Ordinary transitions, by a seed and the shape."""
    return random_transitions


def random_transitions(seed: int, *shape: int) -> Transition:
    random = np.random.default_rng(seed)
    states = random.normal(scale=2.0, size=(2, *shape, OBSERVATION_SIZE))
    return Transition(
        observation=jnp.asarray(states[0], jnp.float32),
        action=jnp.asarray(random.integers(ACTION_COUNT, size=shape), jnp.int32),
        reward=jnp.asarray(random.normal(scale=2.0, size=shape), jnp.float32),
        next_observation=jnp.asarray(states[1], jnp.float32),
        terminated=jnp.asarray(random.random(shape) < 0.3),
        truncated=jnp.zeros(shape, bool),
    )


@pytest.fixture(scope="session")
def data() -> ExpertData:
    """Eleven experts with one to five transitions each."""
    offsets = np.cumsum([0, 1, 5, 2, 3, 1, 4, 2, 2, 5, 3, 1])
    return ExpertData(random_transitions(5, int(offsets[-1])), jnp.asarray(offsets))
