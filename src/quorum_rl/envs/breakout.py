"""Breakout: keep a ball in play with a paddle, and break bricks with it.

The rules of MinAtar's Breakout: the ball moves one cell along a diagonal each step, turns at walls,
bricks and paddle, and breaks a brick unless it was in one the step before. A wall without bricks is
built anew when the ball comes down. An episode ends when the paddle misses the ball.
"""

from dataclasses import dataclass
from typing import ClassVar, Final

import jax
import jax.numpy as jnp
import numpy as np

from quorum_rl.envs.minatar import (
    LAST,
    SIDE,
    STICKY_PROBABILITY,
    at,
    moved,
    picture,
    picture_spaces,
    picture_units,
    sticking,
)
from quorum_rl.envs.world import Array, Facts, Key, Spaces, Step, Units, grid
from quorum_rl.pytree import pytree

START_COLUMN: Final = 4  # of the paddle
WALL: Final = np.repeat(np.isin(np.arange(SIDE), (1, 2, 3))[:, None], SIDE, axis=1)


@pytree
class BreakoutParams:
    sticky_probability: float = STICKY_PROBABILITY
    right_start: float = 0.5  # the probability that the ball comes from the right
    start_row: int = 3  # of the ball, 0 to 8
    time_limit: int = 500


@pytree
class BreakoutState:
    column: Array  # of the ball
    row: Array
    last_column: Array  # of its trail
    last_row: Array
    right: Array  # where it goes: 1, or -1 for left
    down: Array  # 1, or -1 for up
    in_brick: Array  # bool; it breaks none then
    paddle: Array
    bricks: Array  # bool, (10, 10)
    action: Array  # of the step before
    time: Array


@dataclass(frozen=True)
class Breakout:
    """The world; see the module's text."""

    name: ClassVar[str] = "Breakout"
    spaces: ClassVar[Spaces] = picture_spaces(
        ("paddle", "ball", "trail", "brick"), ("none", "left", "right")
    )
    facts: ClassVar[Facts] = Facts(
        random_return=0.390,
        random_source="measured: mean of 10,000 episodes, standard error 0.0064",
        reference_return=83.2,
        reference_source="a rule that plays the ball's flight ahead: mean of 2,000 episodes, "
        "standard error 0.34",
        demonstration_time_limit=500,
        evaluation_time_limit=1000,
    )
    units: ClassVar[Units] = picture_units(0, 0, 0, 0.75 * WALL)

    def default_params(self) -> BreakoutParams:
        return BreakoutParams()

    def settings(self) -> BreakoutParams:
        """Stickiness in 25 steps × ten probabilities of a ball from the right × four start rows."""
        return grid(
            self.default_params(),
            sticky_probability=np.linspace(0.0, 0.2, 25),
            right_start=np.linspace(0.0, 1.0, 10),
            start_row=np.linspace(3, 6, 4),
        )

    def reset(self, key: Key, params: BreakoutParams) -> tuple[BreakoutState, Array]:
        right = jax.random.uniform(key, (), jnp.float32) < params.right_start
        column = jnp.where(right, jnp.int32(LAST), 0)
        row = jnp.asarray(params.start_row).astype(jnp.int32)
        state = BreakoutState(
            column=column,
            row=row,
            last_column=column,
            last_row=row,
            right=jnp.where(right, jnp.int32(-1), 1),
            down=jnp.int32(1),
            in_brick=jnp.bool_(False),
            paddle=jnp.int32(START_COLUMN),
            bricks=jnp.asarray(WALL),
            action=jnp.int32(0),
            time=jnp.int32(0),
        )
        return state, observe(state)

    def step(
        self, key: Key, state: BreakoutState, action: Array, params: BreakoutParams
    ) -> Step[BreakoutState]:
        action = sticking(key, action, state.action, params.sticky_probability)
        paddle = moved(state.paddle, action)
        column, row = state.column + state.right, state.row + state.down
        right = jnp.where((column < 0) | (column > LAST), -state.right, state.right)
        column = jnp.clip(column, 0, LAST)
        over = row < 0
        brick = ~over & state.bricks[row, column]
        breaks = brick & ~state.in_brick
        low = ~over & ~brick & (row == LAST)
        # The paddle sends the ball on when below it, and back where it came from when ahead of it.
        below = low & (state.column == paddle)
        ahead = low & ~below & (column == paddle)
        bricks = state.bricks & ~(breaks & at(row, column))
        turns = over | breaks | below | ahead
        after = BreakoutState(
            column=column,
            row=jnp.where(over, 0, jnp.where(turns, state.row, row)),
            last_column=state.column,
            last_row=state.row,
            right=jnp.where(ahead, -right, right),
            down=jnp.where(turns, -state.down, state.down),
            in_brick=brick,
            paddle=paddle,
            bricks=jnp.where(low & ~bricks.any(), jnp.asarray(WALL), bricks),
            action=action,
            time=state.time + 1,
        )
        return Step(
            state=after,
            observation=observe(after),
            reward=breaks.astype(jnp.float32),
            terminated=low & ~below & ~ahead,
            truncated=after.time >= params.time_limit,
        )


def observe(state: BreakoutState) -> Array:
    """The picture, flat."""
    return picture(
        at(LAST, state.paddle),
        at(state.row, state.column),
        at(state.last_row, state.last_column),
        state.bricks,
    )
