"""What the worlds of MinAtar share (Young and Tian, 2019): pictures of 10 × 10, sticky actions.

A picture has one channel a kind of thing, 1 where such a thing is. It is flattened row by row,
channels innermost: `observation.reshape(10, 10, channels)` is MinAtar's own array.
"""

from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from quorum_rl.envs.world import Array, Key, Spaces, Units

SIDE: Final = 10
LAST: Final = SIDE - 1
STICKY_PROBABILITY: Final = 0.1  # MinAtar's default
MOVES: Final = (0, -1, 1, 0)  # none, left, right, and what else may follow


def picture_spaces(channels: tuple[str, ...], action_names: tuple[str, ...]) -> Spaces:
    """A number is named after its channel, row and column, both counted from the top left."""
    cells = [(row, column) for row in range(SIDE) for column in range(SIDE)]
    names = tuple(f"{channel} {row} {column}" for row, column in cells for channel in channels)
    return Spaces(names, (0.0,) * len(names), (1.0,) * len(names), action_names)


def picture_units(*centres: Any) -> Units:
    """A quarter for a thing, around how often a cell has it: of a map or a number for each channel.

    What is nearly always there, such as a wall, would otherwise be all that a learner sees.
    """
    cells = np.stack([np.broadcast_to(centre, (SIDE, SIDE)) for centre in centres], axis=-1)
    return Units(tuple(cells.ravel().tolist()), (0.25,) * cells.size)


def picture(*channels: Array) -> Array:
    """Bool maps of the cells as one flat observation."""
    # Converted first: it takes a sixth off the time of a Breakout step.
    return jnp.stack([channel.astype(jnp.float32) for channel in channels], axis=-1).reshape(-1)


def at(row: Array | int, column: Array) -> Array:
    """The map that is true in one cell."""
    cells = jnp.arange(SIDE)
    return (cells == row)[:, None] & (cells == column)[None, :]


def sticking(key: Key, action: Array, before: Array, probability: Array | float) -> Array:
    """The action of the step before again with this probability, or else `action`."""
    again = jax.random.uniform(key, (), jnp.float32) < probability
    return jnp.where(again, before, action).astype(jnp.int32)


def moved(column: Array, action: Array) -> Array:
    """Where the player is after an action; the walls stop it."""
    return jnp.clip(column + jnp.array(MOVES, jnp.int32)[action], 0, LAST)
