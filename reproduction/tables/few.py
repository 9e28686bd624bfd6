"""What few experts teach: the tables of few-experts.md and of the README, and their picture."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from quorum_rl.envs import get_world
from reproduction.results import Facts, study
from reproduction.tables.formatting import BILLION, at_epsilons, fixed, hundredths, table
from reproduction.tables.pictures import FAINT, INK, bare, error_bars, panels

WORLDS: Final = ("CartPole", "Acrobot", "HIV", "LunarLander")
COUNTS: Final = (30, 100, 300, 1000, 3000)
SMALLER: Final = COUNTS[:-1]  # where 3000 were not run
EPSILONS: Final = (0.1, 0.25, 0.5, 1.0, 3.0, 10.0)
OURS, THEIRS, PAPERS, BOUND = "local", "DP-SGD", "the paper's step", "non-private"
VALUES: Final = "local, CQL near imitation"
# What was to be reached: a return, and on HIV a share of imitation without privacy.
GOALS: Final[Mapping[str, Mapping[tuple[int, float], float]]] = {
    "CartPole": {
        (1000, 0.1): 850, (300, 0.25): 820, (300, 0.5): 910, (100, 0.5): 820, (100, 1.0): 880,
        (30, 3.0): 850,
    },
    "Acrobot": {
        (1000, 0.1): -86, (300, 0.5): -83, (100, 0.5): -86, (100, 1.0): -84, (30, 3.0): -86,
    },
    "HIV": {(1000, 0.5): 0.95, (300, 1.0): 0.95, (100, 3.0): 0.9, (30, 10.0): 0.8},
    "LunarLander": {
        (1000, 0.5): 235, (300, 0.5): 225, (300, 1.0): 230, (100, 1.0): 205, (100, 3.0): 220,
        (30, 10.0): 200,
    },
}  # fmt: skip
# Okabe and Ito's colours, which eyes of every kind tell apart, and a shape each.
LINES: Final = {
    0.1: ("#e69f00", "v"),
    0.25: ("#d55e00", "^"),
    0.5: ("#cc79a7", "D"),
    1.0: ("#0072b2", "o"),
    3.0: ("#009e73", "s"),
    10.0: ("#1f2933", "P"),
}


class Earned(NamedTuple):
    """A mean with its 95% interval over seeds."""

    mean: float
    low: float
    high: float

    def over(self, scale: float, zero: float = 0.0) -> "Earned":
        return Earned(*((value - zero) / scale for value in self))


def facts(world: str) -> Facts:
    return study("few")[world]


def part_of(world: str, part: str) -> str:
    """The result of a part that ran by itself, of a population of its own, or else the world's."""
    alone = f"{world}-{part}"
    return alone if alone in study("few") else world


def returns(name: str, method: str) -> dict[tuple[int, float], Any]:
    """Each seed's mean return, by how many experts there were and ε."""
    rows = [row for row in facts(name)["rows"] if row["method"] == method]
    if f"{name}-3000" in study("few"):  # another population
        more = facts(f"{name}-3000")["rows"]
        rows += [row for row in more if (row["method"], row["experts"]) == (method, 3000)]
    return {(row["experts"], row["epsilon"] or 0.0): np.array(row["returns"]) for row in rows}


def summary(each: Any) -> Earned:
    mean, error = float(each.mean()), float(stats.sem(each))
    half = float(stats.t.ppf(0.975, len(each) - 1)) * error
    return Earned(mean, mean - half, mean + half)


def as_fraction(world: str, earned: Earned) -> Earned:
    """(return − random) / (experts − random): 0 is a random policy, 1 the experts' own mean."""
    random = get_world(world).facts.random_return
    return earned.over(facts(world)["experts_mean"] - random, random)


def bound(world: str) -> float:
    """What imitation without privacy earns, of 1000 experts."""
    return float(returns(world, BOUND)[1000, 0.0].mean())


def shown_return(world: str, value: float, digits: int = 0) -> str:
    """A return, on HIV in billions."""
    return fixed(value / BILLION, 2) if world == "HIV" else fixed(value, digits)


def _with_half(world: str, earned: Earned) -> str:
    """A return and half of its interval."""
    return f"{shown_return(world, earned.mean)} ± {shown_return(world, earned.high - earned.mean)}"


def _experts(world: str) -> str:
    return shown_return(world, facts(world)["experts_mean"])


def name_of(world: str) -> str:
    return "HIV, 1e9" if world == "HIV" else world


def results() -> str:
    """Every world, number of experts and ε: the return, and the fraction of the experts'."""
    rows = []
    for world in WORLDS:
        found = returns(world, OURS)
        refused = {(row["experts"], row["epsilon"]) for row in facts(world)["refused"]}
        there = {count for count, _ in found}
        for count in sorted(there, reverse=True):
            cells = []
            for epsilon in EPSILONS:
                if (count, epsilon) in refused:
                    cells.append("noise")
                    continue
                earned = summary(found[count, epsilon])
                fraction = hundredths(as_fraction(world, earned).mean)
                cells.append(f"{_with_half(world, earned)} ({fraction})")
            rows.append([name_of(world), f"{count}", *cells])
    return table(["", "experts", *at_epsilons(EPSILONS)], rows)


def beside() -> str:
    """What the others earn in each world: the experts, imitation without privacy, DP-SGD."""
    rows = []
    for world in WORLDS:
        cells = _steps(world, THEIRS)
        rows.append([name_of(world), _experts(world), shown_return(world, bound(world)), *cells])
        papers = _steps(world, PAPERS)
        if any(cell != "–" for cell in papers):
            rows.append([f"{name_of(world)}, {PAPERS}", "", "", *papers])
    counts = [f"DP-SGD, {count}" for count in reversed(SMALLER)]
    return table(["", "the experts", "no privacy", *counts], rows)


