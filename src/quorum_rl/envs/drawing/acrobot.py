"""Acrobot: its links and the bar; an episode as poses over each other, height and torque."""

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from quorum_rl.envs.acrobot import BAR_HEIGHT, TIME_STEP
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

TIME_COLOURS: Final = "viridis_r"  # early is light, late is dark
GHOSTS: Final = 30  # poses drawn over each other


def _joints(angle_1: float, angle_2: float, params: Any) -> tuple[list[float], list[float]]:
    """The hinge, the joint and the tip: their x and their y."""
    length_1, length_2 = float(params.link_length_1), float(params.link_length_2)
    joint = (length_1 * math.sin(angle_1), -length_1 * math.cos(angle_1))
    lean = angle_1 + angle_2
    tip = (joint[0] + length_2 * math.sin(lean), joint[1] - length_2 * math.cos(lean))
    return [0.0, joint[0], tip[0]], [0.0, joint[1], tip[1]]


def _bar_and_view(axes: "Axes", params: Any) -> None:
    reach = max(float(params.link_length_1) + float(params.link_length_2), BAR_HEIGHT) + 0.15
    axes.plot(
        [-reach, reach], [BAR_HEIGHT] * 2, color=Colour.VERMILION, linewidth=1.5, linestyle=":"
    )
    axes.text(
        -reach, BAR_HEIGHT + 0.05, f"bar, {BAR_HEIGHT:.0f} m", fontsize=8, color=Colour.VERMILION
    )
    axes.set_xlim(-reach, reach)
    axes.set_ylim(-reach, reach)
    scene(axes)


def draw_state(state: Any, params: Any) -> "Figure":
    figure = new_figure(3.4, 3.4)
    axes = figure.add_subplot()
    _bar_and_view(axes, params)
    x, y = _joints(float(state.angle_1), float(state.angle_2), params)
    axes.plot(x[:2], y[:2], color=Colour.BLUE, linewidth=7, solid_capstyle="round")
    axes.plot(x[1:], y[1:], color=Colour.SKY, linewidth=7, solid_capstyle="round")
    axes.plot(x[:2], y[:2], "o", color=Colour.BLACK, markersize=5)
    axes.plot(x[2:], y[2:], "o", color=Colour.ORANGE, markersize=6)
    return figure


def draw_episode(seen: np.ndarray, actions: np.ndarray, params: Any, state: Any) -> "Figure":
    del state
    figure = new_figure(7.5, 3.6)
    panels = figure.add_gridspec(2, 2, width_ratios=(1, 1.15), height_ratios=(5, 2))
    angle_1 = np.arctan2(seen[:, 1], seen[:, 0])
    angle_2 = np.arctan2(seen[:, 3], seen[:, 2])
    times = np.arange(len(seen)) * TIME_STEP
    _ghosts(figure, figure.add_subplot(panels[:, 0]), angle_1, angle_2, params)
    height = figure.add_subplot(panels[0, 1])
    # What ends an episode is the height of a tip of links of one metre, whatever their lengths.
    height.plot(
        times, -np.cos(angle_1) - np.cos(angle_1 + angle_2), color=Colour.BLUE, linewidth=1.5
    )
    limits(height, BAR_HEIGHT)
    height.set_ylim(-2.2, 2.2)
    same = float(params.link_length_1) == float(params.link_length_2) == 1.0
    plain(height, y_label="height of the tip (m)" if same else "height of the tip\n(links of 1 m)")
    torque = figure.add_subplot(panels[1, 1], sharex=height)
    plain(torque, x_label="time (s)", y_label="torque\n(N m)")
    action_rows(torque, actions, TIME_STEP, ("−1", "0", "+1"))
    over_time(figure, [height], torque, times[-1])
    return figure


def _ghosts(
    figure: "Figure", axes: "Axes", angle_1: np.ndarray, angle_2: np.ndarray, params: Any
) -> None:
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    _bar_and_view(axes, params)
    highest = 0.0
    last = len(angle_1) - 1
    duration = last * TIME_STEP
    colours = colormaps[TIME_COLOURS]
    for step in np.unique(np.linspace(0, last, GHOSTS).round().astype(int)):
        x, y = _joints(float(angle_1[step]), float(angle_2[step]), params)
        highest, late = max(highest, *y), step / last
        axes.plot(
            x, y, color=colours(late), alpha=0.35 + 0.65 * late**3, linewidth=1.2 + 2.3 * late**3,
            marker="o", markersize=2, solid_capstyle="round", solid_joinstyle="round",
        )  # fmt: skip
    axes.plot(0, 0, "o", color=Colour.BLACK, markersize=5, zorder=4)
    axes.set_ylim(top=max(highest, BAR_HEIGHT) + 0.3)
    scale = ScalarMappable(Normalize(0, duration), colours)
    bar = figure.colorbar(
        scale, ax=axes, orientation="horizontal", shrink=0.75, aspect=30, pad=0.02
    )
    bar.set_label("time (s)", fontsize=9)
    bar.ax.tick_params(labelsize=8, length=3)
