"""Pictures of boxes and arrows: what goes where, and who sees it."""

from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

INK: Final = "#1f2933"
FAINT: Final = "#64748b"
PAPER: Final = "#fbfaf7"  # a light card, which is readable on a dark page too
PRIVATE: Final = "#b45309"
PUBLIC: Final = "#0f766e"
LEDGER: Final = "#475569"
Place = tuple[float, float]


def card(width: float, height: float) -> tuple[Figure, Axes]:
    """A light card with axes."""
    figure = Figure(figsize=(width, height), layout="constrained", facecolor=PAPER)
    return figure, figure.add_subplot()


def canvas(width: float, height: float) -> tuple[Figure, Axes]:
    """A light card to draw boxes on."""
    figure, axes = card(width, height)
    axes.set(xlim=(0, 10), ylim=(0, 5.5))
    axes.set_axis_off()
    return figure, axes


def rounded(axes: Axes, corner: Place, size: Place, radius: float, **style: Any) -> None:
    shape = f"round,pad=0,rounding_size={radius}"
    axes.add_patch(FancyBboxPatch(corner, *size, boxstyle=shape, **style))


def box(
    axes: Axes,
    corner: Place,
    size: Place,
    title: str,
    text: str,
    colour: str,
    lower: float = 0.46,
    **style: Any,
) -> None:
    """A rounded box with a title, and a few words `lower` than its top."""
    rounded(axes, corner, size, 0.12, facecolor="white", edgecolor=colour, linewidth=1.8, **style)
    middle, top = corner[0] + size[0] / 2, corner[1] + size[1]
    axes.text(middle, top - 0.13, title, ha="center", va="top", color=colour, weight="bold")
    axes.text(middle, top - lower, text, ha="center", va="top", fontsize=9.5, linespacing=1.3)


def arrow(axes: Axes, start: Place, end: Place, colour: str, **style: Any) -> None:
    style = {"arrowstyle": "-|>", "mutation_scale": 15, "linewidth": 1.8, **style}
    axes.add_patch(FancyArrowPatch(start, end, color=colour, **style))


def flow() -> Figure:
    """The whole flow: what stays inside, what may leave, and what is written down first."""
    figure, axes = canvas(8, 4.4)
    axes.axvspan(0, 3.05, color=PRIVATE, alpha=0.07, linewidth=0)
    axes.axvspan(7.0, 10, color=PUBLIC, alpha=0.07, linewidth=0)
    for middle, heading, colour in (
        (1.52, "stays inside", PRIVATE),
        (5.02, "learns privately", INK),
        (8.5, "may be published", PUBLIC),
    ):
        axes.text(middle, 5.12, heading, ha="center", weight="bold", color=colour)
    upper, lower = 3.5, 1.6
    inside, stage, outside = (0.2, 2.65), (3.75, 2.55), (7.2, 2.6)  # left ends and widths
    for (left, width), bottom, title, text, colour in (
        (inside, upper, "logs", "what each expert did:\nstates and actions", PRIVATE),
        (stage, upper, "training", "everybody moves one\npolicy a little; noise", INK),
        (outside, upper, "policy", "one network\nthat acts", PUBLIC),
        (inside, lower, "experts", "only if they\ncan be asked", PRIVATE),
        (stage, lower, "release", "only if you ask for it:\nwhere a quorum agrees", INK),
        (outside, lower, "released prefixes", "beginnings of real\nepisodes, no names", PUBLIC),
    ):
        style = "-" if bottom == upper else "--"
        box(axes, (left, bottom), (width, 1.3), title, text, colour, linestyle=style)
    box(axes, (7.2, 0.12), (2.6, 1.1), "certificate", "ε and δ, as spent", PUBLIC)
    rounded(axes, (0.2, 0.12), (6.1, 1.0), 0.12, facecolor=LEDGER, edgecolor=LEDGER)
    on_ledger: dict[str, Any] = {"ha": "center", "va": "center", "color": "white"}
    axes.text(3.25, 0.78, "ledger", weight="bold", **on_ledger)
    text = "every look at private data is written here first"
    axes.text(3.25, 0.42, text, fontsize=9.5, **on_ledger)
    arrow(axes, (2.85, 4.15), (3.75, 4.15), PRIVATE)
    arrow(axes, (6.3, 4.15), (7.2, 4.15), PUBLIC)
    arrow(axes, (6.3, 0.62), (7.2, 0.62), LEDGER)
    for start, end, colour in (
        ((2.85, 3.65), (3.75, 2.65), PRIVATE),
        ((2.85, 2.2), (3.75, 2.2), PRIVATE),
        ((6.3, 2.2), (7.2, 2.2), PUBLIC),
        ((5.02, 2.9), (5.02, 3.5), PUBLIC),
    ):
        arrow(axes, start, end, colour, linestyle="--", linewidth=1.3)
    return figure


