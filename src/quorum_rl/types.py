"""The types that flow between the stages."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt


class Transition(NamedTuple):
    """What happened in one step, or in many: then every field has the same leading axes.

    `next_observation` is the true successor, never the start of the next episode. A finite `action`
    is its number; a continuous one has an axis of numbers.
    """

    observation: jax.Array
    action: jax.Array
    reward: jax.Array
    next_observation: jax.Array
    terminated: jax.Array
    truncated: jax.Array


class Episode(NamedTuple):
    """One whole episode of T steps, in NumPy.

    Shapes: `observations` (T + 1, observation_size), the last being the state after the last step;
    `actions` and `rewards` (T,); continuous actions (T, action_count).
    """

    observations: npt.NDArray[np.float32]
    actions: npt.NDArray[Any]
    rewards: npt.NDArray[np.floating[Any]]
    terminated: bool
    truncated: bool


@dataclass(frozen=True, eq=False, repr=False)
class Released:
    """Prefixes that a release let out: public, at the cost that its ledger says.

    A prefix's last transition is `truncated` unless the world itself ended there: the trajectory
    went on, so a learner bootstraps from its last state.

    Shapes: the fields of `transitions` (transitions, …), one prefix after the other in the order of
    the iterations; `offsets` (prefixes + 1,), prefix i having the transitions from offset i up to
    offset i + 1.
    """

    transitions: Transition
    offsets: npt.NDArray[np.int64]
    observation_size: int
    action_count: int
    horizon: int

    def __repr__(self) -> str:
        return f"Released({len(self)} prefixes, {int(self.offsets[-1])} transitions)"

    def __len__(self) -> int:
        """The number of prefixes."""
        return len(self.offsets) - 1

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """How many steps each prefix has."""
        return np.diff(self.offsets)
