"""Any world: a table of its state; an episode as its observations over time and its actions."""

from typing import TYPE_CHECKING, Any, Final

import jax
import numpy as np

from quorum_rl.envs.drawing.parts import Colour, action_rows, new_figure, over_time, plain
from quorum_rl.envs.world import AnyWorld

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_PANELS: Final = 8


def draw_state(world: AnyWorld, state: Any) -> "Figure":
    rows = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        values = np.asarray(leaf)
        name = jax.tree_util.keystr(path, simple=True, separator=" ").replace("_", " ")
        rows.append((name, f"{values[()]:.4g}" if values.ndim == 0 else f"shape {values.shape}"))
    figure = new_figure(3.6, 0.5 + 0.24 * len(rows))
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.set_title(f"{world.name}, one state", fontsize=9)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    for row, (name, value) in enumerate(rows):
        axes.text(0.02, row, name, va="center", fontsize=9)
        axes.text(0.98, row, value, va="center", ha="right", fontsize=9)
        axes.axhline(row + 0.5, color=Colour.FAINT, linewidth=0.8)
    return figure


def draw_episode(world: AnyWorld, seen: np.ndarray, actions: np.ndarray) -> "Figure":
    names = world.spaces.observation_names[:MOST_PANELS]
    action_height = 0.4 + 0.12 * world.spaces.action_count
    figure = new_figure(6.5, 1.1 * (len(names) + action_height) + 0.3)
    panels = figure.add_gridspec(
        len(names) + 1, 1, height_ratios=(*[1.0] * len(names), action_height)
    )
    below = figure.add_subplot(panels[-1])
    plain(below, x_label="step", y_label="action")
    if world.spaces.continuous:
        for name, numbers in zip(world.spaces.action_names, actions.T, strict=True):
            below.step(np.arange(len(actions)), numbers, where="post", linewidth=1.2, label=name)
        below.legend(fontsize=7, frameon=False, ncols=4)
    else:
        action_rows(below, actions, 1.0, world.spaces.action_names)
    shown = []
    for panel, name in enumerate(names):
        axes = figure.add_subplot(panels[panel], sharex=below)
        axes.plot(np.arange(len(seen)), seen[:, panel], color=Colour.BLUE, linewidth=1.5)
        plain(axes, y_label=name)
        shown.append(axes)
    over_time(figure, shown, below, len(actions))
    return figure
