"""Space Invaders: shoot aliens that come down, and stay clear of their bullets.

The rules of MinAtar's Space Invaders, with its ramp of difficulty: aliens move together, faster the
fewer are left; at an edge they turn and come down a row. The one nearest to the cannon shoots. When
all are shot a new wave comes, which moves a little faster. An episode ends when a bullet or an
alien hits the cannon, or when the aliens have landed.
"""

from dataclasses import dataclass
from typing import ClassVar, Final

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

FIRE: Final = 3
START_COLUMN: Final = 5  # of the cannon
RELOAD: Final = 5  # steps between two shots of the cannon
SHORTEST_INTERVAL: Final = 6  # of the aliens' moves, however many waves have come
# How often an alien is where, rounded, of what the uniform and the reference policy see.
USUAL: Final = np.outer(
    (0.3, 0.6, 0.65, 0.55, 0.2, 0, 0, 0, 0, 0), (0.3, 0.6, 0.9, 1, 1, 1, 0.8, 0.5, 0.2, 0.1)
).round(2)
WAVE: Final = np.pad(np.ones((4, 6), bool), ((0, 6), (2, 2)))


@pytree
class SpaceInvadersParams:
    sticky_probability: float = STICKY_PROBABILITY
    move_interval: int = 12  # steps between two moves of the first wave
    shot_interval: int = 10  # steps between two shots of the aliens
    time_limit: int = 500


@pytree
class SpaceInvadersState:
    cannon: Array  # its column
    aliens: Array  # bool, (10, 10), as the bullets are
    bullets: Array  # of the cannon
    bombs: Array  # bullets of the aliens
    heading: Array  # of the aliens: 1 for right, -1 for left
    move_interval: Array
    until_move: Array
    until_shot: Array  # of the aliens
    reload: Array
    action: Array  # of the step before
    time: Array


@dataclass(frozen=True)
class SpaceInvaders:
    """The world; see the module's text."""

    name: ClassVar[str] = "SpaceInvaders"
    spaces: ClassVar[Spaces] = picture_spaces(
        ("cannon", "alien", "alien left", "alien right", "friendly bullet", "enemy bullet"),
        ("none", "left", "right", "fire"),
    )
    facts: ClassVar[Facts] = Facts(
        random_return=4.096,
        random_source="measured: mean of 10,000 episodes, standard error 0.033",
        reference_return=122.7,
        reference_source="a rule that dodges, and shoots where an alien will be: mean of 10,000 "
        "episodes, standard error 0.22",
        demonstration_time_limit=500,
        evaluation_time_limit=1000,
    )
    units: ClassVar[Units] = picture_units(0, USUAL, 0.6 * USUAL, 0.4 * USUAL, 0, 0)

    def default_params(self) -> SpaceInvadersParams:
        return SpaceInvadersParams()

    def settings(self) -> SpaceInvadersParams:
        """Stickiness in 25 steps × five speeds of the aliens × eight of their shots."""
        return grid(
            self.default_params(),
            sticky_probability=np.linspace(0.0, 0.2, 25),
            move_interval=np.linspace(10, 14, 5),
            shot_interval=np.linspace(7, 14, 8),
        )

    def reset(self, key: Key, params: SpaceInvadersParams) -> tuple[SpaceInvadersState, Array]:
        del key
        nothing = jnp.zeros((SIDE, SIDE), bool)
        interval = jnp.asarray(params.move_interval).astype(jnp.int32)
        state = SpaceInvadersState(
            cannon=jnp.int32(START_COLUMN),
            aliens=jnp.asarray(WAVE),
            bullets=nothing,
            bombs=nothing,
            heading=jnp.int32(-1),
            move_interval=interval,
            until_move=interval,
            until_shot=jnp.asarray(params.shot_interval).astype(jnp.int32),
            reload=jnp.int32(0),
            action=jnp.int32(0),
            time=jnp.int32(0),
        )
        return state, observe(state)

    def step(
        self, key: Key, state: SpaceInvadersState, action: Array, params: SpaceInvadersParams
    ) -> Step[SpaceInvadersState]:
        action = sticking(key, action, state.action, params.sticky_probability)
        fires = (action == FIRE) & (state.reload == 0)
        cannon = moved(state.cannon, action)
        bullets = _down(state.bullets | (fires & at(LAST, cannon)), -1)
        bombs = _down(state.bombs, 1)

        move = state.until_move == 0
        edge = jnp.where(state.heading < 0, state.aliens[:, 0], state.aliens[:, LAST]).any()
        aside = jnp.where(
            state.heading < 0,
            jnp.roll(state.aliens, -1, axis=1),
            jnp.roll(state.aliens, 1, axis=1),
        )
        aliens = jnp.where(move, jnp.where(edge, _down(state.aliens, 1), aside), state.aliens)
        landed = move & edge & state.aliens[LAST].any()
        crashed = (state.aliens | aliens)[LAST, cannon]
        count = state.aliens.sum(dtype=jnp.int32)
        until_move = jnp.where(move, jnp.minimum(count, state.move_interval), state.until_move)
        shoot = state.until_shot == 0
        shot_interval = jnp.asarray(params.shot_interval).astype(jnp.int32)
        after_shot = bombs | (shoot & _shooter(aliens, cannon))

        shot = aliens & bullets
        aliens = aliens & ~shot
        won = ~aliens.any()
        faster = won & (state.move_interval > SHORTEST_INTERVAL)
        after = SpaceInvadersState(
            cannon=cannon,
            aliens=jnp.where(won, jnp.asarray(WAVE), aliens),
            bullets=bullets & ~shot,
            bombs=after_shot,
            heading=jnp.where(move & edge, -state.heading, state.heading),
            move_interval=state.move_interval - faster,
            until_move=until_move - 1,
            until_shot=jnp.where(shoot, shot_interval, state.until_shot) - 1,
            reload=jnp.maximum(jnp.where(fires, RELOAD, state.reload) - 1, 0),
            action=action,
            time=state.time + 1,
        )
        return Step(
            state=after,
            observation=observe(after),
            reward=shot.sum(dtype=jnp.float32),
            terminated=bombs[LAST, cannon] | crashed | landed,
            truncated=after.time >= params.time_limit,
        )


def _down(cells: Array, rows: int) -> Array:
    """All cells a row further down, or up where `rows` is -1; what leaves the picture is gone."""
    entering = 0 if rows > 0 else LAST
    return jnp.roll(cells, rows, axis=0).at[entering].set(False)


def _shooter(aliens: Array, cannon: Array) -> Array:
    """The lowest alien of the column nearest to the cannon, of two such columns the left one."""
    columns = jnp.arange(SIDE)
    distance = 2 * jnp.abs(columns - cannon) + (columns > cannon)
    column = jnp.argmin(jnp.where(aliens.any(axis=0), distance, 2 * SIDE))
    row = jnp.max(jnp.where(aliens[:, column], columns, -1))
    return at(row, column)


def observe(state: SpaceInvadersState) -> Array:
    """The picture, flat."""
    left = state.heading < 0
    return picture(
        at(LAST, state.cannon),
        state.aliens,
        state.aliens & left,
        state.aliens & ~left,
        state.bullets,
        state.bombs,
    )
