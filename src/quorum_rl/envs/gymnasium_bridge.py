"""The bridge to Gymnasium, both ways.

`WorldEnv` shows a world as a Gymnasium environment, one episode at a time: for tools that expect
one, not for speed (`roll_out` is for that). `play_episodes` lets a policy act in any Gymnasium
environment whose actions are a list, or numbers within bounds.
"""

import operator
from collections.abc import Callable, Hashable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, TypeAlias

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from quorum_rl.envs.gymnasium_copies import (
    Actions,
    Copies,
    EnvParams,
    EnvSource,
    Observations,
    Sizes,
)
from quorum_rl.envs.registry import get_world
from quorum_rl.envs.world import AnyWorld, Array, Key, Step, with_params
from quorum_rl.errors import QuorumError, at_least, require
from quorum_rl.types import Episode

BatchPolicy: TypeAlias = Callable[[Observations, np.random.Generator], Actions]
"""Actions `(n,)`, counted from 0, for observations `(n, observation_size)`; continuous ones
`(n, action_count)`."""

Seed: TypeAlias = int | Sequence[int] | None
"""What `numpy.random.SeedSequence` takes."""


# --- a world as a Gymnasium environment ---


class WorldEnv(gymnasium.Env[Observations, Any]):
    """One copy of a world, as a Gymnasium environment.

    `world` is a world or its name (see `get_world`); further keyword arguments are its
    parameters. The time limit is one of them, so no `TimeLimit` wrapper is needed.

    An episode is decided by one draw from `np_random` at `reset` and by the actions. Stepping
    after its end is undefined in Gymnasium; here the world stands still: the last observation and
    flags again, reward 0, and a warning.

    Raises:
        QuorumError: for an unknown world or parameter, a parameter that is not finite, a
            render mode other than "rgb_array"; from `step`, for a step before the first `reset`
            and for an action that is not one of the world's.
    """

    metadata: ClassVar[dict[str, Any]] = {  # type: ignore[misc]
        "render_modes": ["rgb_array"],
        "render_fps": 30,
    }

    def __init__(
        self, world: AnyWorld | str, *, render_mode: str | None = None, **overrides: float
    ) -> None:
        self.world = get_world(world) if isinstance(world, str) else world
        if not isinstance(self.world, Hashable):
            raise QuorumError(
                f"world {self.world.name!r} cannot be hashed: make it a frozen dataclass."
            )
        if render_mode not in (None, "rgb_array"):
            raise QuorumError(
                f"render mode {render_mode!r} is not supported: choose 'rgb_array' or none."
            )
        self.render_mode = render_mode
        self._overrides = overrides
        self._params = with_params(self.world, **overrides)
        seen = self.world.spaces
        self.observation_space = spaces.Box(
            np.asarray(seen.low, np.float32), np.asarray(seen.high, np.float32), dtype=np.float32
        )
        self.action_space: Any = spaces.Discrete(seen.action_count)
        if seen.continuous:
            self.action_space = spaces.Box(*np.array(seen.action_bounds, np.float32).T)
        self._key: Key | None = None
        self._state: Any = None
        self._time = 0
        self._ended: tuple[Observations, bool, bool] | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Start an episode; `options` are parameters of this episode only.

        Raises:
            QuorumError: for an unknown parameter or a value that is not finite.
        """
        chosen = {str(name): value for name, value in (options or {}).items()}
        self._params = with_params(self.world, **{**self._overrides, **chosen})
        super().reset(seed=seed)
        self._key = episode_key(self.np_random)
        self._state, observation = _first(self.world, self._key, self._params)
        self._time = 0
        self._ended = None
        return np.array(observation, np.float32), {}

    def step(self, action: Any) -> tuple[Observations, float, bool, bool, dict[str, Any]]:
        if self._key is None:
            raise QuorumError(f"{self.world.name} has not started: call reset() before step().")
        taken = self._checked_action(action)
        if self._ended is not None:
            observation, terminated, truncated = self._ended
            gymnasium.logger.warn(
                f"The episode of {self.world.name} has ended and the world stands still: "
                "call reset() to start another."
            )
            return observation.copy(), 0.0, terminated, truncated, {}
        after = _next(self.world, self._key, self._time, self._state, taken, self._params)
        self._state = after.state
        self._time += 1
        seen, reward, ended, stopped = jax.device_get(after[1:])
        observation, terminated, truncated = np.array(seen, np.float32), bool(ended), bool(stopped)
        if terminated or truncated:
            self._ended = observation.copy(), terminated, truncated
        return observation, float(reward), terminated, truncated, {}

    def render(self) -> NDArray[np.uint8] | None:
        """A picture of the present state, `(height, width, 3)`, in render mode "rgb_array"."""
        if self.render_mode is None:
            return None
        if self._key is None:
            raise QuorumError(f"{self.world.name} has not started: call reset() before render().")
        # Drawing needs matplotlib, which takes longer to import than most episodes take to run.
        from quorum_rl.envs.drawing import draw_state

        figure = draw_state(self.world, self._state, self._params)
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        canvas: Any = FigureCanvasAgg(figure)
        canvas.draw()
        return np.asarray(canvas.buffer_rgba())[..., :3].copy()

    def _checked_action(self, action: Any) -> Any:
        names = self.world.spaces.action_names
        if self.world.spaces.continuous:
            return self._checked_numbers(action)
        try:
            index = operator.index(action)
        except TypeError:
            index = -1
        if not 0 <= index < len(names):
            raise QuorumError(
                f"{self.world.name} has no action {action!r}: "
                f"give a whole number from 0 to {len(names) - 1} ({', '.join(names)})."
            )
        return index

    def _checked_numbers(self, action: Any) -> NDArray[np.float32]:
        """A continuous action, cut to its bounds, as Gymnasium's own environments do."""
        names = self.world.spaces.action_names
        try:
            numbers = np.asarray(action, np.float32)
        except (TypeError, ValueError):
            numbers = np.empty(0, np.float32)
        if numbers.shape != (len(names),) or not np.isfinite(numbers).all():
            raise QuorumError(
                f"{self.world.name} has no action {action!r}: give an array of {len(names)} finite "
                f"number{'s' if len(names) > 1 else ''} ({', '.join(names)})."
            )
        return np.clip(numbers, self.action_space.low, self.action_space.high)


