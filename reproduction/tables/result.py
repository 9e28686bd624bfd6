"""What privacy costs at full scale: the first table and the pictures of reproduction.md."""

from itertools import product
from typing import Any, Final, NamedTuple

from matplotlib.figure import Figure

from quorum_rl.evaluation import as_fraction_of, summarise
from reproduction.columns import AVERAGED, BOTH, EPSILONS, ONE_EACH
from reproduction.results import Facts
from reproduction.tables.formatting import hundredths, table
from reproduction.tables.paper import (
    CLAIMED,
    LEARNERS,
    WORLDS,
    as_published,
    bound_of,
    comparison,
    populations,
)
from reproduction.tables.pictures import FAINT, INK, bare, error_bars, panels

TABLED: Final = (1.0, 5.0, 10.0)
LIMITS: Final = (-0.6, 1.55)  # of what is drawn; an arrow says where a bar goes on
# Those with raw rewards are left out: they were run at one ε of one world alone.
PUBLISHED: Final = {"Adam": "as published, Adam", "plain steps": "as published, plain steps"}
# Okabe and Ito's colours, which eyes of every kind tell apart, and a shape each for print in grey.
METHODS: Final = {
    PUBLISHED["Adam"]: ("as published, Adam: ε claimed, not guaranteed", "#4b5563", "D"),
    PUBLISHED["plain steps"]: ("as published, plain steps: likewise", "#9a3b9a", "P"),
    ONE_EACH: (ONE_EACH, "#d55e00", "^"),
    AVERAGED: (AVERAGED, "#009e73", "s"),
    BOTH: (BOTH, "#0072b2", "o"),
}


class Point(NamedTuple):
    """What a method scores, as a fraction of training without privacy, with its interval."""

    mean: float
    low: float
    high: float


def point(scores: Any, bound: Any) -> Point:
    fraction = summarise(as_fraction_of(scores, bound))
    spread = fraction.mean_interval
    assert spread is not None, "one seed has no interval"
    return Point(fraction.mean, spread.low, spread.high)


def points(world: str, learner: str) -> dict[str, dict[float, Point]]:
    """Every method's, by ε: those of the comparison, and the paper's by its optimiser."""
    every: list[Facts] = list(comparison(world, learner)["methods"])
    for epsilon, (way, name) in product(CLAIMED, PUBLISHED.items()):
        method = as_published(world, learner, epsilon).get(way)
        every += [method | {"name": name}] if method else []
    bound = bound_of(world, learner)
    found: dict[str, dict[float, Point]] = {name: {} for name in METHODS}
    for method in sorted(every, key=lambda method: method["epsilon"] or 0.0):
        if method["name"] in found:
            found[method["name"]][method["epsilon"]] = point(method["scores"], bound)
    return found


def fractions() -> str:
    """Fractions at some of the ε, and what they are fractions of."""
    rows = []
    for learner, world in product(LEARNERS, WORLDS):
        cells = [
            " / ".join(hundredths(at[e].mean) if e in at else "–" for e in TABLED)
            for at in points(world, learner).values()
        ]
        bound = f"{bound_of(world, learner).mean():.2f}"
        rows.append([f"{world}, {learner.upper()}", *cells, bound])
    at = " / ".join(f"{epsilon:g}" for epsilon in TABLED)
    return table([f"ε = {at}", *METHODS, "no privacy: score"], rows)


def picture() -> Figure:
    figure, every = panels(len(LEARNERS), len(WORLDS), (11, 6), sharex=True, sharey=True)
    for axes, (learner, world) in zip(every, product(LEARNERS, WORLDS), strict=True):
        _draw(axes, world, learner)
    figure.supxlabel("ε", color=INK, fontsize=12)
    figure.supylabel("score as a fraction of no privacy", color=INK, fontsize=12)
    handles, labels = every[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=3, frameon=False, fontsize=11)
    return figure


def _draw(axes: Any, world: str, learner: str) -> None:
    bound = point(bound_of(world, learner), bound_of(world, learner))
    axes.axhspan(bound.low, bound.high, color=FAINT, alpha=0.22, lw=0)
    axes.axhline(1, color=INK, lw=1.2, label="no privacy")
    found = points(world, learner)
    for shift, (name, (label, colour, marker)) in enumerate(METHODS.items()):
        claimed = name in PUBLISHED.values()
        placed = {
            EPSILONS.index(epsilon) + 0.17 * (shift - 2): at for epsilon, at in found[name].items()
        }
        width, fill = (1.1, "white") if claimed else (1.7, colour)
        style = {"fmt": marker, "color": colour, "markerfacecolor": fill, "elinewidth": width}
        error_bars(axes, placed, label=label, **style)
        for place, at in placed.items():
            if at.low < LIMITS[0]:
                axes.plot(place, LIMITS[0], "v", color=colour, ms=6, clip_on=False)
            if at.high > LIMITS[1]:
                axes.plot(place, LIMITS[1], "^", color=colour, ms=6, clip_on=False)
    axes.set_title(f"{world}, {learner.upper()}", fontsize=12, color=INK, pad=9)
    axes.set_xticks(range(len(EPSILONS)), [f"{epsilon:g}" for epsilon in EPSILONS])
    axes.set_ylim(*LIMITS)
    axes.set_yticks([-0.5, 0, 0.5, 1, 1.5])
    bare(axes)


def picture_of_experts() -> Figure:
    """Histograms of the experts' returns, and how long they agree."""
    everyone = populations()
    figure, every = panels(len(everyone), 2, (8.4, 2.6 * len(everyone)))
    for left, right, facts in zip(every[::2], every[1::2], everyone, strict=True):
        histogram, shares = facts["histogram"], facts["agreement"]["mean"]
        left.stairs(histogram["counts"], histogram["edges"], fill=True, color="#0b6aa8")
        left.set_title(f"{facts['world']}: mean returns of {facts['experts']} experts", color=INK)
        right.plot(range(1, len(shares) + 1), shares, color="#c9540d")
        right.set_yscale("log")
        right.set_ylim(1e-4, 1)
        right.set_title("share that would have gone along, by steps", color=INK)
        for axes in (left, right):
            axes.spines[["top", "right"]].set_visible(False)
    return figure
