"""Letting experts act, and keeping what they did.

The actions are drawn from the very numbers that a later query of the same experts returns: the
release is private only if the queried policies generated the logs. The draws are part of that
release's randomness, so without a seed they come from the operating system.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from quorum_rl.dictionary import Bounds, Dictionary
from quorum_rl.distributed import (
    broadcast,
    is_single_process,
    joined,
    over_experts,
    own_share,
    padded,
    placed,
    this_machine,
)
from quorum_rl.envs import (
    AnyWorld,
    Copies,
    EnvParams,
    EnvSource,
    Sizes,
    Spaces,
    checked,
    environment_sizes,
    play,
)
from quorum_rl.errors import QuorumError, at_least, require
from quorum_rl.experts import (
    RULES,
    LoggedExperts,
    SmoothedExperts,
    UnloggedExperts,
    check_floor,
    smoothed_by,
)
from quorum_rl.logs.assemble import from_episodes, from_padded
from quorum_rl.logs.declared import Declared
from quorum_rl.logs.demonstrations import Demonstrations
from quorum_rl.types import Episode

Array = jax.Array

COPIES_AT_ONCE: Final = 5120  # environments of Gymnasium: 256 experts with 20 trajectories each
UNCHANGED = "none"  # the smoothing of experts that acted as they are


def collect(
    experts: UnloggedExperts,
    world: AnyWorld,
    params: Any = None,
    *,
    trajectories: int,
    minimum_experts: int | None = None,
    seed: int | None = None,
) -> tuple[Demonstrations, LoggedExperts]:
    """`trajectories` episodes of every expert in one common world, and the experts, now logged.

    `minimum_experts` is declared with the logs, a public fact that nobody counts here: how many
    experts there are is private. A stage that needs it asks for it.

    Raises:
        QuorumError: if the experts and the world do not fit.
    """
    params = world.default_params() if params is None else checked(world, params)
    spaces = world.spaces
    _check_fit(experts, spaces, world.name)
    require("trajectories", trajectories, at_least(1))
    if np.ndim(params.time_limit):
        raise QuorumError("collect was given a stack of settings: all experts act in one world.")
    horizon = int(params.time_limit)
    declared = _declared(
        experts,
        seed,
        horizon=horizon,
        world=world.name,
        world_params=asdict(params),
        minimum_experts=minimum_experts,
        minimum_trajectories=trajectories,
        dictionary=_dictionary(spaces.action_bounds, spaces.action_names),
    )
    if not is_single_process():  # it is one log, and has one name
        declared = replace(declared, identity=str(broadcast(np.array(declared.identity))))
    filled = _roll(experts, world, params, trajectories, horizon, seed)
    everyone = len(experts) * trajectories
    demonstrations = from_padded(
        declared,
        expert=np.repeat(np.arange(len(experts)), trajectories),
        length=filled.length.reshape(everyone),
        observations=filled.observations.reshape(everyone, horizon + 1, -1),
        actions=filled.actions.reshape(everyone, horizon, *filled.actions.shape[3:]),
        rewards=filled.rewards.reshape(everyone, horizon),
        terminated=filled.terminated.reshape(everyone),
        truncated=filled.truncated.reshape(everyone),
    )
    return demonstrations, LoggedExperts(experts)


class _Filled(NamedTuple):
    """Padded episodes; leading axes `(experts, trajectories)`, then time where it applies."""

    observations: npt.NDArray[np.float32]
    actions: npt.NDArray[Any]  # int32, or float32 with an axis of numbers
    rewards: npt.NDArray[np.float32]
    length: npt.NDArray[np.int64]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]

    @classmethod
    def empty(cls, shape: tuple[int, int], horizon: int, spaces: Spaces) -> "_Filled":
        def at_times(count: int, *last: int, kind: type) -> npt.NDArray[Any]:
            # One time after another in memory, as they are written.
            return np.moveaxis(np.zeros((count, *shape, *last), kind), 0, 2)

        wide = (spaces.action_count,) if spaces.continuous else ()
        return cls(
            at_times(horizon + 1, spaces.observation_size, kind=np.float32),
            at_times(horizon, *wide, kind=np.float32 if spaces.continuous else np.int32),
            at_times(horizon, kind=np.float32),
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
    """Step all worlds together from the host; the policies are asked as a query would ask them.

    Each process does so for its share of the experts, and all get all.
    """
    for_worlds, for_actions = map(np.random.Philox, np.random.SeedSequence(seed).spawn(2))
    rng = np.random.Generator(for_actions)
    everyone, own = (len(experts), trajectories), own_share(len(experts))
    numbers = range(len(experts))[own]
    policies = experts.among(own)
    shape = (len(numbers), trajectories)
    # Every trajectory has a key of its own: knowing one says nothing about another.
    words = np.random.Generator(for_worlds).integers(2**32, size=(*everyone, 2), dtype=np.uint32)
    keys = placed(padded(words[own], shape[0]))
    filled = _Filled.empty(shape, horizon, world.spaces)
    fresh, step = _compiled(world)
    state, observation = fresh(keys, params)
    filled.observations[:, :, 0] = np.asarray(observation)[: shape[0]]
    going = np.ones(shape, np.bool_)
    for time in range(horizon):
        answers = policies(filled.observations[:, :, time])
        actions = _chosen(experts, numbers, answers, _chance(experts, rng, everyone)[own])
        filled.actions[:, :, time] = actions
        after = step(state, keys, placed(padded(actions, shape[0])), time, params)
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
    return joined(filled, len(experts))


def _chance(
    experts: UnloggedExperts, rng: np.random.Generator, shape: tuple[int, ...]
) -> npt.NDArray[np.float64]:
    """What decides between actions: a uniform number, or a Gaussian one for each of an action's."""
    if experts.action_bounds:
        return rng.standard_normal((*shape, experts.action_count))
    return rng.random(shape)