def stages() -> Figure:
    """Whose trajectories which stage reads, and which steps have noise."""
    figure, axes = canvas(6.4, 3.5)
    axes.text(0.1, 5.15, "Every expert's trajectories, told apart by position", weight="bold")
    for row, name in enumerate(("expert 1", "expert 2", "expert 3")):
        y = 4.35 - 0.55 * row
        axes.text(1.55, y + 0.18, name, ha="right", va="center", fontsize=10)
        for place in range(12):
            colour, alpha = (INK, 0.85) if place < 4 else (PRIVATE, 0.55)
            corner = 1.8 + 0.66 * place, y
            rounded(axes, corner, (0.5, 0.36), 0.06, color=colour, alpha=alpha, linewidth=0)
    axes.text(3.03, 2.72, "pool: release only, once", ha="center", fontsize=10)
    axes.text(7.05, 2.72, "the rest: private steps only", ha="center", fontsize=10, color=PRIVATE)
    axes.text(0.1, 1.95, "Steps of training, drawn before it starts", weight="bold")
    private = np.random.default_rng(5).permutation(np.arange(30) % 2 == 0)
    for place, noisy in enumerate(private):
        colour = PRIVATE if noisy else PUBLIC
        rounded(axes, (0.25 + 0.32 * place, 1.05), (0.2, 0.5), 0.05, color=colour, linewidth=0)
    small: dict[str, Any] = {"fontsize": 10, "va": "center"}
    axes.text(0.25, 0.5, "private: noise, charged", color=PRIVATE, **small)
    text = "on released prefixes: no noise, free"
    axes.text(9.75, 0.5, text, color=PUBLIC, ha="right", **small)
    return figure


def path() -> Figure:
    """From a table to a bundle: the files of docs/clinicians.md, and which command makes them."""
    figure, axes = canvas(8, 2.7)
    axes.axvspan(7.5, 10, color=PUBLIC, alpha=0.07, linewidth=0)
    axes.text(3.6, 5.05, "stays inside", ha="center", weight="bold", color=PRIVATE)
    axes.text(8.72, 5.05, "may leave", ha="center", weight="bold", color=PUBLIC)
    for left, title, text, colour in (
        (0.05, "visits.parquet", "what 150\nclinicians did", PRIVATE),
        (2.58, "visits.arrow", "the same,\nonce", PRIVATE),
        (5.1, "runs/dosing", "policy,\ncertificate", PRIVATE),
        (7.75, "dosing-policy", "what may leave,\nand no more", PUBLIC),
    ):
        box(axes, (left, 2.5), (1.95, 2.1), title, text, colour, lower=0.8)
    for left, title, text, colour in (
        (1.2, "columns.toml", "names, gaps, ranges", INK),
        (3.75, "clinicians.ledger", "what it costs", LEDGER),
    ):
        box(axes, (left, 0.1), (2.15, 1.35), title, text, colour, lower=0.72)
    for start, command, colour in (
        (2.0, "import", PRIVATE), (4.53, "fit", PRIVATE), (7.05, "publish", PUBLIC)
    ):  # fmt: skip
        end = start + (0.7 if command == "publish" else 0.58)
        arrow(axes, (start, 3.5), (end, 3.5), colour)
        axes.text((start + end) / 2, 3.75, command, ha="center", fontsize=9)
    arrow(axes, (2.28, 1.45), (2.28, 3.4), INK, linewidth=1.3)
    arrow(axes, (4.82, 1.45), (4.82, 3.4), LEDGER, linewidth=1.3, arrowstyle="<|-|>")
    return figure


