"""Letting experts act, and keeping what they did.

The actions are drawn from the very numbers that a later query of the same experts returns: the
release is private only if the queried policies generated the logs. The draws are part of that
release's randomness, so without a seed they come from the operating system.
"""

from dataclasses import asdict
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from quorum_rl.devices import over_experts, padded, placed
from quorum_rl.envs import AnyWorld, checked
from quorum_rl.envs.gymnasium_bridge import EnvSource, environment_sizes, play_episodes
from quorum_rl.errors import QuorumError
from quorum_rl.experts import (
    LoggedExperts,
    SmoothedExperts,
    UnloggedExperts,
    mixed_with_uniform,
    smoothed,
)
from quorum_rl.experts.expert_set import Policy
from quorum_rl.experts.smoothing import RULES
from quorum_rl.logs.assemble import from_episodes, from_padded
from quorum_rl.logs.demonstrations import Declared, Demonstrations

Array = jax.Array

UNCHANGED = "none"  # the smoothing of experts that acted as they are


def collect(
    experts: UnloggedExperts,
    world: AnyWorld,
    params: Any = None,
    *,
    trajectories: int,
    seed: int | None = None,
) -> tuple[Demonstrations, LoggedExperts]:
    """`trajectories` episodes of every expert in one common world, and the experts, now logged.

    Raises:
        QuorumError: if the experts and the world do not fit.
    """
    params = world.default_params() if params is None else checked(world, params)
    _check_fit(experts, world.spaces.observation_size, world.spaces.action_count, world.name)
    if trajectories < 1:
        raise QuorumError(f"trajectories is {trajectories}: give at least 1.")
    if np.ndim(params.time_limit):
        raise QuorumError("collect was given a stack of settings: all experts act in one world.")
    horizon = int(params.time_limit)
    filled = _roll(experts, world, params, trajectories, horizon, seed)
    declared = Declared(
        action_count=world.spaces.action_count,
        observation_size=world.spaces.observation_size,
        horizon=horizon,
        p_min=experts.p_min,
        smoothing=experts.rule if isinstance(experts, SmoothedExperts) else UNCHANGED,
        world=world.name,
        world_params=asdict(params),
        reproducible=seed is not None,
    )
    everyone = len(experts) * trajectories
    demonstrations = from_padded(
        declared,
        expert=np.repeat(np.arange(len(experts)), trajectories),
        length=filled.length.reshape(everyone),
        observations=filled.observations.reshape(everyone, horizon + 1, -1),
        actions=filled.actions.reshape(everyone, horizon),
        rewards=filled.rewards.reshape(everyone, horizon),
        terminated=filled.terminated.reshape(everyone),
        truncated=filled.truncated.reshape(everyone),
    )
    return demonstrations, LoggedExperts(experts)


class _Filled(NamedTuple):
    """Padded episodes; leading axes `(experts, trajectories)`, then time where it applies."""

    observations: npt.NDArray[np.float32]
    actions: npt.NDArray[np.int32]
    rewards: npt.NDArray[np.float32]
    length: npt.NDArray[np.int64]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]

    @classmethod
    def empty(cls, shape: tuple[int, int], horizon: int, width: int) -> "_Filled":
        return cls(
            np.zeros((*shape, horizon + 1, width), np.float32),
            np.zeros((*shape, horizon), np.int32),
            np.zeros((*shape, horizon), np.float32),
            np.zeros(shape, np.int64),
            np.zeros(shape, np.bool_),
            np.zeros(shape, np.bool_),
        )


def _roll(
    experts: UnloggedExperts,
    world: AnyWorld,
    params: Any,
    trajectories: int,
    horizon: int,
    seed: int | None,
) -> _Filled:
    """Step all worlds together from the host; the policies are asked as a query would ask them."""
    world_seed, draw_seed = np.random.SeedSequence(seed).spawn(2)
    key = jax.random.wrap_key_data(jnp.asarray(world_seed.generate_state(2)))
    rng = np.random.Generator(np.random.Philox(draw_seed))
    shape = (len(experts), trajectories)
    filled = _Filled.empty(shape, horizon, world.spaces.observation_size)
    numbers = padded(np.arange(shape[0], dtype=np.int32), shape[0])
    fresh, step = _compiled(world, trajectories)
    state, observation = fresh(placed(numbers), key, params)
    filled.observations[:, :, 0] = np.asarray(observation)[: shape[0]]
    going = np.ones(shape, np.bool_)
    for time in range(horizon):
        probabilities = experts.own_probabilities(filled.observations[:, :, time])
        actions = drawn(probabilities, rng.random(shape))
        filled.actions[:, :, time] = actions
        after = step(state, placed(numbers), placed(padded(actions, shape[0])), key, time, params)
        state = after.state
        seen, reward, terminated, truncated = (
            np.asarray(leaf)[: shape[0]]
            for leaf in (after.observation, after.reward, after.terminated, after.truncated)
        )
        # An ended episode keeps its last state: what its world does then may not be a number.
        before = filled.observations[:, :, time]
        filled.observations[:, :, time + 1] = np.where(going[..., None], seen, before)
        filled.rewards[:, :, time] = reward
        filled.length[going] = time + 1
        filled.terminated[going] = terminated[going]
        filled.truncated[going] = truncated[going]
        going &= ~(terminated | truncated)
        if not going.any():
            break
    return filled


