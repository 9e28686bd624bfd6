"""What all pictures share: colours, axes, and rows that are filled while something is active."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from quorum_rl.errors import require_packages

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Colour:
    """Okabe and Ito's colours, which also colour-blind readers can tell apart."""

    BLACK = "#000000"
    GREY = "#8A8A8A"
    BLUE = "#0072B2"
    SKY = "#56B4E9"
    ORANGE = "#E69F00"
    VERMILION = "#D55E00"
    GREEN = "#009E73"
    PURPLE = "#CC79A7"
    FAINT = "#E5E5E5"


def new_figure(width: float, height: float) -> "Figure":
    require_packages("a picture", "report", "matplotlib")
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def plain(axes: "Axes", x_label: str = "", y_label: str = "") -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8, length=3)
    axes.set_xlabel(x_label, fontsize=9)
    axes.set_ylabel(y_label, fontsize=9)


def scene(axes: "Axes") -> None:
    """Axes that show a thing in space rather than numbers."""
    axes.set_aspect("equal")
    axes.set_axis_off()


def schedule(
    axes: "Axes", active: np.ndarray, step: float, names: Sequence[str], colours: Sequence[str]
) -> None:
    """A row per name, filled while it is active; `active` is `(names, steps)`, bool."""
    rows = list(zip(active, colours, strict=True))
    for row, (on, colour) in enumerate(rows):
        edges = np.flatnonzero(np.diff(np.concatenate([[False], on, [False]])))
        spans = [(first * step, (end - first) * step) for first, end in edges.reshape(-1, 2)]
        axes.broken_barh(spans, (row - 0.35, 0.7), facecolors=colour)
    axes.set_yticks(range(len(rows)), list(names))
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)


def action_rows(axes: "Axes", actions: np.ndarray, step: float, names: Sequence[str]) -> None:
    active = np.stack([actions == action for action in range(len(names))])
    schedule(axes, active, step, names, [Colour.GREY] * len(names))


def over_time(figure: "Figure", panels: Sequence["Axes"], below: "Axes", end: float) -> None:
    """Panels over a common axis of time, which ends there and is labelled below them."""
    for panel in panels:
        panel.tick_params(labelbottom=False)
    below.set_xlim(0, end)
    figure.align_ylabels([*panels, below])


def limits(axes: "Axes", *levels: float) -> None:
    for level in levels:
        axes.axhline(level, color=Colour.VERMILION, linewidth=1, linestyle=":")
