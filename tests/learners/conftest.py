"""A batch of made-up transitions, every kind of learner with small nets, and how to train one."""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from standardising import STANDARDISING

from quorum_rl.learners import Bc, Bcq, Cql, DenseLearner, DoubleDqn, Networks
from quorum_rl.types import Transition

OBSERVATION_SIZE, ACTION_COUNT, ROWS = 3, 4, 12

Train: TypeAlias = Callable[[DenseLearner, Transition, int], Networks]


@pytest.fixture(
    scope="session",
    params=[
        Cql(hidden_sizes=(8, 6), discount=0.9, alpha=0.7, reward_scale=0.3),
        Bcq(hidden_sizes=(8, 6), discount=0.9, threshold=0.8, logit_penalty=0.2, **STANDARDISING),
        Bc(hidden_sizes=(8, 6), discount=0.9, **STANDARDISING),
        DoubleDqn(hidden_sizes=(8, 6), discount=0.9, huber_threshold=0.5),
    ],
    ids=lambda learner: learner.name,
)
def learner(request: pytest.FixtureRequest) -> DenseLearner:
    made: DenseLearner = request.param
    return made


@pytest.fixture(scope="session")
def batch() -> Transition:
    """Transitions with rewards on both sides of the Huber threshold, and with every kind of end."""
    random = np.random.default_rng(3)
    return Transition(
        observation=jnp.asarray(random.normal(size=(ROWS, OBSERVATION_SIZE)), jnp.float32),
        action=jnp.arange(ROWS, dtype=jnp.int32) % ACTION_COUNT,
        reward=jnp.asarray(random.normal(scale=2.0, size=ROWS), jnp.float32),
        next_observation=jnp.asarray(random.normal(size=(ROWS, OBSERVATION_SIZE)), jnp.float32),
        terminated=jnp.arange(ROWS) % 3 == 0,
        truncated=jnp.arange(ROWS) % 2 == 0,
    )


@cache
def training(learner: DenseLearner, observation_size: int, action_count: int) -> Any:
    """Three hundred steps of Adam on all transitions at once, in one compiled program."""
    optimiser = optax.adam(1e-2)

    def mean_loss(params: Networks, target: Networks, logs: Transition, key: jax.Array) -> Any:
        keys = jax.random.split(key, len(logs.reward))
        return jax.vmap(learner.loss, (None, None, 0, 0))(params, target, logs, keys).mean()

    def trained(logs: Transition) -> Networks:
        def one_step(carry: Any, step: jax.Array) -> tuple[Any, None]:
            params, target, state = carry
            gradient = jax.grad(mean_loss)(params, target, logs, jax.random.key(step))
            change, state = optimiser.update(gradient, state)
            params = optax.apply_updates(params, change)
            return (params, learner.update_target(params, target, step), state), None

        first = learner.init(jax.random.key(0), observation_size, action_count)
        start = (first, learner.init_target(first), optimiser.init(first))
        last: tuple[Networks, Networks, Any]
        last, _ = jax.lax.scan(one_step, start, jnp.arange(1, 301))
        return last[0]

    return jax.jit(trained)


@pytest.fixture(scope="session")
def train() -> Train:
    def run(learner: DenseLearner, logs: Transition, action_count: int) -> Networks:
        params: Networks = training(learner, logs.observation.shape[1], action_count)(logs)
        return params

    return run
