"""What few experts teach: the tables of few-experts.md and of the README, from results/few."""

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
from rendering import RESULTS, hundredths, table
from scipy import stats

from quorum_rl.envs import get_world

WORLDS: Final = ("CartPole", "Acrobot", "HIV", "LunarLander")
COUNTS: Final = (30, 100, 300, 1000, 3000)
SMALLER: Final = COUNTS[:-1]  # where 3000 were not run
EPSILONS: Final = (0.1, 0.25, 0.5, 1.0, 3.0, 10.0)
OURS, THEIRS, BOUND = "local", "DP-SGD", "non-private"
VALUES: Final = "local, CQL near imitation"
RELEASED: Final = "CartPole-release"
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


class Earned(NamedTuple):
    """A mean with its 95% interval over seeds."""

    mean: float
    low: float
    high: float

    def over(self, scale: float, zero: float = 0.0) -> "Earned":
        return Earned(*((one - zero) / scale for one in self))


@cache
def facts(world: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / "few" / f"{world}.json").read_text())
    return found


def returns(world: str, method: str) -> dict[tuple[int, float], Any]:
    """Each seed's mean return, by how many experts there were and ε."""
    rows = [row for row in facts(world)["rows"] if row["method"] == method]
    if (RESULTS / "few" / f"{world}-3000.json").exists():  # another population
        more = facts(f"{world}-3000")["rows"]
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


def _said(world: str, earned: Earned) -> str:
    """A return and half of its interval."""
    digits = 2 if world == "HIV" else 0
    shown = earned.over(1e9) if world == "HIV" else earned
    half = shown.high - shown.mean
    return f"{shown.mean:.{digits}f} ± {half:.{digits}f}".replace("-", "−")


def _name(world: str) -> str:
    return "HIV, 1e9" if world == "HIV" else world


def results() -> str:
    """Every world, number of experts and ε: the return, and the fraction of the experts'."""
    rows = []
    for world in WORLDS:
        found = returns(world, OURS)
        refused = {(one["experts"], one["epsilon"]) for one in facts(world)["refused"]}
        for count in reversed(COUNTS):
            if not any(of == count for of, _ in found):
                continue
            cells = []
            for epsilon in EPSILONS:
                if (count, epsilon) in refused:
                    cells.append("noise")
                    continue
                earned = summary(found[count, epsilon])
                fraction = hundredths(as_fraction(world, earned).mean)
                cells.append(f"{_said(world, earned)} ({fraction})")
            rows.append([_name(world), f"{count}", *cells])
    return table(["", "experts", *(f"ε = {one:g}" for one in EPSILONS)], rows)


def beside() -> str:
    """What the others earn in each world: the experts, imitation without privacy, DP-SGD."""
    rows = []
    for world in WORLDS:
        scale, digits = (1e9, 2) if world == "HIV" else (1, 0)
        plain = [facts(world)["experts_mean"], bound(world)]
        theirs = returns(world, THEIRS)
        cells = [
            _said(world, summary(theirs[count, 1.0])) if (count, 1.0) in theirs else "–"
            for count in reversed(SMALLER)
        ]
        shown = [f"{one / scale:.{digits}f}".replace("-", "−") for one in plain]
        rows.append([_name(world), *shown, *cells])
    counts = [f"DP-SGD, {count}" for count in reversed(SMALLER)]
    return table(["", "the experts", "no privacy", *counts], rows)


def goals() -> str:
    """What was to be reached, beside what was."""
    rows = []
    for world, aims in GOALS.items():
        found = returns(world, OURS)
        for (count, epsilon), aim in aims.items():
            earned = summary(found[count, epsilon])
            if world == "HIV":
                earned = earned.over(bound(world))
                shown = f"{hundredths(earned.mean)} ± {hundredths(earned.high - earned.mean)}"
            else:
                shown = _said(world, earned)
            name = "HIV, of no privacy" if world == "HIV" else world
            met = "met" if earned.low >= aim else "met by the mean"
            if earned.mean < aim:
                met = "missed"
            aimed = f"{aim:g}".replace("-", "−")
            rows.append([name, f"{count}", f"{epsilon:g}", aimed, shown, met])
    return table(["", "experts", "ε", "goal", "measured", ""], rows)


