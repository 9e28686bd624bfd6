"""What was tried for few experts, round after round."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from reproduction.tables.few import WORLDS, facts, name_of, shown_return
from reproduction.tables.formatting import table


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


def of(tried: Tried, usual: Mapping[str, Any], population: str) -> dict[Cell, Any]:
    """Where a line was tried: noise over signal and mean return."""
    merged = {**usual, **tried.changes}
    settings = {name: value for name, value in merged.items() if value is not None}
    return {
        (row["world"], row["experts"], row["epsilon"]): (row["noise"], np.mean(row["returns"]))
        for row in facts("tuning")["rows"]
        if row["population"].startswith(population)
        and row["settings"] == settings
        and (row["learner"], tuple(row["hidden"])) == (tried.learner, tried.hidden)
        and row["options"].get("alpha") == tried.alpha
    }


def what_was_tried() -> str:
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
    return table(["", *map(name_of, WORLDS)], rows)


def _over_world(world: str, cells: list[Cell], found: dict[Cell, Any]) -> str:
    each = [found[cell][1] for cell in cells if cell[0] == world and cell in found]
    return shown_return(world, float(np.mean(each))) if each else "–"