def episode_key(rng: np.random.Generator) -> Key:
    """The key of a whole episode, in two 32-bit draws.

    It splits into the start's key and one into which step t (from 0) folds t.
    """
    words = rng.integers(2**32, size=2, dtype=np.uint32)
    key: Key = jax.random.wrap_key_data(jnp.asarray(words), impl="threefry2x32")
    return key


# The world is a static argument, so all environments of one world share one compiled program.
@partial(jax.jit, static_argnums=0)
def _first(world: AnyWorld, key: Key, params: Any) -> tuple[Any, Array]:
    start_key, _ = jax.random.split(key)
    return world.reset(start_key, params)


@partial(jax.jit, static_argnums=0)
def _next(
    world: AnyWorld, key: Key, time: Array, state: Any, action: Array, params: Any
) -> Step[Any]:
    _, steps_key = jax.random.split(key)
    return world.step(jax.random.fold_in(steps_key, time), state, action, params)


# --- a Gymnasium environment for our policies ---


def play_episodes(
    env: EnvSource,
    policy: BatchPolicy,
    *,
    params: EnvParams | None = None,
    episodes: int,
    copies: int = 8,
    seed: Seed = 0,
) -> list[Episode]:
    """Let `policy` play exactly `episodes` episodes of a Gymnasium environment, to their ends.

    Copies are stepped together and a copy that finishes takes the next episode. No episode is
    started that is not returned, so short ones are not favoured; an environment without a time
    limit may therefore run for ever.

    Observations are flattened as `gymnasium.spaces.flatten` does (a discrete one becomes one-hot);
    actions count from 0 even where the environment's own do not. Episode i starts from its own
    seed: which episodes are played does not depend on `copies`. Without a seed, chance comes from
    the operating system.

    Shapes: `policy` always sees `min(copies, episodes)` rows, so a compiled one compiles once;
    rows of copies that have nothing left to play keep their last observation and their actions
    are ignored.

    Raises:
        QuorumError: for an unknown environment or parameter, actions that are neither `Discrete`
            nor a bounded `Box` of one dimension, observations that cannot be flattened, or a
            policy that returns anything but one action per row.
    """
    require("episodes", episodes, at_least(1))
    require("copies", copies, at_least(1))
    for_starts, for_policy = np.random.SeedSequence(seed).spawn(2)
    starts = for_starts.generate_state(episodes, np.uint64).tolist()
    rng = np.random.default_rng(for_policy)
    with closing(Copies(env, params, count=min(copies, episodes))) as opened:
        return play(opened, lambda seen: policy(seen, rng), starts)


