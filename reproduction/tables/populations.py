"""The results page: several populations a world, and what a policy earns of what experts earn.

Returns are on the scale of a world, 0 for a random policy, before fractions are taken: of the
experts' own mean, of what they would earn without straying, and of the best policy without privacy.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from quorum_rl.envs import get_world
from reproduction.bootstrap import Estimate, Table, estimate
from reproduction.results import Facts
from reproduction.studies.offered import FREE, LEARNERS, PAPERS, THEIRS, offered
from reproduction.tables.few import LINES, name_of, shown_return
from reproduction.tables.formatting import hundredths, table
from reproduction.tables.pictures import FAINT, INK, bare, error_bars, panels

WORLDS: Final = ("CartPole", "Acrobot", "HIV", "LunarLander")
OURS: Final = "local"
EPSILONS: Final = (0.25, 0.5, 1.0, 2.5, 5.0)
COUNTS: Final = (100, 300, 1000, 3000)
# Experts and ε, and which fraction of the experts' mean was to be reached there.
GOALS: Final = {(300, 1.0): 0.95, (3000, 0.25): 0.95, (3000, 1.0): 1.0}
COLOURS: Final = {2.5: LINES[3.0], 5.0: LINES[10.0]} | {
    epsilon: LINES[epsilon] for epsilon in EPSILONS[:3]
}
MADE: Final = {  # what a release makes of private steps, and what it is compared with
    "release mixed in": "local",
    "release first": "local",
    "release mixed in, one transition": "alone, one transition",
    "release first, one transition": "alone, one transition",
}

Results = Mapping[str, Facts]


class World(NamedTuple):
    """All that was measured in one world, by the seed of the experts."""

    name: str
    parts: Mapping[str, Mapping[int, list[dict[str, Any]]]]

    def rows(self, part: str, **chosen: Any) -> dict[int, list[dict[str, Any]]]:
        """Those rows of each population in which these columns are so."""
        return {
            seed: [row for row in rows if all(row.get(key) == at for key, at in chosen.items())]
            for seed, rows in self.parts.get(part, {}).items()
        }

    def every(self, part: str) -> list[dict[str, Any]]:
        """The rows of all populations."""
        return [row for rows in self.parts.get(part, {}).values() for row in rows]

    def returns(self, part: str, **chosen: Any) -> Table | None:
        """Each seed's return in each population, or nothing where not every population has it."""
        found = self.rows(part, **chosen).values()
        each = [row["returns"] for rows in found for row in rows]
        if len(each) != len(self.parts["experts"]) or any(row is None for row in each):
            return None
        return self.scaled(np.array(each, np.float64))

    def scaled(self, returns: Any) -> Table:
        """Above what a random policy earns."""
        made: Table = np.asarray(returns, np.float64) - get_world(self.name).facts.random_return
        return made

    def experts(self, what: str = "mean") -> Table:
        """What they earn, as they act or `greedy`. Shapes: (populations, 1)."""
        every = self.parts["experts"].values()
        return self.scaled([[row[what] for row in rows] for rows in every])

    def bounds(self) -> list[Table]:
        """What each learner earns without privacy."""
        found = (self.returns("bound", method=FREE, learns=learner) for learner in LEARNERS)
        return [each for each in found if each is not None]


def worlds(results: Results) -> list[World]:
    """What is there, of worlds whose experts are described."""
    made: dict[str, dict[str, dict[int, Any]]] = {}
    for name, facts in results.items():
        world, seed, part = name.split("-")
        made.setdefault(world, {}).setdefault(part, {})[int(seed)] = facts["rows"]
    return [World(name, made[name]) for name in WORLDS if "experts" in made.get(name, {})]


def earned(world: World, **chosen: Any) -> Table | None:
    """What the default, or another method, earns in a cell."""
    part = "ours" if chosen.get("method", OURS) == OURS else "steps"
    return world.returns(part, **{"method": OURS, "learns": "bc"} | chosen)