def _chosen(
    experts: UnloggedExperts,
    numbers: range,
    answers: npt.NDArray[np.float64],
    chance: npt.NDArray[np.float64],
) -> npt.NDArray[Any]:
    """The actions of some experts who answered so."""
    if experts.action_bounds:
        mean, log_deviation = np.split(answers, 2, axis=-1)
        low, high = np.asarray(experts.action_bounds, np.float32).T
        made = (mean + np.exp(log_deviation) * chance).astype(np.float32)
        return np.clip(made, low, high)
    check_floor(answers, numbers, experts.p_min)
    return drawn(answers, chance)


def drawn(
    probabilities: npt.NDArray[np.float64], uniform: npt.NDArray[np.float64]
) -> npt.NDArray[np.int32]:
    """An action for each row of probabilities, by inversion of one uniform number each."""
    edges = probabilities.cumsum(axis=-1)
    beyond = uniform[..., None] >= edges[..., :-1]
    chosen: npt.NDArray[np.int32] = beyond.sum(axis=-1).astype(np.int32)
    return chosen


@lru_cache(maxsize=8)
def _compiled(world: AnyWorld) -> tuple[Any, Any]:
    """Starting and stepping every expert's worlds, spread over the devices.

    Leading axes are experts and trajectories; keys come as the words that they are made of.
    """

    def key_at(words: Array, time: Array | int) -> Array:
        return jax.random.fold_in(jax.random.wrap_key_data(words, impl="threefry2x32"), time)

    def reset_all(keys: Array, params: Any) -> Any:
        def reset(words: Array) -> Any:
            return world.reset(key_at(words, 0), params)

        return jax.vmap(jax.vmap(reset))(keys)

    def step_all(state: Any, keys: Array, actions: Array, time: Array, params: Any) -> Any:
        def step(state: Any, words: Array, action: Array) -> Any:
            return world.step(key_at(words, time + 1), state, action, params)

        return jax.vmap(jax.vmap(step))(state, keys, actions)

    return over_experts(reset_all, shared=1), over_experts(step_all, shared=2)


