"""Pictures of a state and of an episode, for reports and papers.

Drawn with matplotlib's objects alone: no window, no pyplot, nothing remembered between two calls,
so the same input gives the same picture. matplotlib is imported on the first drawing, not with
the worlds. `save_figure` writes PNG, SVG or PDF; an SVG written twice is the same file.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from quorum_rl.envs.acrobot import Acrobot
from quorum_rl.envs.breakout import Breakout
from quorum_rl.envs.cartpole import CartPole
from quorum_rl.envs.drawing import (
    acrobot,
    cartpole,
    generic,
    hiv,
    lunar_lander,
    minatar,
    pendulum,
)
from quorum_rl.envs.hiv import Hiv
from quorum_rl.envs.lunar_lander import LunarLander
from quorum_rl.envs.pendulum import Pendulum
from quorum_rl.envs.space_invaders import SpaceInvaders
from quorum_rl.envs.world import AnyWorld
from quorum_rl.errors import QuorumError
from quorum_rl.types import Transition

if TYPE_CHECKING:
    from matplotlib.figure import Figure


DRAWINGS: Final = {
    CartPole: cartpole, Acrobot: acrobot, Hiv: hiv, LunarLander: lunar_lander, Pendulum: pendulum,
    Breakout: minatar, SpaceInvaders: minatar,
}  # fmt: skip


def draw_state(world: AnyWorld, state: Any, params: Any) -> "Figure":
    """One state of one copy of `world`; a world without a drawing of its own gets a table."""
    own = _drawing_of(world)
    return own.draw_state(state, params) if own else generic.draw_state(world, state)


def draw_episode(
    world: AnyWorld,
    transitions: Transition,
    params: Any,
    title: str | None = None,
    state: Any = None,
) -> "Figure":
    """One episode of `world`; one without a drawing of its own gets its observations over time.

    `state` is one of the episode's states, where there is one: LunarLander's has the ground, which
    no observation tells.

    Shapes: every leaf of `transitions` has one leading axis, the steps.

    Raises:
        QuorumError: if `transitions` is not one episode.
    """
    seen, actions = _one_episode(world, transitions)
    own = _drawing_of(world)
    figure = (
        own.draw_episode(seen, actions, params, state)
        if own
        else generic.draw_episode(world, seen, actions)
    )
    if title is not None:
        figure.suptitle(title, fontsize=10)
    return figure


def save_figure(figure: "Figure", path: str | Path) -> None:
    """Write `figure` in the format of the path's suffix; equal figures give equal SVG files."""
    from matplotlib import rc_context

    undated = {"Date": None} if Path(path).suffix == ".svg" else None
    with rc_context({"svg.hashsalt": "quorum"}):  # otherwise names inside the file are random
        figure.savefig(path, metadata=undated)


def _drawing_of(world: AnyWorld) -> Any:
    """The module that draws the world, if there is one of its own."""
    return next((own for kind, own in DRAWINGS.items() if isinstance(world, kind)), None)


def _one_episode(world: AnyWorld, transitions: Transition) -> tuple[np.ndarray, np.ndarray]:
    """Observations at steps 0 … n, and the n actions between them."""
    size = world.spaces.observation_size
    observation = np.asarray(transitions.observation)
    if observation.ndim != 2 or observation.shape[1] != size or len(observation) == 0:
        raise QuorumError(
            f"an episode of {world.name} has observations of shape (steps, {size}), not "
            f"{observation.shape}: pick one copy, for instance jax.tree.map(lambda x: x[:, 0], …)."
        )
    ended = np.asarray(transitions.terminated) | np.asarray(transitions.truncated)
    if ended[:-1].any():
        raise QuorumError(
            f"these transitions of {world.name} end an episode at step {int(ended.argmax()) + 1} "
            f"of {len(ended)}: draw one episode, so cut them there."
        )
    last = np.asarray(transitions.next_observation)[-1:]
    return np.concatenate([observation, last]), np.asarray(transitions.action)
