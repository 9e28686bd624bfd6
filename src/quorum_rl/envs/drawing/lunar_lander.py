"""LunarLander: the lander over its ground; an episode as its path, speed, angle and engines."""

import itertools
import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from quorum_rl.envs.drawing.parts import (
    Colour,
    limits,
    new_figure,
    over_time,
    plain,
    scene,
    schedule,
)
from quorum_rl.envs.lunar_lander.geometry import EDGE_WIDTH, HEIGHT, HULL, LEG, PAD_HEIGHT, WIDTH
from quorum_rl.envs.lunar_lander.joints import HINGES, LEG_DOWN, TIME_STEP
from quorum_rl.envs.lunar_lander.world import LEAST_POWER

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Points = NDArray[np.float64]

FRAMES: Final = 6  # landers along a path
PAD: Final = (4 * EDGE_WIDTH, 6 * EDGE_WIDTH)
GROUND_AT_PAD: Final = 0.99 * PAD_HEIGHT
ENGINES: Final = ("left", "main", "right")
USUAL_ANGLE: Final = 0.42  # of a leg in flight: its motor holds it at the end of its range
# In the hull's frame: where each engine's flame starts and where it ends.
FLAMES: Final = (
    ((-0.57, 0.45), (-0.95, 0.45)),
    ((0.0, -0.34), (0.0, -1.1)),
    ((0.57, 0.45), (0.95, 0.45)),
)


def _burning(actions: np.ndarray) -> NDArray[np.bool_]:
    """Which of `ENGINES` burn; actions are a list, or continuous. Shapes: (3, steps)."""
    if actions.ndim == 1:
        return np.stack([actions == action for action in (1, 2, 3)])
    main, side = actions.T
    return np.stack([side < -LEAST_POWER, main > 0, side > LEAST_POWER])


def _placed(local: Any, x: float, y: float, angle: float) -> Points:
    """Points of a body, in the world."""
    sine, cosine = math.sin(angle), math.cos(angle)
    along, up = np.asarray(local, np.float64).T
    return np.stack([x + cosine * along - sine * up, y + sine * along + cosine * up], axis=1)


def _shape(axes: "Axes", points: Points, colour: str) -> None:
    from matplotlib.patches import Polygon

    axes.add_patch(
        Polygon(points, facecolor=colour, edgecolor=Colour.BLACK, linewidth=0.6, zorder=3)
    )


def _lander_at(axes: "Axes", x: float, y: float, angle: float, burning: Any) -> None:
    """The lander from what an observation tells: legs as they usually are in flight."""
    for hinge in HINGES:
        turned = angle + hinge.reference_angle + math.copysign(USUAL_ANGLE, hinge.lowest)
        anchor = _placed([hinge.anchor], 0.0, 0.0, turned)[0]
        _shape(axes, _placed(LEG.vertices, x - anchor[0], y - anchor[1], turned), Colour.SKY)
    _shape(axes, _placed(HULL.vertices, x, y, angle), Colour.BLUE)
    for flame in itertools.compress(FLAMES, burning):
        points = _placed(flame, x, y, angle)
        axes.plot(*points.T, color=Colour.ORANGE, linewidth=3, solid_capstyle="round", zorder=2)


def _flags(axes: "Axes") -> None:
    for x in PAD:
        axes.plot(
            [x, x], [GROUND_AT_PAD, PAD_HEIGHT + 1.6], color=Colour.GREY, linewidth=1, zorder=1
        )
        flag = [(x, PAD_HEIGHT + 1.6), (x, PAD_HEIGHT + 1.2), (x + 0.8, PAD_HEIGHT + 1.4)]
        axes.fill(*np.array(flag).T, color=Colour.VERMILION, zorder=1)


def _ground(axes: "Axes", state: Any) -> None:
    ground = np.asarray(state.ground, np.float64)
    axes.fill_between(np.arange(len(ground)) * EDGE_WIDTH, ground, color=Colour.GREY, linewidth=0)


