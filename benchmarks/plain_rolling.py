"""Collecting as plainly as it can be written: the host asks, draws and waits at every step.

The tests compare `quorum_rl.logs.collect` with it bit by bit, and `demonstrations.py` in seconds.
"""

from functools import lru_cache
from typing import Any

import jax
import numpy as np

from quorum_rl.envs import AnyWorld
from quorum_rl.experts import UnloggedExperts
from quorum_rl.logs import Declared, Demonstrations, from_padded


def collected(
    experts: UnloggedExperts, world: AnyWorld, params: Any, trajectories: int, seed: int
) -> Demonstrations:
    """The log that `collect` makes; what it declares is left out."""
    shape, horizon = (len(experts), trajectories), int(params.time_limit)
    for_worlds, for_actions = map(np.random.Philox, np.random.SeedSequence(seed).spawn(2))
    rng = np.random.Generator(for_actions)
    words = np.random.Generator(for_worlds).integers(2**32, size=(*shape, 2), dtype=np.uint32)
    reset, step = _compiled(world)
    policies = experts.among(slice(None))
    state, observation = reset(words, params)
    observations = np.zeros((horizon + 1, *shape, world.spaces.observation_size), np.float32)
    actions, rewards = (
        np.zeros((horizon, *shape), np.int32),
        np.zeros((horizon, *shape), np.float32),
    )
    length = np.zeros(shape, np.int64)
    going, terminated, truncated = (
        np.ones(shape, bool),
        np.zeros(shape, bool),
        np.zeros(shape, bool),
    )
    observations[0] = observation
    for time in range(horizon):
        edges = policies(observations[time]).cumsum(axis=-1)
        actions[time] = (rng.random(shape)[..., None] >= edges[..., :-1]).sum(axis=-1)
        after = step(state, words, actions[time], time, params)
        state = after.state
        seen = np.asarray(after.observation)
        observations[time + 1] = np.where(going[..., None], seen, observations[time])
        rewards[time] = after.reward
        length[going] = time + 1
        terminated |= going & np.asarray(after.terminated)
        truncated |= going & np.asarray(after.truncated)
        going &= ~(terminated | truncated)
        if not going.any():
            break
    count = len(experts) * trajectories
    return from_padded(
        Declared(experts.action_count, experts.observation_size, horizon),
        expert=np.repeat(np.arange(len(experts)), trajectories),
        length=length.reshape(count),
        observations=np.moveaxis(observations, 0, 2).reshape(count, horizon + 1, -1),
        actions=np.moveaxis(actions, 0, 2).reshape(count, horizon),
        rewards=np.moveaxis(rewards, 0, 2).reshape(count, horizon),
        terminated=terminated.reshape(count),
        truncated=truncated.reshape(count),
    )


@lru_cache(maxsize=8)
def _compiled(world: AnyWorld) -> tuple[Any, Any]:
    def key_at(words: Any, time: Any) -> Any:
        return jax.random.fold_in(jax.random.wrap_key_data(words, impl="threefry2x32"), time)

    def reset(words: Any, params: Any) -> Any:
        return world.reset(key_at(words, 0), params)

    def step(state: Any, words: Any, action: Any, time: Any, params: Any) -> Any:
        return world.step(key_at(words, time + 1), state, action, params)

    every_reset = jax.vmap(jax.vmap(reset, (0, None)), (0, None))
    axes = (0, 0, 0, None, None)
    return jax.jit(every_reset), jax.jit(jax.vmap(jax.vmap(step, axes), axes))
