"""LunarLander with its rewards scaled otherwise: its comparison, and what noise costs BCQ."""

from itertools import product
from typing import Any, Final

import paper_tables
import tuning_tables
from rendering import table

from reproduction.columns import AVERAGED, EPSILONS, NON_PRIVATE, ONE_EACH

USUAL: Final = "0.1"
SCALES: Final = {USUAL: "", "0.2": "-rewards-0.2", "0.3": "-rewards-0.3"}
WORLD: Final = "LunarLander"
NONE_TO_MUCH: Final = (None, 50.0, 5.0, 1.0)  # ε, where there is noise


def scores(learner: str, scale: str, name: str, epsilon: float | None = None) -> Any:
    """A method's scores by seed, with rewards multiplied by the scale."""
    facts = paper_tables.result(WORLD, f"{learner}-comparison{SCALES[scale]}")
    assert facts is not None
    return paper_tables.scores(facts, name, epsilon)


def at_full_scale() -> str:
    """Private steps, all as fractions of one bound: that of the world's units."""
    rows = []
    for learner, name, scale in product(("cql", "bcq"), (AVERAGED, ONE_EACH), SCALES):
        bound = scores(learner, USUAL, NON_PRIVATE)
        methods = [scores(learner, scale, name, epsilon) for epsilon in EPSILONS]
        cells = [paper_tables.fraction(one, bound) for one in methods]
        rest = paper_tables.fraction(scores(learner, scale, NON_PRIVATE), bound)
        rows.append([f"{learner.upper()}, {name}", scale, *cells, rest])
    head = ["LunarLander", "reward scale", *(f"ε = {epsilon:g}" for epsilon in EPSILONS)]
    return table([*head, "without privacy"], rows, words=2)


def earned_by_bcq() -> dict[str, dict[float | None, list[float]]]:
    """Returns by seed of every setting with the mean of 16 transitions, and ε."""
    found: dict[str, dict[float | None, list[float]]] = {}
    every = tuning_tables.measured()
    usual = [row for row in every if row["round"] == "rewards, seed 7"]
    looked_at = [row for row in every if row["round"] == tuning_tables.NOISE]
    scales = {row["options"]["reward_scale"] for row in looked_at}
    for row in usual + looked_at:
        scale, transitions = row["options"]["reward_scale"], row["transitions"]
        if (row["learner"], transitions) == ("bcq", 16) and scale in scales:
            by_epsilon = found.setdefault(_said(row), {})
            assert row["epsilon"] not in by_epsilon, f"two runs are called {_said(row)}"
            by_epsilon[row["epsilon"]] = row["returns"]
    return found


def _said(row: tuning_tables.Row) -> str:
    rest = {name: one for name, one in row["options"].items() if name != "reward_scale"}
    said = [tuning_tables.said_of("reward_scale", row["options"]["reward_scale"])]
    said += [tuning_tables.said_of(name, one) for name, one in rest.items()]
    if row["clip_norm"] != tuning_tables.DEFAULTS.clip_norm:
        said.append(tuning_tables.said_of("clip_norm", row["clip_norm"]))
    if row.get("optimiser", "adam") != "adam":
        return ", ".join([*said, f"{row['optimiser']} at {row['rate']:g}"])
    return ", ".join(said + tuning_tables.other_rate(row))


def noise() -> str:
    """What BCQ earns with less noise, and what makes no difference."""
    rows = [
        [said, *(tuning_tables.by_seed(got[e]) if e in got else "" for e in NONE_TO_MUCH)]
        for said, got in sorted(earned_by_bcq().items())
    ]
    head = [
        "LunarLander, BCQ, return (by seed)",
        "no noise",
        *(f"ε = {e:g}" for e in NONE_TO_MUCH[1:]),
    ]
    return table(head, rows)