def draw_state(state: Any, params: Any) -> "Figure":
    del params
    figure = new_figure(6.0, 4.2)
    axes = figure.add_subplot()
    _ground(axes, state)
    _flags(axes)
    lander = state.lander
    for leg in lander.legs:
        pose = leg.body.pose
        points = _placed(
            LEG.vertices, float(pose.centre.x), float(pose.centre.y), float(pose.angle)
        )
        _shape(axes, points, Colour.ORANGE if bool(leg.touches) else Colour.SKY)
    pose = lander.hull.pose
    about_centre = HULL.vertices - np.array(HULL.centre)
    x, y, angle = float(pose.centre.x), float(pose.centre.y), float(pose.angle)
    _shape(
        axes,
        _placed(about_centre, x, y, angle),
        Colour.VERMILION if bool(lander.crashed) else Colour.BLUE,
    )
    scene(axes)
    axes.set_xlim(min(0.0, x - 1.5), max(WIDTH, x + 1.5))
    axes.set_ylim(0, max(HEIGHT, y + 1.0))
    velocity = lander.hull.motion.velocity
    speed = math.hypot(float(velocity.x), float(velocity.y))
    axes.set_title(f"speed {speed:.2f} m/s, angle {math.degrees(angle):+.1f}°", fontsize=9)
    return figure


def draw_episode(seen: np.ndarray, actions: np.ndarray, params: Any, state: Any) -> "Figure":
    del params
    figure = new_figure(6.5, 7.0)
    panels = figure.add_gridspec(4, 1, height_ratios=(3.6, 1, 1, 0.7))
    above = figure.add_subplot(panels[0])
    if state is not None:
        _ground(above, state)
    _path(above, seen, actions)
    times = np.arange(len(seen)) * TIME_STEP
    speed = figure.add_subplot(panels[1])
    fall = seen[:, 3] / (HEIGHT / 2) / TIME_STEP
    drift = seen[:, 2] / (WIDTH / 2) / TIME_STEP
    speed.plot(times, drift, color=Colour.PURPLE, linewidth=1.5, label="sideways")
    speed.plot(times, fall, color=Colour.BLUE, linewidth=1.5, label="upwards")
    limits(speed, 0.0)
    speed.legend(fontsize=7, frameon=False, ncols=2)
    plain(speed, y_label="speed (m/s)")
    angle = figure.add_subplot(panels[2], sharex=speed)
    angle.plot(times, np.degrees(seen[:, 4]), color=Colour.ORANGE, linewidth=1.5)
    limits(angle, 0.0)
    plain(angle, y_label="angle (°)")
    rows = figure.add_subplot(panels[3], sharex=speed)
    plain(rows, x_label="time (s)", y_label="engine")
    schedule(
        rows,
        _burning(actions),
        TIME_STEP,
        ENGINES,
        [Colour.ORANGE, Colour.VERMILION, Colour.ORANGE],
    )
    over_time(figure, [speed, angle], rows, times[-1])
    return figure


def _path(axes: "Axes", seen: np.ndarray, actions: np.ndarray) -> None:
    """The way of the lander, and itself at a few places."""
    x = WIDTH / 2 + seen[:, 0] * WIDTH / 2
    y = PAD_HEIGHT + LEG_DOWN + seen[:, 1] * HEIGHT / 2
    axes.plot(PAD, [GROUND_AT_PAD] * 2, color=Colour.GREY, linewidth=3, solid_capstyle="butt")
    _flags(axes)
    axes.plot(x, y, color=Colour.GREY, linewidth=1, linestyle=":", zorder=1)
    burning = _burning(actions)
    for step in np.unique(np.linspace(0, len(seen) - 1, FRAMES).round().astype(int)):
        on = burning[:, step] if step < len(actions) else ()
        _lander_at(axes, float(x[step]), float(y[step]), float(seen[step, 4]), on)
    scene(axes)
    axes.set_xlim(min(0.0, x.min() - 1.5), max(WIDTH, x.max() + 1.5))
    axes.set_ylim(min(PAD_HEIGHT, y.min()) - 1.0, max(HEIGHT, y.max()) + 1.0)
