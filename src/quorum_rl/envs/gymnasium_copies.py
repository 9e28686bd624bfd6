"""Copies of a Gymnasium environment that are stepped together, in this process."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from quorum_rl.dictionary import Bounds
from quorum_rl.envs.gymnasium_worlds import register_worlds
from quorum_rl.errors import QuorumError, at_least, require

Observations: TypeAlias = NDArray[np.float32]
Actions: TypeAlias = NDArray[Any]
"""Whole numbers, one for each row; of continuous actions float32, with an axis of their numbers."""
Flags: TypeAlias = NDArray[np.bool_]
Which: TypeAlias = NDArray[np.intp]

EnvSource: TypeAlias = str | Callable[[], gymnasium.Env[Any, Any]]
"""A name for `gymnasium.make`, or a function that makes a new environment at every call."""

EnvParams: TypeAlias = Mapping[str, float]
"""What `gymnasium.make` is given besides the name; 0 and 1 stand for no and yes."""

EnvFactory: TypeAlias = Callable[[], gymnasium.Env[Any, Any]]


class Sizes(NamedTuple):
    """What a policy has to know of an environment; `name` is for people."""

    name: str
    observation_size: int  # flattened
    action_count: int  # how many there are; of continuous ones, how many numbers an action has
    first_action: int = 0  # what the environment itself calls action 0
    action_bounds: Bounds = ()  # of continuous ones


class Seen(NamedTuple):
    """What one step showed of some of the copies, one row each."""

    observations: Observations
    rewards: NDArray[np.float64]
    terminated: Flags
    truncated: Flags


class Copies:
    """`count` new environments of one kind, counted from 0. Each plays an episode of its own.

    Raises:
        QuorumError: if the environment cannot be made or played.
    """

    def __init__(self, env: EnvSource, params: EnvParams | None = None, *, count: int) -> None:
        require("copies", count, at_least(1))
        factory = _factory_of(env, params or {})
        self._envs: list[gymnasium.Env[Any, Any]] = []
        try:
            for _ in range(count):
                self._envs.append(_made_by(factory))
            if len({id(env) for env in self._envs}) < count:
                raise QuorumError(
                    f"{factory!r} returns the same environment twice: let it make a new one."
                )
            self.sizes = _sizes(self._envs[0])
        except BaseException:
            self.close()
            raise
        self._seen_in = self._envs[0].observation_space

    def __len__(self) -> int:
        return len(self._envs)

    def start(self, which: Which, seeds: Sequence[int]) -> Observations:
        """Begin an episode in some of the copies, each from its seed: the first observations."""
        pairs = zip(which, seeds, strict=True)
        return self._flat([self._envs[copy].reset(seed=int(seed))[0] for copy, seed in pairs])

    def step(self, which: Which, actions: Actions) -> Seen:
        """Let some of the copies take one action each, counted from 0."""
        own: Any = actions
        if not self.sizes.action_bounds:
            own = (self.sizes.first_action + actions.astype(np.int64)).tolist()
        pairs = zip(which, own, strict=True)
        steps = [self._envs[copy].step(action) for copy, action in pairs]
        observations, rewards, terminated, truncated, _ = zip(*steps, strict=True)
        return Seen(
            self._flat(observations),
            np.array(rewards, np.float64),
            np.array(terminated, np.bool_),
            np.array(truncated, np.bool_),
        )

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def _flat(self, observations: Sequence[Any]) -> Observations:
        # Copied, because an environment may write its next observation into the same array.
        return np.array([spaces.flatten(self._seen_in, seen) for seen in observations], np.float32)


# --- one environment ---


def environment_sizes(env: EnvSource, params: EnvParams | None = None) -> Sizes:
    """How many numbers an environment shows, flattened, and how many actions it takes.

    Raises:
        QuorumError: if it cannot be made, or not be played.
    """
    with closing(_made_by(_factory_of(env, params or {}))) as made:
        return _sizes(made)


def _factory_of(env: EnvSource, params: EnvParams) -> EnvFactory:
    """How to make the environment.

    Raises:
        QuorumError: if Gymnasium cannot make it.
    """
    if not isinstance(env, str):
        if params:
            raise QuorumError("parameters go with an environment's name, not with a function.")
        return env
    register_worlds()
    # Gymnasium and many environments ask for an int where they mean a whole number or a flag.
    given: dict[str, Any] = {
        name: int(value) if value == int(value) else value
        for name, value in _numbers(params).items()
    }
    try:
        with closing(gymnasium.make(env, **given)) as made:
            # The specification, because the name may be registered in this process only.
            return partial(gymnasium.make, made.spec)  # type: ignore[arg-type]
    except gymnasium.error.DependencyNotInstalled as error:
        if "box2d" not in str(error).lower():
            raise QuorumError(f"Gymnasium cannot make {env!r}: {_in_a_line(error)}.") from error
        raise QuorumError(  # Gymnasium imports all environments of Box2D, and one draws at once
            f"{env} needs Box2D and pygame, not both of which are installed: "
            "pip install 'quorum-rl[box2d]'."
        ) from error
    except (gymnasium.error.Error, ImportError, TypeError, ValueError, AssertionError) as error:
        raise QuorumError(f"Gymnasium cannot make {env!r}: {_in_a_line(error)}.") from error


def _numbers(params: EnvParams) -> EnvParams:
    for name, value in params.items():
        if not isinstance(value, int | float | np.number) or not np.isfinite(value):
            raise QuorumError(f"the parameter {name!r} is {value!r}: give a finite number.")
    return params


def _made_by(factory: EnvFactory) -> gymnasium.Env[Any, Any]:
    """A new environment."""
    made = factory()
    if not isinstance(made, gymnasium.Env):
        raise QuorumError(f"{factory!r} returns {made!r}: it must return a Gymnasium environment.")
    return made


def _sizes(env: gymnasium.Env[Any, Any]) -> Sizes:
    name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
    actions: Any = env.action_space
    continuous = isinstance(actions, spaces.Box) and len(actions.shape) == 1
    if not (continuous or isinstance(actions, spaces.Discrete)):
        raise QuorumError(
            f"{name} has the action space {actions}: only Discrete actions, and Box ones of one "
            "dimension, are supported."
        )
    if continuous and not actions.is_bounded():
        raise QuorumError(
            f"{name} has the action space {actions}, which is not bounded: wrap it in "
            "gymnasium.wrappers.RescaleAction or ClipAction with bounds of your own."
        )
    if not env.observation_space.is_np_flattenable:
        raise QuorumError(
            f"{name} has the observation space {env.observation_space}, which cannot "
            "be flattened to a vector: wrap it so that its observations have a fixed size."
        )
    width = int(spaces.flatdim(env.observation_space))
    if isinstance(actions, spaces.Discrete):
        return Sizes(name, width, int(actions.n), int(actions.start))
    pairs = zip(actions.low.tolist(), actions.high.tolist(), strict=True)
    return Sizes(name, width, len(actions.low), action_bounds=tuple(pairs))


def _in_a_line(error: Exception) -> str:
    """What an error says, as part of a sentence."""
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__