def fraction(ours: Table, *wholes: Table) -> Estimate:
    """Of the greatest of these."""
    return estimate(lambda top, *below: top / np.maximum.reduce(below), ours, *wholes)


def _shown(found: Estimate) -> str:
    return f"{hundredths(found.mean)} [{hundredths(found.low)}, {hundredths(found.high)}]"


def headline(results: Results) -> str:
    """The page's one table: every world where a goal was set, with fewer experts if that is all."""
    rows = []
    for world in worlds(results):
        random = get_world(world.name).facts.random_return
        for (asked, epsilon), goal in GOALS.items():
            count = min(asked, max(row["experts"] for row in world.every("ours")))
            ours = earned(world, experts=count, epsilon=epsilon)
            if ours is None:
                continue
            found = estimate(lambda mean: mean, ours)
            spread = (shown_return(world.name, value + random) for value in found)
            cells = ["{} [{}, {}]".format(*spread)]
            of_experts = fraction(ours, world.experts())
            cells += [_shown(of_experts), _shown(fraction(ours, world.experts("greedy")))]
            bounds = world.bounds()
            cells.append(_shown(fraction(ours, *bounds)) if bounds else "–")
            met = "met" if of_experts.low >= goal else "met by the mean"
            cells.append("missed" if of_experts.mean < goal else met)
            rows.append([name_of(world.name), f"{count}", f"{epsilon:g}", *cells])
    head = ["", "experts", "ε", "return", "of the experts' mean", "of greedy experts",
            "of the best without privacy", "goal"]  # fmt: skip
    return table(head, rows)


def settings(results: Results) -> str:
    """How many settings each method had, and what the best of them earned in the tuning."""
    rows = []
    for world in worlds(results):
        for method in (FREE, THEIRS, PAPERS):
            cells = []
            for learner in LEARNERS:
                found = world.rows("tuning", method=method, learns=learner).values()
                means = [row["mean"] for rows in found for row in rows]
                of = len(offered(method, learner))
                cells.append(
                    f"{shown_return(world.name, max(means))}, {len(means)} of {of}"
                    if means
                    else "–"
                )
            rows.append([name_of(world.name), method, *cells])
    return table(["", "best of its settings", *LEARNERS], rows, words=2)


def gained(
    world: World, way: str, count: int, trajectories: int, epsilons: tuple[float, ...]
) -> Estimate | None:
    """What a release adds, paired by seed and averaged over these ε, as part of the experts' mean.

    Nothing where it was not made in every population at every one of them.
    """
    differences = []
    for epsilon in epsilons:
        cell = {"experts": count, "trajectories": trajectories, "epsilon": epsilon}
        both = world.returns("release", method=way, **cell)
        alone = world.returns("release", method=MADE[way], **cell)
        if both is None or alone is None:
            return None
        differences.append(both - alone)
    mean: Table = np.mean(differences, axis=0)
    return estimate(lambda change, whole: change / whole, mean, world.experts())


def released(results: Results) -> str:
    """What a release adds or costs, at each ε and on average over all."""
    rows = []
    for world in worlds(results):
        cells = {(row["experts"], row["trajectories"]) for row in world.every("release")}
        for (count, trajectories), way in (
            (cell, way) for cell in sorted(cells, reverse=True) for way in MADE
        ):
            every = [gained(world, way, count, trajectories, (each,)) for each in EPSILONS]
            there = tuple(each for each, found in zip(EPSILONS, every, strict=True) if found)
            if not there:
                continue
            mean = gained(world, way, count, trajectories, there)
            shown = ["–" if found is None else _shown(found) for found in [*every, mean]]
            rows.append([name_of(world.name), way, f"{count}", f"{trajectories}", *shown])
    at = [f"ε = {epsilon:g}" for epsilon in EPSILONS]
    return table(["", "release", "experts", "trajectories", *at, "mean"], rows, words=2)


