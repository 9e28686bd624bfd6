"""Letting experts act, and keeping what they did.

The actions are drawn from the very numbers that a later query of the same experts returns: the
release is private only if the queried policies generated the logs. The draws are part of that
release's randomness, so without a seed they come from the operating system.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from typing import Any, Final

import jax
import numpy as np
import numpy.typing as npt

from quorum_rl.dictionary import Bounds, Dictionary
from quorum_rl.distributed import broadcast, is_single_process, this_machine
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
    smoothed_by,
)
from quorum_rl.logs.assemble import from_episodes
from quorum_rl.logs.declared import Declared
from quorum_rl.logs.demonstrations import Demonstrations
from quorum_rl.logs.rolling import chances, chosen_actions, rolled
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
    played = rolled(experts, world, params, trajectories=trajectories, horizon=horizon, seed=seed)
    demonstrations = from_episodes(
        declared,
        expert=np.repeat(np.arange(len(experts)), trajectories),
        **played._asdict(),
    )
    return demonstrations, LoggedExperts(experts)


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
        draws = np.stack([chances(experts, rng, own.shape[1:2]) for rng in chance])
        actions = chosen_actions(experts, numbers, asked(own), draws)
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
