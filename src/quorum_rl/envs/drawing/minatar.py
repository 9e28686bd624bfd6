"""MinAtar's worlds: their picture; an episode as a strip of pictures, what is left, and actions."""

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from quorum_rl.envs import breakout, space_invaders
from quorum_rl.envs.drawing.parts import Colour, action_rows, new_figure, over_time, plain, scene
from quorum_rl.envs.minatar import SIDE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FRAMES: Final = 8  # of the strip
COLOURS: Final = {
    "brick": Colour.VERMILION,
    "alien": Colour.GREEN,
    "trail": Colour.GREY,
    "friendly bullet": Colour.SKY,
    "enemy bullet": Colour.VERMILION,
    "ball": Colour.ORANGE,
    "paddle": Colour.BLUE,
    "cannon": Colour.BLUE,
}
"""Later ones lie above earlier ones; channels that are not here are not drawn."""


def _world_of(seen: np.ndarray) -> Any:
    worlds = (breakout.Breakout, space_invaders.SpaceInvaders)
    return next(world for world in worlds if world.spaces.observation_size == seen.shape[-1])


def _channels(seen: np.ndarray) -> dict[str, np.ndarray]:
    """The maps by name, over time where `seen` is."""
    pictures = seen.reshape(*seen.shape[:-1], SIDE, SIDE, -1)
    names = _world_of(seen).spaces.observation_names[: pictures.shape[-1]]
    return {name.removesuffix(" 0 0"): pictures[..., index] for index, name in enumerate(names)}


def _show(axes: "Axes", seen: np.ndarray) -> None:
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Rectangle

    shown, channels = np.ones((SIDE, SIDE, 3)), _channels(seen)
    for name, colour in COLOURS.items():
        if name in channels:
            shown[channels[name] > 0] = to_rgb(colour)
    axes.imshow(shown, interpolation="none")
    scene(axes)
    corner = (-0.5, -0.5)
    frame = Rectangle(corner, SIDE, SIDE, fill=False, edgecolor=Colour.GREY, linewidth=0.8)
    axes.add_patch(frame)


def draw_state(state: Any, params: Any) -> "Figure":
    del params
    seen_in: dict[type, Any] = {
        breakout.BreakoutState: breakout.observe,
        space_invaders.SpaceInvadersState: space_invaders.observe,
    }
    figure = new_figure(3.4, 3.4)
    axes = figure.add_subplot()
    _show(axes, np.asarray(seen_in[type(state)](state)))
    axes.set_title(f"step {int(state.time)}", fontsize=9)
    return figure


def draw_episode(seen: np.ndarray, actions: np.ndarray, params: Any, state: Any) -> "Figure":
    del params, state
    figure = new_figure(7.5, 3.6)
    panels = figure.add_gridspec(3, 1, height_ratios=(1.4, 1, 0.8))
    frames = panels[0].subgridspec(1, FRAMES, wspace=0.05)
    for column, step in enumerate(np.linspace(0, len(seen) - 1, FRAMES).round().astype(int)):
        axes = figure.add_subplot(frames[column])
        _show(axes, seen[step])
        axes.set_title(f"step {step}", fontsize=8)
    channels = _channels(seen)
    kind = "brick" if "brick" in channels else "alien"
    left = figure.add_subplot(panels[1])
    left.plot(channels[kind].sum((1, 2)), color=COLOURS[kind], linewidth=1.5)
    left.set_ylim(bottom=0)
    plain(left, y_label=f"{kind}s")
    acted = figure.add_subplot(panels[2], sharex=left)
    plain(acted, x_label="step", y_label="action")
    action_rows(acted, actions, 1.0, _world_of(seen).spaces.action_names)
    over_time(figure, [left], acted, len(actions))
    return figure
