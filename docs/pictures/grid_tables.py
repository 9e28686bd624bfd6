"""Tables of the paper's grid in short trainings, from results/paper/*-grid-*.json."""

from typing import Any, Final, NamedTuple

import numpy as np
from paper_tables import OPTIMISERS, Facts, bound_of, found, fraction
from rendering import provenance, table

from reproduction.columns import (
    BATCH_SIZES,
    LEARNING_RATES,
    PRIVATE_SHARES,
    best_settings,
    grid_name,
)

OPTIMISER_NAMES: Final = {setting: name for name, setting in OPTIMISERS.items()}
CLOSE: Final = 0.05  # of the bound: what three seeds hardly tell apart

# The paper's table on the split at low ε: with three quarters for the release, and with none.
PAPER_ON_SPLIT: Final = {
    ("Acrobot", "bcq", 2.5): ("0.74", "0.95"),
    ("CartPole", "bcq", 2.5): ("0.28", "0.58"),
    ("CartPole", "bcq", 5.0): ("0.56", "0.60"),
}


class Best(NamedTuple):
    """Of all rates and batches at one p, the setting that earned most."""

    share: float
    method: Facts
    scores: Any


def grids() -> dict[tuple[str, str], Facts]:
    """The grid of every world and learner, whatever its number of steps, as far as run."""
    run = found("*-grid*")
    made = {(one["world"], one["configuration"]["learner"]): one for one in run}
    assert len(made) == len(run), "several grids of one world and learner"
    return made


def best_of(one: Facts, epsilon: float) -> list[Best]:
    """The best setting at each p, from p = 0 to 1; none where nothing was released."""
    made = []
    for share in sorted(PRIVATE_SHARES):
        names = {grid_name(rate, batch, share) for rate in LEARNING_RATES for batch in BATCH_SIZES}
        mine = [m for m in one["methods"] if m["epsilon"] == epsilon and m["name"] in names]
        if mine:
            method = max(mine, key=lambda m: float(np.mean(m["scores"])))
            made.append(Best(share, method, np.array(method["scores"])))
    return made


def grid() -> str:
    """The best of each p at every ε, and which p is best here and in the paper."""
    rows, notes = [], []
    shares = sorted(PRIVATE_SHARES)
    for (world, learner), one in grids().items():
        bound = bound_of(world, learner)
        for epsilon in sorted({m["epsilon"] for m in one["methods"]}):
            each = {best.share: best for best in best_of(one, epsilon)}
            cells = [_cell(each.get(share), bound) for share in shares]
            rows.append(
                [
                    f"{world}, {learner.upper()}, {epsilon:g}",
                    *cells,
                    _best_shares(list(each.values()), bound),
                    _published_share(world, learner, epsilon),
                ]
            )
        chosen = one["configuration"]
        notes.append(
            f"{world}, {learner.upper()}: {len(one['methods'])} settings of {chosen['steps']:,} "
            f"steps with {OPTIMISER_NAMES[chosen['optimiser']]}, {one['seeds']} seeds. "
            f"{provenance(one)}."
        )
    head = ["world, learner, ε", *(f"p = {share:g}" for share in shares)]
    head += [f"best p (and within {CLOSE:g})", "in the paper"]
    return "\n\n".join([table(head, rows), *notes])


def _cell(best: Best | None, bound: Any) -> str:
    if best is None:
        return "infeasible"
    nothing = best.method["released"] and not any(best.method["released"])
    return fraction(best.scores, bound) + ("*" if nothing else "")


def _best_shares(each: list[Best], bound: Any) -> str:
    ranked = sorted(each, key=lambda best: -best.scores.mean())
    close = [
        f"{best.share:g}"
        for best in ranked[1:]
        if ranked[0].scores.mean() - best.scores.mean() <= CLOSE * bound.mean()
    ]
    return f"{ranked[0].share:g}" + (f" ({', '.join(close)})" if close else "")


def _published_share(world: str, learner: str, epsilon: float) -> str:
    mine = [one for one in best_settings(world, learner) if one.epsilon == epsilon]
    return f"{mine[0].private_share:g}" if mine else ""


def split() -> str:
    """A release with three quarters of a low ε, or none: the best of the grid with each."""
    rows, run = [], grids()
    for (world, learner, epsilon), (with_release, without) in PAPER_ON_SPLIT.items():
        one = run.get((world, learner))
        here = ["not run", "not run"]
        if one is not None:
            bound = bound_of(world, learner)
            both = [best for best in best_of(one, epsilon) if 0 < best.share < 1]
            alone = [best for best in best_of(one, epsilon) if best.share == 1]
            here = [
                _cell(max(some, key=lambda best: float(best.scores.mean())), bound)
                for some in (both, alone)
            ]
        name = f"{world}, {learner.upper()}, {epsilon:g}"
        rows.append([name, here[0], with_release, here[1], without])
    head = ["world, learner, ε", "¾ε for the release", "in the paper"]
    return table([*head, "nothing for the release", "in the paper"], rows)