# --- pictures ---


def by_experts(results: Results) -> Figure:
    """The default by the number of experts, a line for each ε."""
    every = worlds(results)
    figure, panes = panels(1, len(every), (11, 4))
    for axes, world in zip(panes, every, strict=True):
        for place, epsilon in enumerate(EPSILONS):
            cells = {
                count * 1.045 ** (place - 2): earned(world, experts=count, epsilon=epsilon)
                for count in COUNTS
            }
            colour, marker = COLOURS[epsilon]
            _line(axes, world, cells, f"ε = {epsilon:g}", colour, f"{marker}-")
        axes.set_xscale("log")
        axes.set_xticks(COUNTS, [f"{count}" for count in COUNTS])
        axes.set_xticks([], minor=True)
        _named(axes, world)
    return _framed(figure, panes, "experts")


def by_method(results: Results, count: int = 1000) -> Figure:
    """The default, DP-SGD and the paper's step by ε, with so many experts."""
    every = worlds(results)
    figure, panes = panels(1, len(every), (11, 4))
    ways = (
        (OURS, "bc", "the default", (INK, "o-")),
        (THEIRS, "cql", "DP-SGD", (FAINT, "X--")),
        (PAPERS, "cql", "the paper's step", (FAINT, "*:")),
    )
    for axes, world in zip(panes, every, strict=True):
        for method, learner, label, (colour, style) in ways:
            cells = {
                epsilon: earned(
                    world, method=method, learns=learner, experts=count, epsilon=epsilon
                )
                for epsilon in EPSILONS
            }
            _line(axes, world, cells, label, colour, style)
        axes.set_xscale("log")
        axes.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
        axes.set_xticks([], minor=True)
        _named(axes, world)
    return _framed(figure, panes, f"ε, {count} experts")


def beside_others(results: Results, count: int = 1000, epsilon: float = 1.0) -> Figure:
    """The default at one ε, what experts earn without straying, and learners without privacy."""
    every = worlds(results)
    figure, panes = panels(1, len(every), (11, 3.6))
    for axes, world in zip(panes, every, strict=True):
        found = {
            f"the default, ε = {epsilon:g}": earned(world, experts=count, epsilon=epsilon),
            "greedy experts": world.experts("greedy"),
        } | {
            f"{learner}, no privacy": world.returns("bound", method=FREE, learns=learner)
            for learner in LEARNERS
        }
        for place, returns in enumerate(found.values()):
            if returns is not None:
                shape = INK if place == 0 else FAINT
                points: Mapping[float, Estimate] = {
                    float(place): fraction(returns, world.experts())
                }
                error_bars(axes, points, fmt="o", color=shape, lw=1.3)
        axes.set_xticks(range(len(found)), list(found), rotation=60, ha="right", fontsize=9)
        axes.set_xlim(-0.6, len(found) - 0.4)
        _named(axes, world)
    return _framed(figure, panes, "")


def _line(
    axes: Any,
    world: World,
    cells: Mapping[float, Table | None],
    label: str,
    colour: str,
    style: str,
) -> None:
    points = {
        at: fraction(found, world.experts()) for at, found in cells.items() if found is not None
    }
    if points:
        error_bars(axes, points, fmt=style, color=colour, label=label, lw=1.3, elinewidth=1.3)


def _named(axes: Any, world: World) -> None:
    axes.axhline(1, color=INK, lw=1.2, ls=(0, (4, 3)))
    axes.set_title(world.name, fontsize=12, color=INK, pad=9)
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, 0.9), max(high, 1.1))  # what is next to nothing looks like that
    bare(axes)


def _framed(figure: Figure, panes: Any, below: str) -> Figure:
    figure.supxlabel(below, color=INK, fontsize=12)
    figure.supylabel("fraction of the experts' own return", color=INK, fontsize=12)
    handles, labels = panes[0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside upper left", ncols=5, frameon=False)
    return figure
