"""Tables of the paper's grid in short trainings."""

from typing import Any, Final, NamedTuple

import numpy as np

from reproduction.columns import (
    BATCH_SIZES,
    LEARNING_RATES,
    PRIVATE_SHARES,
    best_settings,
    grid_name,
)
from reproduction.results import Facts
from reproduction.tables.formatting import fraction, provenance, table, world_and_learner
from reproduction.tables.paper import bound_of, found

OPTIMISERS: Final = {"adam": "Adam", "sgd": "plain steps"}
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


def _best_of(facts: Facts, epsilon: float) -> list[Best]:
    """The best setting at each p, from p = 0 to 1; none where nothing was released."""
    made = []
    for share in sorted(PRIVATE_SHARES):
        names = {grid_name(rate, batch, share) for rate in LEARNING_RATES for batch in BATCH_SIZES}
        mine = [m for m in facts["methods"] if m["epsilon"] == epsilon and m["name"] in names]
        if mine:
            method = max(mine, key=lambda method: float(np.mean(method["scores"])))
            made.append(Best(share, method, np.array(method["scores"])))
    return made


def grid() -> str:
    """The best of each p at every ε, and which p is best here and in the paper."""
    rows, notes = [], []
    shares = sorted(PRIVATE_SHARES)
    for facts in found("*-grid*"):
        world, chosen = facts["world"], facts["configuration"]
        bound = bound_of(world, chosen["learner"])
        for epsilon in sorted({method["epsilon"] for method in facts["methods"]}):
            each = {best.share: best for best in _best_of(facts, epsilon)}
            printed = [
                f"{setting.private_share:g}"
                for setting in best_settings(world, chosen["learner"])
                if setting.epsilon == epsilon
            ]
            rows.append(
                [
                    f"{world_and_learner(facts)}, {epsilon:g}",
                    *(_cell(each.get(share), bound) for share in shares),
                    _best_shares(list(each.values()), bound),
                    *(printed or [""]),
                ]
            )
        notes.append(
            f"{world_and_learner(facts)}: {len(facts['methods'])} settings of "
            f"{chosen['steps']:,} steps with {OPTIMISERS[chosen['optimiser']]}, "
            f"{facts['seeds']} seeds. {provenance(facts)}."
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
    first, *rest = sorted(each, key=lambda best: -best.scores.mean())
    close = [
        f"{best.share:g}"
        for best in rest
        if first.scores.mean() - best.scores.mean() <= CLOSE * bound.mean()
    ]
    return f"{first.share:g}" + (f" ({', '.join(close)})" if close else "")


def split_at_low_epsilon() -> str:
    """A release with three quarters of a low ε, or none: the best of the grid with each."""
    rows = []
    for (world, learner, epsilon), printed in PAPER_ON_SPLIT.items():
        (facts,) = (facts for facts in found(f"{learner}-grid*") if facts["world"] == world)
        every, bound = _best_of(facts, epsilon), bound_of(world, learner)
        both = max(
            (best for best in every if 0 < best.share < 1), key=lambda best: best.scores.mean()
        )
        (alone,) = (best for best in every if best.share == 1)
        cells = [_cell(both, bound), printed[0], _cell(alone, bound), printed[1]]
        rows.append([f"{world_and_learner(facts)}, {epsilon:g}", *cells])
    head = ["world, learner, ε", "¾ε for the release", "in the paper"]
    return table([*head, "nothing for the release", "in the paper"], rows)
