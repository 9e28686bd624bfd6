"""How MinAtar's worlds are played well: the rules that are their reference policies."""

from dataclasses import replace
from typing import Final

import jax
import jax.numpy as jnp

from quorum_rl.envs.breakout import Breakout, BreakoutState
from quorum_rl.envs.minatar import LAST, SIDE, moved
from quorum_rl.envs.space_invaders import FIRE
from quorum_rl.envs.world import Array, Key

NONE, LEFT, RIGHT = range(3)
LONGEST_FLIGHT: Final = 50  # steps from paddle to paddle, at most
BREAKOUT: Final = Breakout()
CERTAIN: Final = replace(BREAKOUT.default_params(), sticky_probability=0.0)
SLOWEST: Final = 12  # steps between two moves of the aliens
DODGED: Final = 4  # the first row of bullets that are dodged


def catch(key: Key, observation: Array) -> Array:
    """Breakout: play the ball's flight ahead, and go where it comes down.

    Of the two ways to send it up again, that is chosen after which it breaks more bricks.
    """
    del key
    now = _seen(observation)
    landing, _ = _flight(now)
    ways = jnp.stack([landing.column, jnp.clip(landing.column + landing.right, 0, LAST)])

    def promise(paddle: Array) -> Array:
        sent = _on(replace(landing, paddle=paddle))
        return _flight(sent)[1]

    target = ways[jnp.argmax(jax.vmap(promise)(ways))]
    return jnp.where(target < now.paddle, LEFT, jnp.where(target > now.paddle, RIGHT, NONE))


def _on(state: BreakoutState) -> BreakoutState:
    return BREAKOUT.step(jax.random.key(0), state, jnp.int32(NONE), CERTAIN).state


def _flight(state: BreakoutState) -> tuple[BreakoutState, Array]:
    """The ball above the paddle's row, about to come down on it, and how many bricks it broke."""

    def flies(now: BreakoutState) -> Array:
        lands = (now.row == LAST - 1) & (now.down == 1)
        return ~lands & (now.time < LONGEST_FLIGHT)

    landing = jax.lax.while_loop(flies, _on, replace(state, time=jnp.int32(0)))
    return landing, state.bricks.sum() - landing.bricks.sum()


def _seen(observation: Array) -> BreakoutState:
    """The state behind a picture. Where the ball stayed in its row it has just turned."""
    paddle, ball, trail, bricks = jnp.moveaxis(observation.reshape(SIDE, SIDE, -1), -1, 0) > 0
    row, column = jnp.divmod(jnp.argmax(ball), SIDE)
    last_row, last_column = jnp.divmod(jnp.argmax(trail), SIDE)
    turned = row == last_row
    inwards = jnp.where(column == 0, 1, -1)
    return BreakoutState(
        column=column,
        row=row,
        last_column=last_column,
        last_row=last_row,
        right=jnp.where(column == last_column, inwards, jnp.sign(column - last_column)),
        down=jnp.where(turned, jnp.where(row == LAST - 1, -1, 1), jnp.sign(row - last_row)),
        in_brick=bricks[row, column] | (turned & (row > 0)),
        paddle=jnp.argmax(paddle[LAST]),
        bricks=bricks,
        action=jnp.int32(NONE),
        time=jnp.int32(0),
    )


# --- Space Invaders ---


def shoot(key: Key, observation: Array) -> Array:
    """Space Invaders: stay out of the way of bullets, and fire where an alien will be.

    The last alien moves as fast as the cannon: wait for it in the middle.
    """
    del key
    cannon, aliens, left, _, _, bombs = jnp.moveaxis(observation.reshape(SIDE, SIDE, -1), -1, 0) > 0
    here, columns, rows = jnp.argmax(cannon[LAST]), jnp.arange(SIDE), jnp.arange(SIDE)[:, None]
    count = aliens.sum()
    heading = jnp.where(left.any(), -1, 1)

    def met(steps: Array) -> Array:
        return columns + heading * (steps // jnp.clip(count, 1, SLOWEST))

    up = LAST - rows  # steps of a bullet; one less to an alien that turns, for it comes down
    turned = (met(up) < 0) | (met(up) > LAST)
    target = jnp.where(turned, met(up - 1), met(up))
    target = jnp.where(target < 0, -1 - target, target)
    target = jnp.where(target > LAST, 2 * SIDE - 1 - target, target)
    aimed = ((target[:, :, None] == columns) & aliens[:, :, None]).any((0, 1))

    danger = jnp.where(bombs & (rows >= DODGED) & (rows < LAST), 100 * 10.0**rows, 0).max(axis=0)
    nearest = jnp.where(aimed, jnp.abs(columns[:, None] - columns), 2 * SIDE).min(axis=1)
    away = jnp.where(count == 1, jnp.abs(columns - (SIDE - 1) / 2), nearest)
    cost = (danger + away)[moved(here, jnp.array([NONE, LEFT, RIGHT, FIRE]))]
    return jnp.argmin(cost.at[FIRE].add(jnp.where(aimed[here], -0.5, 0.5)))
