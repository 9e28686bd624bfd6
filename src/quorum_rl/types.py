"""The types that flow between the stages."""

from typing import NamedTuple

import jax


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
