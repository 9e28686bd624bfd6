"""Draws few-experts.svg, what few experts teach, and writes the tables of few-experts.md.

Both are made from results/few/*.json; so is the README's small table.

python docs/pictures/make_few.py
"""

from typing import Any, Final, NamedTuple

import matplotlib.pyplot as plt
from few_tables import (
    COUNTS,
    EPSILONS,
    OURS,
    THEIRS,
    WORLDS,
    Earned,
    as_fraction,
    beside,
    further,
    goals,
    in_short,
    released,
    results,
    returns,
    summary,
    tried,
    values,
)
from rendering import DOCS, Sections, write

PAGE: Final = "few-experts.md"
README: Final = "../README.md"
PICTURE: Final = DOCS / "pictures" / "few-experts.svg"
INK, FAINT = "#1f2933", "#7b8794"
# Okabe and Ito's colours, which eyes of every kind tell apart, and a shape each.
LINES: Final = {
    0.1: ("#e69f00", "v"),
    0.25: ("#d55e00", "^"),
    0.5: ("#cc79a7", "D"),
    1.0: ("#0072b2", "o"),
    3.0: ("#009e73", "s"),
    10.0: ("#1f2933", "P"),
}


class Line(NamedTuple):
    """One ε in one world: fractions of what the experts earn, by their number."""

    name: str
    points: dict[int, Earned]


class Panel(NamedTuple):
    world: str
    lines: dict[float, Line]
    theirs: Line


def panel(world: str) -> Panel:
    def line(method: str, epsilon: float, name: str) -> Line:
        found = returns(world, method)
        points = {
            count: as_fraction(world, summary(found[count, epsilon]))
            for count in COUNTS
            if (count, epsilon) in found
        }
        return Line(name, points)

    ours = {epsilon: line(OURS, epsilon, f"ε = {epsilon:g}") for epsilon in EPSILONS}
    return Panel(world, ours, line(THEIRS, 1.0, "DP-SGD, ε = 1"))


def panels() -> list[Panel]:
    return [panel(world) for world in WORLDS]


def described(shown: list[Panel]) -> str:
    """What the picture shows, in words: it goes into the file, and tells when that is stale."""
    said = []
    for one in shown:
        for line in (*one.lines.values(), one.theirs):
            at = "; ".join(
                f"{count} experts {point.mean:.3f} [{point.low:.3f}, {point.high:.3f}]"
                for count, point in line.points.items()
            )
            said.append(f"{one.world}, {line.name}: {at}")
    return "\n".join(said)


def draw(axes: Any, one: Panel) -> None:
    axes.axhline(1, color=INK, lw=1.2, ls=(0, (4, 3)), label="the experts' own mean")
    _bars(axes, one.theirs, FAINT, "X", 1, ls="--")
    for shift, (epsilon, line) in enumerate(one.lines.items()):
        colour, marker = LINES[epsilon]
        _bars(axes, line, colour, marker, 1.045 ** (shift - 2.5))
    axes.set_xscale("log")
    axes.set_title(one.world, fontsize=12, color=INK, pad=9)
    axes.set_xticks(COUNTS, [f"{count}" for count in COUNTS])
    axes.set_xticks([], minor=True)
    axes.set_xlim(25, 3900)
    axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))
    axes.grid(axis="y", color=FAINT, alpha=0.25)
    axes.tick_params(colors=INK, labelsize=11, length=0)
    for side in axes.spines:
        axes.spines[side].set_visible(False)


def _bars(axes: Any, line: Line, colour: str, marker: str, shift: float, ls: str = "-") -> None:
    points = line.points
    axes.errorbar(
        [count * shift for count in points],
        [point.mean for point in points.values()],
        [
            [point.mean - point.low for point in points.values()],
            [point.high - point.mean for point in points.values()],
        ],
        fmt=marker + ls,
        color=colour,
        label=line.name,
        ms=5.5,
        lw=1.3,
        elinewidth=1.3,
        zorder=3,
    )


def picture(shown: list[Panel]) -> None:
    plt.rcParams["svg.hashsalt"] = "quorum"  # the same picture is the same file
    figure, rows = plt.subplots(1, len(WORLDS), figsize=(11, 4), layout="constrained")
    figure.patch.set_facecolor("white")
    for axes, one in zip(rows.flat, shown, strict=True):
        draw(axes, one)
    figure.supxlabel("experts", color=INK, fontsize=12)
    figure.supylabel("fraction of the experts' own return", color=INK, fontsize=12)
    handles, labels = rows[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=4, frameon=False, fontsize=11)
    figure.savefig(PICTURE, metadata={"Date": None, "Description": described(shown)})


SECTIONS: Sections = {
    "results": results,
    "beside": beside,
    "goals": goals,
    "further": further,
    "values": values,
    "released": released,
    "tried": tried,
}
IN_SHORT: Sections = {"few": in_short}


if __name__ == "__main__":
    write(PAGE, SECTIONS)
    write(README, IN_SHORT)
    picture(panels())
