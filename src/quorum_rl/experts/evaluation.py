"""How good experts are: the returns of whole episodes, all experts at once."""

from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from quorum_rl.dictionary import Bounds
from quorum_rl.distributed import over_experts, padded, placed
from quorum_rl.envs import AnyWorld, advance, start
from quorum_rl.errors import at_least, require
from quorum_rl.experts.checks import checked_floor, no_floor
from quorum_rl.experts.networks import Array, Network, apply_network
from quorum_rl.experts.population import Population
from quorum_rl.experts.smoothing import near_greedy


def population_returns(
    world: AnyWorld,
    network: Network,
    params: Any,
    *,
    episodes: int,
    p_min: float | None = 0.0,
    seed: int = 0,
    numbers: npt.NDArray[np.int32] | None = None,
) -> npt.NDArray[np.float32]:
    """Undiscounted returns of experts, each in its world: near-greedy ones with the floor `p_min`.

    With 0 they are greedy, and of continuous actions take the mean; with None they act as they are.
    Leaves of `network` and `params` have a leading axis of experts. An expert's number makes its
    randomness its own; where none are given, experts are numbered from 0.

    Shapes: the result is `(experts, episodes)`.
    """
    experts = len(network[0].bias)
    if p_min:
        if world.spaces.continuous:
            raise no_floor()
        checked_floor(p_min, network[-1].bias.shape[-1])
    require("episodes", episodes, at_least(1))
    steps = int(np.max(params.time_limit))
    if numbers is None:
        numbers = np.arange(experts, dtype=np.int32)
    every = placed(padded((network, params, numbers), experts))
    found = _compiled(world, episodes, steps, p_min)(*every, jax.random.key(seed))
    return np.asarray(found)[:experts]


def default_returns(
    population: Population,
    world: AnyWorld,
    params: Any,
    *,
    episodes: int,
    p_min: float | None,
    seed: int,
) -> npt.NDArray[np.float32]:
    """Each expert's mean return in one common world; `p_min` as in `population_returns`."""
    same: Any = jax.tree.map(lambda leaf: np.full(len(population), leaf), params)
    found = population_returns(
        world, population.network, same, episodes=episodes, p_min=p_min, seed=seed
    )
    means: npt.NDArray[np.float32] = found.mean(axis=1)
    return means


@lru_cache(maxsize=16)
def _compiled(world: AnyWorld, episodes: int, steps: int, p_min: float | None) -> Any:
    def every(network: Network, params: Any, number: Array, key: Array) -> Array:
        returns_of = partial(_returns, world, episodes, steps, p_min, key)
        return jax.vmap(returns_of)(network, params, number)

    return over_experts(every, shared=1)


def _returns(
    world: AnyWorld,
    episodes: int,
    steps: int,
    p_min: float | None,
    key: Array,
    network: Network,
    params: Any,
    number: Array,
) -> Array:
    """One expert's returns in `episodes` copies of its world, none of which is started twice."""
    own_key = jax.random.fold_in(key, number)
    start_key, roll_key = jax.random.split(own_key)

    def step(carry: tuple[Any, Array, Array], time: Array) -> tuple[tuple[Any, Array, Array], None]:
        running, going, total = carry
        action_key, world_key = jax.random.split(jax.random.fold_in(roll_key, time))
        with jax.default_matmul_precision("highest"):  # as experts are queried
            outputs = apply_network(network, running.observation)
        action = _taken(action_key, outputs, world.spaces.action_bounds, p_min)
        keys = jax.random.split(world_key, episodes)
        running, seen = advance(world, keys, running, action, params)
        total = total + jnp.where(going, seen.reward, 0.0)
        return (running, going & ~(seen.terminated | seen.truncated), total), None

    running = start(world, start_key, params, episodes)
    begin = (running, jnp.ones(episodes, bool), jnp.zeros(episodes))
    (_, _, total), _ = jax.lax.scan(step, begin, jnp.arange(steps))
    return total


def _taken(key: Array, outputs: Array, bounds: Bounds, p_min: float | None) -> Array:
    """What experts do whose networks say this; see `population_returns`."""
    if bounds:
        mean, log_deviation = jnp.split(outputs, 2, axis=-1)
        noise = jnp.exp(log_deviation) * jax.random.normal(key, mean.shape)
        return jnp.clip(mean if p_min == 0 else mean + noise, *jnp.array(bounds, jnp.float32).T)
    probabilities = jax.nn.softmax(outputs)
    if p_min is not None:
        probabilities = near_greedy(probabilities, p_min)
    return jax.random.categorical(key, jnp.log(probabilities))
