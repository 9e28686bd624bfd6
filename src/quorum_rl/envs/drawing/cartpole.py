"""CartPole: the cart on its track; an episode as a strip of poses, position, angle and pushes."""

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from quorum_rl.envs.cartpole import ANGLE_LIMIT, POSITION_LIMIT, TIME_STEP
from quorum_rl.envs.drawing.parts import (
    Colour,
    action_rows,
    limits,
    new_figure,
    over_time,
    plain,
    scene,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CART_WIDTH: Final = 0.5  # metres; the world has no size for its cart
CART_HEIGHT: Final = 0.25
FRAMES: Final = 7  # of the strip


def _cart_and_pole(axes: "Axes", position: float, angle: float, pole_length: float) -> None:
    from matplotlib.patches import FancyBboxPatch

    corner = (position - CART_WIDTH / 2, 0.0)
    cart = FancyBboxPatch(
        corner, CART_WIDTH, CART_HEIGHT, boxstyle="round,pad=0,rounding_size=0.04",
        facecolor=Colour.BLUE, edgecolor="none", zorder=2,
    )  # fmt: skip
    axes.add_patch(cart)
    tip = (position + pole_length * math.sin(angle), CART_HEIGHT + pole_length * math.cos(angle))
    axes.plot(
        [position, tip[0]], [CART_HEIGHT, tip[1]],
        color=Colour.ORANGE, linewidth=4, solid_capstyle="round", zorder=3,
    )  # fmt: skip
    axes.plot(position, CART_HEIGHT, "o", color=Colour.BLACK, markersize=3.5, zorder=4)


def draw_state(state: Any, params: Any) -> "Figure":
    figure = new_figure(6.0, 2.3)
    axes = figure.add_subplot()
    position, pole_length = float(state.position), 2 * float(params.half_pole_length)
    for side in (-1, 1):
        lean = side * ANGLE_LIMIT
        far = (position + pole_length * math.sin(lean), CART_HEIGHT + pole_length * math.cos(lean))
        axes.plot(
            [position, far[0]],
            [CART_HEIGHT, far[1]],
            color=Colour.VERMILION,
            linewidth=1,
            linestyle=":",
        )
        axes.plot([side * POSITION_LIMIT] * 2, [0, 0.5], color=Colour.VERMILION, linewidth=1.5)
        axes.text(
            side * POSITION_LIMIT, 0.56, f"{side * POSITION_LIMIT:+.1f} m",
            ha="center", fontsize=8, color=Colour.VERMILION,
        )  # fmt: skip
    axes.plot(
        [-POSITION_LIMIT - 0.3, POSITION_LIMIT + 0.3], [0, 0], color=Colour.GREY, linewidth=1.5
    )
    _cart_and_pole(axes, position, float(state.angle), pole_length)
    scene(axes)
    axes.set_xlim(-POSITION_LIMIT - 0.5, POSITION_LIMIT + 0.5)
    axes.set_ylim(-0.1, CART_HEIGHT + pole_length + 0.1)
    axes.set_title(
        f"position {position:+.2f} m, angle {math.degrees(float(state.angle)):+.1f}°", fontsize=9
    )
    return figure


def draw_episode(seen: np.ndarray, actions: np.ndarray, params: Any, state: Any) -> "Figure":
    del state
    figure = new_figure(6.5, 5.0)
    panels = figure.add_gridspec(4, 1, height_ratios=(1.25, 1, 1, 0.5))
    times = np.arange(len(seen)) * TIME_STEP
    _strip(figure, panels[0], seen, params)
    position = figure.add_subplot(panels[1])
    position.plot(times, seen[:, 0], color=Colour.BLUE, linewidth=1.5)
    limits(position, -POSITION_LIMIT, POSITION_LIMIT)
    position.set_ylim(-1.15 * POSITION_LIMIT, 1.15 * POSITION_LIMIT)
    plain(position, y_label="position (m)")
    angle = figure.add_subplot(panels[2], sharex=position)
    angle.plot(times, np.degrees(seen[:, 2]), color=Colour.ORANGE, linewidth=1.5)
    limit = math.degrees(ANGLE_LIMIT)
    limits(angle, -limit, limit)
    angle.set_ylim(-1.25 * limit, 1.25 * limit)
    plain(angle, y_label="angle (°)")
    pushes = figure.add_subplot(panels[3], sharex=position)
    plain(pushes, x_label="time (s)", y_label="push")
    action_rows(pushes, actions, TIME_STEP, ("left", "right"))
    over_time(figure, [position, angle], pushes, times[-1])
    return figure


def _strip(figure: "Figure", place: Any, seen: np.ndarray, params: Any) -> None:
    """The cart at a few times, each frame centred on it."""
    pole_length = 2 * float(params.half_pole_length)
    chosen = np.unique(np.linspace(0, len(seen) - 1, FRAMES).round().astype(int))
    frames = place.subgridspec(1, FRAMES, wspace=0.0)
    for column, step in enumerate(chosen):
        axes = figure.add_subplot(frames[column])
        axes.plot([-0.6, 0.6], [0, 0], color=Colour.GREY, linewidth=1)
        _cart_and_pole(axes, 0.0, float(seen[step, 2]), pole_length)
        scene(axes)
        axes.set_xlim(-0.6, 0.6)
        axes.set_ylim(-0.05, CART_HEIGHT + pole_length + 0.05)
        axes.set_title(f"{step * TIME_STEP:.2f} s", fontsize=8)