def collect_from_gymnasium(
    experts: UnloggedExperts,
    environment: EnvSource,
    params: EnvParams | None = None,
    *,
    trajectories: int,
    horizon: int,
    minimum_experts: int | None = None,
    seed: int | None = None,
) -> tuple[Demonstrations, LoggedExperts]:
    """As `collect`, in any Gymnasium environment with a list of actions, or one `Box` of them.

    `params` go to `gymnasium.make` with the environment's name. `horizon` is the declared time
    limit of the environment; a longer episode is an error.

    Raises:
        QuorumError: if the experts and the environment do not fit, or an episode is too long.
    """
    sizes = environment_sizes(environment, params)
    _check_fit(experts, sizes, sizes.name)
    require("trajectories", trajectories, at_least(1))
    declared = _declared(
        experts,
        seed,
        horizon=horizon,
        world=environment if isinstance(environment, str) else None,
        world_params=dict(params or {}),
        minimum_experts=minimum_experts,
        minimum_trajectories=trajectories,
        dictionary=_dictionary(sizes.action_bounds),
    )
    # Every expert has chance of its own: what it does is the same in any company.
    children = np.random.SeedSequence(seed).spawn(len(experts))
    at_once = min(max(COPIES_AT_ONCE // trajectories, 1), len(experts))
    played: list[Episode] = []
    with closing(Copies(environment, params, count=at_once * trajectories)) as copies:
        for first in range(0, len(experts), at_once):
            chosen = range(len(experts))[first : first + at_once]
            sources = [child.spawn(2) for child in children[first : first + at_once]]
            starts = [
                for_starts.generate_state(trajectories, np.uint64) for for_starts, _ in sources
            ]
            act = _acting(experts, chosen, [np.random.Philox(draws) for _, draws in sources])
            played += play(copies, act, np.concatenate(starts).tolist(), longest=horizon)
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


def _acting(
    experts: UnloggedExperts, numbers: range, sources: Sequence[np.random.BitGenerator]
) -> Callable[[npt.NDArray[np.float32]], npt.NDArray[Any]]:
    """What some experts do, drawn; rows are trajectories of the first, then of the next, …"""
    asked = experts.among(slice(numbers.start, numbers.stop))
    chance = [np.random.Generator(source) for source in sources]

    def act(observations: npt.NDArray[np.float32]) -> npt.NDArray[Any]:
        own = observations.reshape(len(numbers), -1, observations.shape[-1])
        draws = np.stack([_chance(experts, rng, own.shape[1:2]) for rng in chance])
        actions = _chosen(experts, numbers, asked(own), draws)
        return actions.reshape(len(observations), *actions.shape[2:])

    return act


def _declared(experts: UnloggedExperts, seed: int | None, **facts: Any) -> Declared:
    """What is declared of logs that these experts make on this machine."""
    return Declared(
        action_count=experts.action_count,
        observation_size=experts.observation_size,
        p_min=None if experts.action_bounds else experts.p_min,
        smoothing=smoothing_of(experts),
        machine=this_machine(),
        experts_identity=experts.identity or None,
        reproducible=seed is not None,
        **facts,
    )


def _dictionary(bounds: Bounds, names: tuple[str, ...] = ()) -> Dictionary | None:
    """What logs say of continuous actions; nothing of a list of them."""
    return Dictionary(action_labels=names, action_bounds=bounds) if bounds else None


def smoothing_of(experts: UnloggedExperts) -> str:
    """The rule by which experts were smoothed, as logs name it."""
    return experts.rule if isinstance(experts, SmoothedExperts) else UNCHANGED


def as_they_acted(experts: UnloggedExperts, demonstrations: Demonstrations) -> LoggedExperts:
    """The experts whose originals are `experts`, smoothed just as the logs say they were.

    For experts and logs that come from files. That they belong together is the caller's promise.
    Where the logs do not say how their experts were smoothed, the promise has to be made by hand:
    `LoggedExperts(experts)`.

    Raises:
        QuorumError: if `experts` cannot be the originals of those who acted.
    """
    declared = demonstrations.declared
    _check_fit(experts, declared, "the log")
    if isinstance(experts, SmoothedExperts):
        raise QuorumError("these experts are smoothed already: give the originals.")
    if declared.smoothing == UNCHANGED:
        if experts.p_min != (declared.p_min or 0.0):
            raise QuorumError(
                f"the log declares the floor {declared.p_min} but these experts {experts.p_min}: "
                "give the experts that acted."
            )
        return LoggedExperts(experts)
    if declared.smoothing not in RULES or declared.p_min is None:
        raise QuorumError(
            f"the log says {declared.smoothing!r} of how its experts were smoothed, which names "
            f"none of the rules {', '.join(RULES)}: if exactly these policies drew every action, "
            "say so with LoggedExperts(experts)."
        )
    return LoggedExperts(smoothed_by(declared.smoothing, experts, declared.p_min))  # type: ignore[arg-type]


def _check_fit(experts: UnloggedExperts, spaces: Spaces | Sizes | Declared, where: str) -> None:
    if not isinstance(experts, UnloggedExperts):
        raise QuorumError(
            f"UnloggedExperts are needed here, not a {type(experts).__name__}: give the experts "
            "as they were before they acted."
        )
    if not np.array_equal(_rounded(experts.action_bounds), _rounded(spaces.action_bounds)):
        raise QuorumError(
            f"the experts' actions are {_said(experts.action_bounds)}, but those of {where} "
            f"{_said(spaces.action_bounds)}: use experts of this world."
        )
    width, actions = spaces.observation_size, spaces.action_count
    if (experts.observation_size, experts.action_count) != (width, actions):
        raise QuorumError(
            f"the experts see {experts.observation_size} numbers and have {experts.action_count} "
            f"actions, but {where} shows {width} and takes {actions}: use experts of this world."
        )


def _rounded(bounds: Bounds) -> npt.NDArray[np.float32]:
    return np.asarray(bounds, np.float32)  # as Gymnasium's environments have them


def _said(bounds: Bounds) -> str:
    within = ", ".join(f"{low:g} to {high:g}" for low, high in bounds)
    return f"continuous ({within})" if bounds else "a finite list"
