"""The types that flow between the stages."""

from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt


class Transition(NamedTuple):
    """What happened in one step, or in many: then every field has the same leading axes.

    `next_observation` is the true successor, never the start of the next episode.
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
    `actions` and `rewards` (T,).
    """

    observations: npt.NDArray[np.float32]
    actions: npt.NDArray[np.integer[Any]]
    rewards: npt.NDArray[np.floating[Any]]
    terminated: bool
    truncated: bool
