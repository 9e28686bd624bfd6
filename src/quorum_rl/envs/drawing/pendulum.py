"""Pendulum: its rod; an episode as poses over each other, angle and torque."""

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from quorum_rl.envs.drawing.parts import Colour, limits, new_figure, over_time, plain, scene
from quorum_rl.envs.pendulum import TIME_STEP, TORQUE_LIMIT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GHOSTS: Final = 30  # poses drawn over each other


def _rod(axes: "Axes", angle: float, length: float, **style: Any) -> None:
    axes.plot(
        [0.0, -length * math.sin(angle)], [0.0, length * math.cos(angle)],
        solid_capstyle="round", **style,
    )  # fmt: skip


def _view(axes: "Axes", length: float) -> None:
    axes.plot(0, 0, "o", color=Colour.BLACK, markersize=5, zorder=4)
    axes.set_xlim(-1.2 * length, 1.2 * length)
    axes.set_ylim(-1.2 * length, 1.2 * length)
    scene(axes)


def draw_state(state: Any, params: Any) -> "Figure":
    figure = new_figure(3.4, 3.4)
    axes = figure.add_subplot()
    _rod(axes, float(state.angle), float(params.length), color=Colour.BLUE, linewidth=8)
    _view(axes, float(params.length))
    axes.set_title(f"angle {math.degrees(float(state.angle)):+.0f}°", fontsize=9)
    return figure


def draw_episode(seen: np.ndarray, actions: np.ndarray, params: Any, state: Any) -> "Figure":
    del state
    figure = new_figure(7.5, 3.6)
    panels = figure.add_gridspec(2, 2, width_ratios=(1, 1.6), height_ratios=(5, 2))
    poses = figure.add_subplot(panels[:, 0])
    angle = np.arctan2(seen[:, 1], seen[:, 0])
    times = np.arange(len(seen)) * TIME_STEP
    last = len(seen) - 1
    for step in np.unique(np.linspace(0, last, GHOSTS).round().astype(int)):
        late = step / last
        _rod(
            poses, float(angle[step]), float(params.length),
            color=Colour.BLUE, alpha=0.1 + 0.9 * late**3, linewidth=1.2 + 4 * late**3,
        )  # fmt: skip
    _view(poses, float(params.length))
    turned = figure.add_subplot(panels[0, 1])
    turned.plot(times, np.degrees(angle), ".", color=Colour.BLUE, markersize=3)
    limits(turned, 0.0)
    turned.set_ylim(-185, 185)
    plain(turned, y_label="angle (°)")
    torque = figure.add_subplot(panels[1, 1], sharex=turned)
    torque.step(times[:-1], actions[:, 0], where="post", color=Colour.GREY, linewidth=1.2)
    torque.set_ylim(-1.1 * TORQUE_LIMIT, 1.1 * TORQUE_LIMIT)
    plain(torque, x_label="time (s)", y_label="torque\n(N m)")
    over_time(figure, [turned], torque, times[-1])
    return figure
