"""HIV: six concentrations on a log axis; over an episode, with the drugs given under them."""

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from quorum_rl.envs.drawing.parts import Colour, new_figure, plain, schedule
from quorum_rl.envs.hiv import EFFICACY

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CURVES: Final = (
    ("healthy cells 1", Colour.BLUE, "-"),
    ("healthy cells 2", Colour.SKY, "--"),
    ("infected cells 1", Colour.VERMILION, "-"),
    ("infected cells 2", Colour.ORANGE, "--"),
    ("free virus", Colour.PURPLE, "-"),
    ("immune response", Colour.GREEN, "-"),
)


def draw_state(state: Any, params: Any) -> "Figure":
    del params
    figure = new_figure(5.0, 2.4)
    axes = figure.add_subplot()
    for row, (value, (_, colour, _)) in enumerate(zip(state.concentrations, CURVES, strict=True)):
        axes.plot(float(value), row, "o", color=colour, markersize=7)
        axes.annotate(
            f"{float(value):.3g}", (float(value), row), (8, 0), textcoords="offset points",
            va="center", fontsize=8,
        )  # fmt: skip
    axes.set_yticks(range(len(CURVES)), [label for label, _, _ in CURVES])
    axes.set_ylim(len(CURVES) - 0.5, -0.5)
    axes.set_xscale("log")
    axes.margins(x=0.18)
    axes.grid(axis="y", color=Colour.FAINT)
    axes.set_axisbelow(True)
    plain(axes, x_label="concentration (per ml)")
    return figure


def draw_episode(seen: np.ndarray, actions: np.ndarray, params: Any, state: Any) -> "Figure":
    del state
    figure = new_figure(7.5, 4.2)
    panels = figure.add_gridspec(2, 1, height_ratios=(5, 1))
    days = float(params.days_per_step)
    times = np.arange(len(seen)) * days
    curves = figure.add_subplot(panels[0])
    for values, (label, colour, dashes) in zip(10.0**seen.T, CURVES, strict=True):
        curves.plot(times, values, color=colour, linestyle=dashes, linewidth=1.6, label=label)
    curves.set_yscale("log")
    curves.set_xlim(0, times[-1])
    plain(curves, y_label="concentration (per ml)")
    curves.tick_params(labelbottom=False)
    curves.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=8)
    drugs = figure.add_subplot(panels[1], sharex=curves)
    plain(drugs, x_label="time (days)")
    given = (np.asarray(EFFICACY) > 0)[actions].T
    schedule(drugs, given, days, ("drug 1", "drug 2"), (Colour.BLACK, Colour.GREY))
    return figure