def drawn(
    probabilities: npt.NDArray[np.float64], uniform: npt.NDArray[np.float64]
) -> npt.NDArray[np.int32]:
    """An action for each row of probabilities, by inversion of one uniform number each."""
    edges = probabilities.cumsum(axis=-1)
    beyond = uniform[..., None] >= edges[..., :-1]
    chosen: npt.NDArray[np.int32] = beyond.sum(axis=-1).astype(np.int32)
    return chosen


@lru_cache(maxsize=8)
def _compiled(world: AnyWorld, trajectories: int) -> tuple[Any, Any]:
    """Starting and stepping every expert's worlds, spread over the devices."""

    def keys_of(number: Array, key: Array, time: Array | int) -> Array:
        own = jax.random.fold_in(jax.random.fold_in(key, time), number)
        return jax.random.split(own, trajectories)

    def fresh(numbers: Array, key: Array, params: Any) -> Any:
        def one(number: Array) -> Any:
            return jax.vmap(partial(world.reset, params=params))(keys_of(number, key, 0))

        return jax.vmap(one)(numbers)

    def step(
        state: Any, numbers: Array, actions: Array, key: Array, time: Array, params: Any
    ) -> Any:
        def one(state: Any, number: Array, actions: Array) -> Any:
            keys = keys_of(number, key, time + 1)
            return jax.vmap(partial(world.step, params=params))(keys, state, actions)

        return jax.vmap(one)(state, numbers, actions)

    return over_experts(fresh, shared=2), over_experts(step, shared=3)


def collect_from_gymnasium(
    experts: UnloggedExperts,
    environment: EnvSource,
    *,
    trajectories: int,
    horizon: int,
    seed: int | None = None,
) -> tuple[Demonstrations, LoggedExperts]:
    """As `collect`, in any Gymnasium environment with discrete actions.

    `horizon` is the declared time limit of the environment; a longer episode is an error.

    Raises:
        QuorumError: if the experts and the environment do not fit, or an episode is too long.
    """
    width, actions = environment_sizes(environment)
    _check_fit(experts, width, actions, str(environment))
    declared = Declared(
        action_count=actions,
        observation_size=width,
        horizon=horizon,
        p_min=experts.p_min,
        smoothing=experts.rule if isinstance(experts, SmoothedExperts) else UNCHANGED,
        world=environment if isinstance(environment, str) else None,
        reproducible=seed is not None,
    )
    children = np.random.SeedSequence(seed).spawn(len(experts))
    played = [
        episode
        for number, child in enumerate(children)
        for episode in play_episodes(
            environment,
            partial(_drawn_from, experts.alone(number)),
            episodes=trajectories,
            copies=trajectories,
            seed=child.generate_state(4).tolist(),
        )
    ]
    demonstrations = from_episodes(
        declared,
        expert=np.repeat(np.arange(len(experts)), trajectories),
        length=[len(episode.actions) for episode in played],
        observations=np.concatenate([episode.observations for episode in played]),
        actions=np.concatenate([episode.actions for episode in played]),
        rewards=np.concatenate([episode.rewards for episode in played]),
        terminated=[episode.terminated for episode in played],
        truncated=[episode.truncated for episode in played],
    )
    return demonstrations, LoggedExperts(experts)


def _drawn_from(
    policy: Policy, observations: npt.NDArray[np.float32], rng: np.random.Generator
) -> npt.NDArray[np.int32]:
    """What an expert does in each row, drawn."""
    return drawn(policy(observations), rng.random(len(observations)))


def as_they_acted(experts: UnloggedExperts, demonstrations: Demonstrations) -> LoggedExperts:
    """The experts whose originals are `experts`, smoothed just as the logs say they were.

    For experts and logs that come from files. That they belong together is the caller's promise.

    Raises:
        QuorumError: if the logs name a rule that this version does not know, or do not fit.
    """
    declared = demonstrations.declared
    _check_fit(experts, declared.observation_size, declared.action_count, "the log")
    if declared.smoothing is None:
        return LoggedExperts(experts)
    if declared.smoothing not in RULES or declared.p_min is None:
        raise QuorumError(
            f"the log names the smoothing {declared.smoothing!r}, which this version of Quorum "
            f"does not know: it knows {', '.join(RULES)}."
        )
    rule = smoothed if declared.smoothing == "greedy" else mixed_with_uniform
    return LoggedExperts(rule(experts, declared.p_min))


def _check_fit(experts: UnloggedExperts, width: int, actions: int, where: str) -> None:
    if not isinstance(experts, UnloggedExperts):
        raise QuorumError(
            f"collect was given a {type(experts).__name__}: only experts that have not acted yet "
            "can act."
        )
    if (experts.observation_size, experts.action_count) != (width, actions):
        raise QuorumError(
            f"the experts see {experts.observation_size} numbers and have {experts.action_count} "
            f"actions, but {where} shows {width} and takes {actions}: use experts of this world."
        )