def further() -> str:
    """The furthest goal: 100 experts at ε = 1 earn what the experts earn."""
    rows = []
    for world in WORLDS:
        earned = summary(returns(world, OURS)[100, 1.0])
        own = Earned(*[facts(world)["experts_mean"]] * 3)
        met = "met" if earned.mean >= own.mean else "missed"
        rows.append([_name(world), _said(world, own).partition(" ")[0], _said(world, earned), met])
    return table(["100 experts, ε = 1", "the experts", "measured", ""], rows)


def values() -> str:
    """CQL near imitation less imitation, seed by seed."""
    cells = sorted(returns(WORLDS[0], VALUES))
    rows = []
    for world in WORLDS:
        ours, theirs = returns(world, OURS), returns(world, VALUES)
        scale, digits = (1e9, 2) if world == "HIV" else (1, 1)
        if theirs:
            gained = (_gained(theirs[at] - ours[at], scale, digits) for at in cells)
            rows.append([_name(world), *gained])
    return table(["experts, ε", *(f"{count}, {epsilon:g}" for count, epsilon in cells)], rows)


def _gained(each: Any, scale: float = 1.0, digits: int = 1) -> str:
    """The mean of differences seed by seed, and its interval where there is any."""
    gain = summary(each).over(scale)
    mean, low, high = (f"{one:.{digits}f}".replace("-", "−") for one in gain)
    return f"{mean} [{low}, {high}]" if low != high else mean


def released() -> str:
    """A release beside local updates less local updates alone, seed by seed, on CartPole."""
    ours = returns(RELEASED, OURS)
    rows = []
    for way in ("release mixed in", "release first"):
        theirs = returns(RELEASED, way)
        rows.append(
            [way, *(_gained(theirs[at] - ours[at]) if at in theirs else "–" for at in ours)]
        )
    return table(["experts, ε", *(f"{count}, {epsilon:g}" for count, epsilon in ours)], rows)


class Tried(NamedTuple):
    """One line of what was tried: which runs it is, and what to call it."""

    label: str
    learner: str = "bc"
    hidden: tuple[int, ...] = (32,)
    alpha: float | None = None
    changes: Mapping[str, Any] = {}


FIRST: Final = {
    "private_steps": 60, "local_steps": 20, "local_rate": 0.5, "private_learning_rate": 1.5,
    "clip_norm": 1.0,
}  # fmt: skip
SECOND: Final = FIRST | {"local_steps": 60, "clip_norm": 0.3}
ONLY_SOLVE: Final = dict.fromkeys(FIRST) | {"method": "solve"}
FIRST_ROUND: Final = (
    Tried("**first: 60 private steps, 20 local ones at rate 0.5, clip norm 1, rate 1.5, (32,)**"),
    Tried("5 local steps", changes={"local_steps": 5}),
    Tried("60 local steps, 30 private ones", changes={"local_steps": 60, "private_steps": 30}),
    Tried("20 private steps", changes={"private_steps": 20}),
    Tried("150 private steps", changes={"private_steps": 150}),
    Tried("local rate 0.2", changes={"local_rate": 0.2}),
    Tried("local rate 1.5", changes={"local_rate": 1.5}),
    Tried("rate 1", changes={"private_learning_rate": 1.0}),
    Tried("rate 3", changes={"private_learning_rate": 3.0}),
    Tried("clip norm 0.3", changes={"clip_norm": 0.3}),
    Tried("clip norm 3", changes={"clip_norm": 3.0}),
    Tried("normalised", changes={"normalised": True}),
    Tried("momentum", changes={"private_learning_rate": 0.2, "optimiser": "momentum"}),
    Tried("Adam", changes={"private_learning_rate": 0.02, "optimiser": "adam"}),
    Tried("linear", hidden=()),
    Tried("(16,)", hidden=(16,)),
    Tried("(64,)", hidden=(64,)),
    Tried("(32, 32)", hidden=(32, 32)),
    Tried("(64, 64)", hidden=(64, 64)),
    Tried("solve, linear", hidden=(), changes=ONLY_SOLVE),
    Tried("solve, 128 random features", hidden=(128,), changes=ONLY_SOLVE),
    Tried("CQL, α = 1", "cql", changes={"local_rate": 0.3}),
    Tried("CQL, α = 5", "cql", alpha=5.0, changes={"local_rate": 0.1}),
    Tried("CQL, α = 20", "cql", alpha=20.0, changes={"local_rate": 0.025}),
    Tried("BCQ, 150 private steps", "bcq", changes={"local_rate": 0.3, "private_steps": 150}),
)
SECOND_ROUND: Final = (
    Tried("**then: 60 local steps, clip norm 0.3**"),
    Tried("100 local steps", changes={"local_steps": 100}),
    Tried("30 private steps, clip norm 1", changes={"private_steps": 30, "clip_norm": 1.0}),
    Tried("120 private steps, clip norm 0.15", changes={"private_steps": 120, "clip_norm": 0.15}),
    Tried("clip norm 0.5", changes={"clip_norm": 0.5}),
    Tried("momentum", changes={"private_learning_rate": 0.2, "optimiser": "momentum"}),
    Tried("linear", hidden=()),
    Tried("(16,)", hidden=(16,)),
    Tried("(64,)", hidden=(64,)),
    Tried("CQL, α = 20", "cql", alpha=20.0, changes={"local_rate": 0.025}),
)
NOISY: Final = (
    Tried("**then, where the noise over signal of (32,) is above 1**"),
    Tried("linear", hidden=()),
)

