"""Pictures of an audit: lower bounds beside claims, and the curves of a membership game."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from quorum_rl.audit.finding import GAUSSIAN, RELEASED, Finding
from quorum_rl.audit.membership import Roc

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, ORANGE, RED, GREY = "#2b6cb0", "#c05621", "#c53030", "#718096"
LEAST_RATE: Final = 1e-4


def draw_findings(findings: Sequence[Finding]) -> "Figure":
    """A bar for each lower bound and a line where the claim is.

    Red where the claim is refuted, grey where no result of so many runs could have done that.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 0.4 * len(findings) + 1.3), layout="constrained")
    axes = figure.subplots()
    places = range(len(findings))
    colours = [RED if one.refuted else BLUE if one.refutable else GREY for one in findings]
    axes.barh(places, [one.bound.epsilon for one in findings], height=0.55, color=colours)
    for place, one in zip(places, findings, strict=True):
        axes.plot([one.claimed] * 2, [place - 0.4, place + 0.4], color=ORANGE, linewidth=2.5)
    axes.set_yticks(places, [f"{one.what}, {_short(one)}" for one in findings])
    axes.invert_yaxis()
    few = (
        ""
        if all(one.refutable for one in findings)
        else "\ngrey: so few runs cannot refute the claim"
    )
    axes.set_xlabel(f"ε: at least, with 95% confidence (bar); claimed (line){few}")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def draw_curves(curves: Sequence[Roc]) -> "Figure":
    """True against false positives of every attack, both on a logarithmic scale."""
    from matplotlib.figure import Figure

    methods = list(dict.fromkeys(one.method for one in curves))
    names = list(dict.fromkeys(one.name for one in curves))
    figure = Figure(figsize=(4.6 * len(methods), 5.2), layout="constrained")
    grid = figure.subplots(1, len(methods), sharey=True, squeeze=False)[0]
    for axes, method in zip(grid, methods, strict=True):
        for one in curves:
            if one.method == method:
                colour = f"C{names.index(one.name)}"
                axes.step(one.false, one.true, where="post", label=one.name, color=colour)
        axes.plot([LEAST_RATE, 1], [LEAST_RATE, 1], color=GREY, linestyle=":", label="guessing")
        axes.set(xscale="log", yscale="log", xlim=(LEAST_RATE, 1), ylim=(LEAST_RATE, 1))
        axes.set(title=method, xlabel="false positives")
        axes.spines[["top", "right"]].set_visible(False)
    grid[0].set_ylabel("true positives")
    fullest = max(grid, key=lambda axes: len(axes.lines))
    figure.legend(  # below, where it hides no curve
        *fullest.get_legend_handles_labels(),
        loc="outside lower center",
        ncols=2,
        frameon=False,
        fontsize="small",
    )
    return figure


def _short(one: Finding) -> str:
    """The threat model in few words, and what tells two of them apart."""
    threat = "" if one.threat == RELEASED else one.threat.split(":")[0] + ", "
    assuming = "Gaussian, " if one.note == GAUSSIAN else ""
    return f"{threat}{assuming}{one.runs:,} run{'' if one.runs == 1 else 's'}"