def parts() -> Figure:
    """Who teaches and who judges."""
    figure, axes = canvas(8, 2.7)
    for (left, bottom), width, title, text, colour in (
        ((0.1, 1.7), 2.1, "experts", "a secret coin\nfor each", PRIVATE),
        ((3.2, 3.2), 2.4, "most teach", "they move the policy,\nwith noise", INK),
        ((3.2, 0.2), 2.4, "the others judge", "each tells one vector,\nwith noise", INK),
        ((7.0, 3.2), 2.9, "policy", "never saw\nits judges", PUBLIC),
        ((7.0, 0.2), 2.9, "verdict", "better, not better,\nor cannot tell", PUBLIC),
    ):
        box(axes, (left, bottom), (width, 2.1), title, text, colour, lower=0.8)
    arrow(axes, (2.2, 3.2), (3.2, 4.2), PRIVATE)
    arrow(axes, (2.2, 2.3), (3.2, 1.3), PRIVATE)
    arrow(axes, (5.6, 4.25), (7.0, 4.25), PUBLIC)
    arrow(axes, (5.6, 1.25), (7.0, 1.25), PUBLIC)
    arrow(axes, (7.1, 3.2), (5.5, 2.3), PUBLIC)
    return figure


def sites() -> Figure:
    """What travels between sites and their coordinator."""
    figure, axes = canvas(8, 3.2)
    for place, name in enumerate(("north", "south", "east")):
        bottom = 3.75 - 1.8 * place
        box(axes, (0.1, bottom), (2.5, 1.55), name, "logs, which stay", PRIVATE, lower=0.7)
        arrow(axes, (2.6, bottom + 1.0), (5.2, 3.2 - 0.45 * place), PRIVATE)
        arrow(axes, (5.2, 2.85 - 0.45 * place), (2.6, bottom + 0.5), PUBLIC, linewidth=1.3)
    axes.text(
        4.0,
        4.75,
        "a sum of clipped moves,\nwithout noise",
        ha="center",
        fontsize=9.5,
        color=PRIVATE,
    )
    axes.text(4.0, 0.15, "parameters, with noise", ha="center", fontsize=9.5, color=PUBLIC)
    text = "adds the sums,\nthen the noise;\nhas the ledger"
    box(axes, (5.2, 1.3), (2.3, 2.6), "coordinator", text, INK, lower=0.7)
    box(axes, (8.3, 3.1), (1.65, 1.5), "policy", "", PUBLIC)
    box(axes, (8.3, 0.6), (1.65, 1.5), "certificate", "", PUBLIC)
    arrow(axes, (7.5, 3.1), (8.3, 3.7), PUBLIC)
    arrow(axes, (7.5, 2.0), (8.3, 1.4), PUBLIC)
    return figure


def chain() -> Figure:
    """How a bundle hangs together: lines of the ledger, certificate, policy, manifest."""
    figure, axes = canvas(8, 2.9)
    for place, text in enumerate(("created: budget", "charged: training", "charged: another")):
        bottom = 3.65 - 1.55 * place
        style = "--" if place == 2 else "-"
        box(axes, (0.1, bottom), (2.9, 1.1), text, "", LEDGER, linestyle=style)
        if place:
            arrow(axes, (1.55, bottom + 1.1), (1.55, bottom + 1.55), LEDGER)
    axes.text(1.55, 5.05, "ledger", ha="center", weight="bold", color=LEDGER)
    axes.text(1.55, 0.2, "each line has the hash of the one before", ha="center", fontsize=9)
    box(
        axes,
        (4.1, 2.1),
        (2.3, 1.75),
        "certificate",
        "covers lines\nup to its head",
        PUBLIC,
        lower=0.72,
    )
    box(axes, (7.5, 2.1), (2.3, 1.75), "policy", "names its\ncertificate", PUBLIC, lower=0.72)
    arrow(axes, (4.1, 2.9), (3.0, 2.7), PUBLIC)
    arrow(axes, (7.5, 2.95), (6.4, 2.95), PUBLIC)
    rounded(axes, (3.9, 1.5), (6.05, 2.95), 0.12, facecolor="none", edgecolor=INK, linestyle="--")
    axes.text(6.9, 4.65, "bundle", ha="center", weight="bold")
    axes.text(
        6.9,
        0.75,
        "its manifest has the hash of every file,\nand may be signed",
        ha="center",
        fontsize=9,
    )
    return figure
