"""The picture of an audit: lower bounds beside claims."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from quorum_rl.audit.finding import GAUSSIAN, RELEASED, Finding

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, ORANGE, RED, GREY = "#2b6cb0", "#c05621", "#c53030", "#718096"


def draw_findings(findings: Sequence[Finding]) -> "Figure":
    """A bar for each lower bound and a line where the claim is.

    Red where the claim is refuted, grey where no result of so many runs could have done that.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 0.4 * len(findings) + 1.3), layout="constrained")
    axes = figure.subplots()
    places = range(len(findings))
    axes.barh(
        places,
        [finding.bound.epsilon for finding in findings],
        height=0.55,
        color=[_colour(finding) for finding in findings],
    )
    for place, finding in enumerate(findings):
        axes.plot([finding.claimed] * 2, [place - 0.4, place + 0.4], color=ORANGE, linewidth=2.5)
    axes.set_yticks(places, [f"{finding.what}, {_short(finding)}" for finding in findings])
    axes.invert_yaxis()
    few = "\ngrey: so few runs cannot refute the claim"
    few = "" if all(finding.refutable for finding in findings) else few
    axes.set_xlabel(f"ε: at least, with 95% confidence (bar); claimed (line){few}")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _colour(finding: Finding) -> str:
    return RED if finding.refuted else BLUE if finding.refutable else GREY


def _short(finding: Finding) -> str:
    """The threat model in few words, and what tells two of them apart."""
    threat = "" if finding.threat == RELEASED else finding.threat.split(":")[0] + ", "
    assuming = "Gaussian, " if finding.note == GAUSSIAN else ""
    return f"{threat}{assuming}{finding.runs:,} run{'' if finding.runs == 1 else 's'}"