def play(
    copies: Copies,
    act: Callable[[Observations], Actions],
    starts: Sequence[int],
    *,
    longest: int | None = None,
) -> list[Episode]:
    """Play one episode from each seed of `starts`; see `play_episodes`.

    Row i of what `act` sees is copy i, which plays episode i first.

    Raises:
        QuorumError: if an episode has not ended after `longest` steps.
    """
    rows = min(len(copies), len(starts))
    waiting = iter(range(rows, len(starts)))
    episodes = [_Episode() for _ in starts]
    current = list(range(rows))  # the episode that each copy plays, or played last
    going = np.ones(rows, np.bool_)
    latest = copies.start(np.arange(rows), starts[:rows])
    for number, first in enumerate(latest):
        episodes[number].observations.append(first)
    while going.any():
        actions = _checked_actions(act(latest), rows, copies.sizes)
        active = np.flatnonzero(going)
        seen = copies.step(active, actions[active])
        latest = latest.copy()  # what `act` was shown stays as it was
        latest[active] = seen.observations
        fresh: list[int] = []
        for copy, action, *after in zip(active, actions[active], *seen, strict=True):
            if not episodes[current[copy]].goes_on(action, *after):
                following = next(waiting, None)
                if following is None:
                    going[copy] = False
                else:
                    current[copy] = following
                    fresh.append(copy)
            elif len(episodes[current[copy]].actions) == longest:
                raise QuorumError(
                    f"an episode of {copies.sizes.name} goes on after the declared {longest} "
                    "steps: declare the time limit that the environment has."
                )
        if fresh:
            seeds = [starts[current[copy]] for copy in fresh]
            latest[fresh] = copies.start(np.array(fresh), seeds)
            for copy in fresh:
                episodes[current[copy]].observations.append(latest[copy])
    return [episode.whole() for episode in episodes]


@dataclass
class _Episode:
    """An episode while it is played."""

    observations: list[Observations] = field(default_factory=list)
    actions: list[Any] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    terminated: bool = False
    truncated: bool = False

    def goes_on(
        self,
        action: Any,
        observation: Observations,
        reward: float,
        terminated: bool,
        truncated: bool,
    ) -> bool:
        """Add a step; whether there is another."""
        self.observations.append(observation)
        self.actions.append(action)
        self.rewards.append(reward)
        self.terminated, self.truncated = bool(terminated), bool(truncated)
        return not (terminated or truncated)

    def whole(self) -> Episode:
        return Episode(
            observations=np.stack(self.observations),
            actions=np.array(self.actions),
            rewards=np.array(self.rewards, np.float64),
            terminated=self.terminated,
            truncated=self.truncated,
        )


def _checked_actions(actions: Actions, rows: int, sizes: Sizes) -> Actions:
    values = np.asarray(actions)
    if sizes.action_bounds:
        return _checked_numbers(values, rows, sizes)
    if values.shape != (rows,) or not np.issubdtype(values.dtype, np.integer):
        raise QuorumError(
            f"the policy returns {values.dtype} of shape {values.shape}: "
            f"it must return one whole number per row, shape ({rows},)."
        )
    outside = values[(values < 0) | (values >= sizes.action_count)]
    if outside.size:
        raise QuorumError(
            f"the policy takes action {outside[0]}: the actions are 0 to {sizes.action_count - 1}."
        )
    return values.astype(np.int32)


def _checked_numbers(values: Actions, rows: int, sizes: Sizes) -> Actions:
    """Continuous actions within their bounds."""
    shape = (rows, sizes.action_count)
    if values.shape != shape or values.dtype.kind not in "iuf":
        raise QuorumError(
            f"the policy returns {values.dtype} of shape {values.shape}: it must return the "
            f"numbers of one action per row, shape {shape}."
        )
    made = values.astype(np.float32)
    low, high = np.asarray(sizes.action_bounds, np.float32).T
    bad = np.argwhere(~((made >= low) & (made <= high)))  # NaN is not
    if len(bad):
        row, number = bad[0]
        raise QuorumError(
            f"the policy takes an action whose number {number} is {made[row, number]:g}: it lies "
            f"between {low[number]:g} and {high[number]:g}."
        )
    return made
