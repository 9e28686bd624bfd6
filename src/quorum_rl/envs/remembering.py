"""A world that shows its last observations at once, for policies that must remember.

Whoever acts, learns or is judged there sees the same history, so nothing else has to know of it.
Before the first step the first observation stands for those before it, as in Gymnasium's
`FrameStackObservation`; `logs.with_history` does so with logs.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from quorum_rl.envs.world import AnyWorld, Array, Facts, Key, Spaces, Step, Units
from quorum_rl.errors import Rule, at_least, require
from quorum_rl.pytree import pytree


@pytree
class Remembered:
    """A state of the world, and what was seen last, the oldest first: (steps, numbers)."""

    inner: Any
    seen: Array


@dataclass(frozen=True)
class Remembering:
    """`world`, of which each observation is the last `steps` ones, the oldest first.

    Of each it `shows` the numbers at these places, or all.

    Raises:
        QuorumError: for fewer steps than one, or a place that is none.
    """

    world: AnyWorld
    steps: int
    shows: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        require("steps", self.steps, at_least(1))
        size = self.world.spaces.observation_size
        places = Rule(
            f"different places from 0 to {size - 1}, in a tuple",
            lambda shows: (
                isinstance(shows, tuple)
                and set(shows) <= set(range(size))
                and len(set(shows)) == len(shows)
            ),
        )
        require("shows", self.shows, places)

    @property
    def name(self) -> str:
        shown = f", {' '.join(map(str, self.shows))} of each" if self.shows else ""
        return f"{self.world.name}, {self.steps} steps{shown}"

    @property
    def spaces(self) -> Spaces:
        """The names of what is older say by how many steps."""
        inner, ages = self.world.spaces, range(self.steps - 1, -1, -1)
        return Spaces(
            observation_names=tuple(
                f"{name}, {age} before" if age else name
                for age in ages
                for name in self._of(inner.observation_names)
            ),
            low=self.steps * self._of(inner.low),
            high=self.steps * self._of(inner.high),
            action_names=inner.action_names,
            action_bounds=inner.action_bounds,
        )

    @property
    def facts(self) -> Facts:
        """Those of the world: what it is does not depend on what is seen of it."""
        return self.world.facts

    @property
    def units(self) -> Units | None:
        inner: Units | None = getattr(self.world, "units", None)
        if inner is None:
            return None
        centre, scale = (self.steps * self._of(numbers) for numbers in (inner.centre, inner.scale))
        return Units(centre, scale, inner.reward_scale)

    def default_params(self) -> Any:
        return self.world.default_params()

    def settings(self) -> Any:
        return self.world.settings()

    def reset(self, key: Key, params: Any) -> tuple[Remembered, Array]:
        inner, first = self.world.reset(key, params)
        seen = jnp.tile(self._shown(first), (self.steps, 1))
        return Remembered(inner, seen), seen.ravel()

    def step(self, key: Key, state: Remembered, action: Array, params: Any) -> Step[Remembered]:
        after = self.world.step(key, state.inner, action, params)
        seen = jnp.concatenate([state.seen[1:], self._shown(after.observation)[None]])
        return after._replace(state=Remembered(after.state, seen), observation=seen.ravel())

    def _of(self, each: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(each[place] for place in self.shows) if self.shows else each

    def _shown(self, observation: Array) -> Array:
        return observation[jnp.array(self.shows)] if self.shows else observation
