"""Draws result.svg, what privacy costs at full scale, and writes the table beside it.

Both are made from results/paper/*-comparison.json and *-published-*.json.

python docs/pictures/make_result.py
"""

from typing import Any, NamedTuple

import matplotlib.pyplot as plt
from paper_tables import CLAIMED, LEARNERS, WORLDS, result, theirs
from rendering import DOCS, Sections, hundredths, table, write

from quorum_rl.evaluation import as_fraction_of, summarise

PAGE = "reproduction.md"
PICTURE = DOCS / "pictures" / "result.svg"
EPSILONS = (1.0, 2.5, 5.0, 7.5, 10.0)
TABLED = (1.0, 5.0, 10.0)
PUBLISHED = {"Adam": "as published, Adam", "plain steps": "as published, plain steps"}
INK, FAINT = "#1f2933", "#7b8794"
LIMITS = (-0.6, 1.55)  # of what is drawn; an arrow says where a bar goes on
# Okabe and Ito's colours, which eyes of every kind tell apart, and a shape each for print in grey.
METHODS = {
    PUBLISHED["Adam"]: ("as published, Adam: ε claimed, not guaranteed", "#4b5563", "D"),
    PUBLISHED["plain steps"]: ("as published, plain steps: likewise", "#9a3b9a", "P"),
    "DP-SGD, one transition": ("DP-SGD, one transition", "#d55e00", "^"),
    "DP-SGD, averaged": ("DP-SGD, averaged", "#009e73", "s"),
    "both stages": ("both stages", "#0072b2", "o"),
}


class Point(NamedTuple):
    """What a method scores at an epsilon, as a fraction of training without privacy."""

    epsilon: float
    fraction: float
    low: float
    high: float


class Panel(NamedTuple):
    """One world and learner: the methods' points, and training without privacy itself."""

    world: str
    learner: str
    bound_score: float
    bound: Point
    methods: dict[str, list[Point]]

    @property
    def name(self) -> str:
        return f"{self.world}, {self.learner.upper()}"


def results(world: str, learner: str) -> list[dict[str, Any]]:
    """The methods of the comparison, and the published settings under the optimiser's name.

    Those with raw rewards are left out: they were run at one ε of one world alone.
    """
    comparison = result(world, f"{learner}-comparison")
    assert comparison is not None
    published = [
        method | {"name": PUBLISHED[way]}
        for epsilon in CLAIMED
        for way, method in theirs(world, learner, epsilon).items()
        if way in PUBLISHED
    ]
    methods: list[dict[str, Any]] = comparison["methods"]
    return methods + published


def panel(world: str, learner: str) -> Panel:
    found = results(world, learner)
    bound = next(method for method in found if method["name"] == "non-private")

    def point(method: dict[str, Any]) -> Point:
        fraction = summarise(as_fraction_of(method["scores"], bound["scores"]))
        spread = fraction.mean_interval
        assert spread is not None, "one seed has no interval"
        return Point(method["epsilon"] or 0.0, fraction.mean, spread.low, spread.high)

    points = {
        name: sorted(point(method) for method in found if method["name"] == name)
        for name in METHODS
    }
    return Panel(world, learner, bound["score"], point(bound), points)


def panels() -> list[Panel]:
    return [panel(world, learner) for learner in LEARNERS for world in WORLDS]


def described(shown: list[Panel]) -> str:
    """What the picture shows, in words: it goes into the file, and tells when that is stale."""
    lines = []
    for one in shown:
        lines.append(f"{one.name}, no privacy: {_said(one.bound)}")
        for name, points in one.methods.items():
            at = "; ".join(f"epsilon {point.epsilon:g} {_said(point)}" for point in points)
            lines.append(f"{one.name}, {name}: {at}")
    return "\n".join(lines)


def _said(point: Point) -> str:
    return f"{point.fraction:.3f} [{point.low:.3f}, {point.high:.3f}]"


def draw(axes: Any, one: Panel) -> None:
    axes.axhspan(one.bound.low, one.bound.high, color=FAINT, alpha=0.22, lw=0)
    axes.axhline(1, color=INK, lw=1.2, label="no privacy")
    for shift, (name, (label, colour, marker)) in enumerate(METHODS.items()):
        points = one.methods[name]
        claimed = name in PUBLISHED.values()
        places = [EPSILONS.index(p.epsilon) + 0.17 * (shift - 2) for p in points]
        axes.errorbar(
            places,
            [p.fraction for p in points],
            [[p.fraction - p.low for p in points], [p.high - p.fraction for p in points]],
            fmt=marker,
            color=colour,
            label=label,
            ms=5.5,
            elinewidth=1.1 if claimed else 1.7,
            markerfacecolor="white" if claimed else colour,
            zorder=3,
        )
        for place, point in zip(places, points, strict=True):
            if point.low < LIMITS[0]:
                axes.plot(place, LIMITS[0], "v", color=colour, ms=6, clip_on=False)
            if point.high > LIMITS[1]:
                axes.plot(place, LIMITS[1], "^", color=colour, ms=6, clip_on=False)
    axes.set_title(one.name, fontsize=12, color=INK, pad=9)
    axes.set_xticks(range(len(EPSILONS)), [f"{epsilon:g}" for epsilon in EPSILONS])
    axes.set_ylim(*LIMITS)
    axes.set_yticks([-0.5, 0, 0.5, 1, 1.5])
    axes.grid(axis="y", color=FAINT, alpha=0.25)
    axes.tick_params(colors=INK, labelsize=11, length=0)
    for side in axes.spines:
        axes.spines[side].set_visible(False)


def picture(shown: list[Panel]) -> None:
    plt.rcParams["svg.hashsalt"] = "quorum"  # the same picture is the same file
    figure, rows = plt.subplots(
        len(LEARNERS), len(WORLDS), figsize=(11, 6), sharex=True, sharey=True, layout="constrained"
    )
    figure.patch.set_facecolor("white")
    for axes, one in zip(rows.flat, shown, strict=True):
        draw(axes, one)
    figure.supxlabel("ε", color=INK, fontsize=12)
    figure.supylabel("score as a fraction of no privacy", color=INK, fontsize=12)
    handles, labels = rows[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=3, frameon=False, fontsize=11)
    figure.savefig(PICTURE, metadata={"Date": None, "Description": described(shown)})


def fractions() -> str:
    """The table of the page: fractions at some of the epsilons, and what they are fractions of."""
    at = " / ".join(f"{epsilon:g}" for epsilon in TABLED)
    rows = []
    for one in panels():
        cells = []
        for points in one.methods.values():
            known = {p.epsilon: hundredths(p.fraction) for p in points}
            cells.append(" / ".join(known.get(epsilon, "–") for epsilon in TABLED))
        rows.append([one.name, *cells, f"{one.bound_score:.2f}"])
    return table([f"ε = {at}", *METHODS, "no privacy: score"], rows)


SECTIONS: Sections = {"result": fractions}


if __name__ == "__main__":
    write(PAGE, SECTIONS)
    picture(panels())