Cell = tuple[str, int, float]


@cache
def tuning() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((RESULTS / "few" / "tuning.json").read_text())["rows"]
    return rows


def of(tried: Tried, usual: Mapping[str, Any], population: str) -> dict[Cell, Any]:
    """Where a line was tried: noise over signal and mean return."""
    merged = {**usual, **tried.changes}
    settings = {name: value for name, value in merged.items() if value is not None}
    return {
        (row["world"], row["experts"], row["epsilon"]): (row["noise"], np.mean(row["returns"]))
        for row in tuning()
        if row["population"].startswith(population)
        and row["settings"] == settings
        and (row["learner"], tuple(row["hidden"])) == (tried.learner, tried.hidden)
        and row["options"].get("alpha") == tried.alpha
    }


def tried() -> str:
    """What was tried: the mean return over all cells of a world that the plan calls useful."""
    rounds: tuple[tuple[tuple[Tried, ...], dict[str, Any], str, Callable[[float], bool]], ...] = (
        (FIRST_ROUND, FIRST, "1000 ", lambda noise: noise <= 1),
        (SECOND_ROUND, SECOND, "300 ", lambda noise: noise <= 1),
        (NOISY, SECOND, "300 ", lambda noise: noise > 1),
    )
    rows = []
    for lines, usual, population, counted in rounds:
        first = of(lines[0], usual, population)
        cells = [cell for cell, (noise, _) in first.items() if counted(noise)]
        for line in lines:
            found = of(line, usual, population)
            assert found, line.label
            rows.append([line.label, *(_over_world(world, cells, found) for world in WORLDS)])
    return table(["", *map(_name, WORLDS)], rows)


def _over_world(world: str, cells: list[Cell], found: dict[Cell, Any]) -> str:
    each = [found[cell][1] for cell in cells if cell[0] == world and cell in found]
    if not each:
        return "–"
    scale, digits = (1e9, 2) if world == "HIV" else (1, 0)
    return f"{np.mean(each) / scale:.{digits}f}".replace("-", "−")


def in_short() -> str:
    """The README's table: some cells, each as the fraction of what the experts earn."""
    shown = ((1000, 0.1), (300, 0.5), (100, 1.0), (30, 10.0))
    rows = []
    for count, epsilon in shown:
        cells = []
        for world in WORLDS:
            earned = summary(returns(world, OURS)[count, epsilon])
            fraction = hundredths(as_fraction(world, earned).mean)
            cells.append(f"{_said(world, earned).partition(' ')[0]} ({fraction})")
        rows.append([f"{count} experts, ε = {epsilon:g}", *cells])
    experts = [
        _said(world, Earned(*[facts(world)["experts_mean"]] * 3)).partition(" ")[0]
        for world in WORLDS
    ]
    rows.append(["the experts themselves", *(f"{one} (1)" for one in experts)])
    return table(["return (fraction)", *map(_name, WORLDS)], rows)