def _steps(world: str, method: str) -> list[str]:
    """What private steps of one kind earn at ε = 1, by number of experts."""
    found = returns(part_of(world, "steps"), method)
    return [
        _with_half(world, summary(found[count, 1.0])) if (count, 1.0) in found else "–"
        for count in reversed(SMALLER)
    ]


def goals() -> str:
    """What was to be reached, beside what was."""
    rows = []
    for world, aims in GOALS.items():
        for (count, epsilon), aim in aims.items():
            earned = summary(returns(world, OURS)[count, epsilon])
            name, shown = world, _with_half(world, earned)
            if world == "HIV":
                earned = earned.over(bound(world))
                name = "HIV, of no privacy"
                shown = f"{hundredths(earned.mean)} ± {hundredths(earned.high - earned.mean)}"
            met = "met" if earned.low >= aim else "met by the mean"
            met = "missed" if earned.mean < aim else met
            aimed = f"{aim:g}".replace("-", "−")
            rows.append([name, f"{count}", f"{epsilon:g}", aimed, shown, met])
    return table(["", "experts", "ε", "goal", "measured", ""], rows)


def further() -> str:
    """The furthest goal: 100 experts at ε = 1 earn what the experts earn."""
    rows = []
    for world in WORLDS:
        earned = summary(returns(world, OURS)[100, 1.0])
        met = "met" if earned.mean >= facts(world)["experts_mean"] else "missed"
        rows.append([name_of(world), _experts(world), _with_half(world, earned), met])
    return table(["100 experts, ε = 1", "the experts", "measured", ""], rows)


def values() -> str:
    """CQL near imitation less imitation, seed by seed."""
    cells = sorted(returns(WORLDS[0], VALUES))
    rows = []
    for world in WORLDS:
        ours, theirs = (returns(part_of(world, "values"), way) for way in (OURS, VALUES))
        if theirs:
            rows.append([name_of(world), *(_gained(world, theirs[at] - ours[at]) for at in cells)])
    return table(["experts, ε", *(f"{count}, {epsilon:g}" for count, epsilon in cells)], rows)


def _gained(world: str, each: Any) -> str:
    """The mean of differences seed by seed, and its interval where there is any."""
    mean, low, high = (shown_return(world, value, digits=1) for value in summary(each))
    return f"{mean} [{low}, {high}]" if low != high else mean


def released() -> str:
    """A release beside local updates less local updates alone, seed by seed."""
    rows = []
    for world in WORLDS:
        ours = returns(f"{world}-release", OURS)
        ways = [returns(f"{world}-release", way) for way in ("release mixed in", "release first")]
        for at in sorted(ours):
            cells = (_gained(world, way[at] - ours[at]) if at in way else "–" for way in ways)
            rows.append([name_of(world), f"{at[0]}, {at[1]:g}", *cells])
    return table(["", "experts, ε", "release mixed in", "release first"], rows)


def at_a_glance() -> str:
    """The README's table: the fraction of what the experts earn, for each ε of a few."""
    rows = []
    for count in reversed(SMALLER):
        cells = [_fractions(world, count, (0.5, 1.0, 3.0)) for world in WORLDS]
        rows.append([f"{count}", *cells])
    return table(["experts", *WORLDS], rows)


def _fractions(world: str, count: int, epsilons: tuple[float, ...]) -> str:
    """A cell of that table; what a plan refuses has no fraction."""
    found = returns(world, OURS)
    refused = {(row["experts"], row["epsilon"]) for row in facts(world)["refused"]}
    return " / ".join(
        "refused"
        if (count, epsilon) in refused
        else hundredths(as_fraction(world, summary(found[count, epsilon])).mean)
        for epsilon in epsilons
    )


def picture() -> Figure:
    """What a policy earns by the number of experts, a line for each ε."""
    figure, every = panels(1, len(WORLDS), (11, 4))
    for axes, world in zip(every, WORLDS, strict=True):
        axes.axhline(1, color=INK, lw=1.2, ls=(0, (4, 3)), label="the experts' own mean")
        _line(axes, world, THEIRS, 1.0, "DP-SGD, ε = 1", (FAINT, "X--"), 1.0)
        _line(axes, world, PAPERS, 1.0, "the paper's step, ε = 1", (FAINT, "*:"), 0.957)
        for place, (epsilon, (colour, marker)) in enumerate(LINES.items()):
            shift = 1.045 ** (place - 2.5)
            _line(axes, world, OURS, epsilon, f"ε = {epsilon:g}", (colour, f"{marker}-"), shift)
        axes.set_xscale("log")
        axes.set_title(world, fontsize=12, color=INK, pad=9)
        axes.set_xticks(COUNTS, [f"{count}" for count in COUNTS])
        axes.set_xticks([], minor=True)
        axes.set_xlim(25, 3900)
        axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))
        bare(axes)
    figure.supxlabel("experts", color=INK, fontsize=12)
    figure.supylabel("fraction of the experts' own return", color=INK, fontsize=12)
    handles, labels = every[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=5, frameon=False, fontsize=11)
    return figure


def _line(
    axes: Any,
    world: str,
    method: str,
    epsilon: float,
    label: str,
    style: tuple[str, str],
    shift: float,
) -> None:
    found = returns(world if method == OURS else part_of(world, "steps"), method)
    points = {
        count * shift: as_fraction(world, summary(found[count, epsilon]))
        for count in COUNTS
        if (count, epsilon) in found
    }
    if not points:  # not run there
        return
    colour, marker = style
    error_bars(axes, points, fmt=marker, color=colour, label=label, lw=1.3, elinewidth=1.3)
