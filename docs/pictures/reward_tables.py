"""LunarLander's comparison with its rewards scaled otherwise, from results/paper/*.json."""

from typing import Any, Final

import paper_tables
from rendering import table

from quorum_rl.experiments.paper.columns import AVERAGED, NON_PRIVATE

USUAL: Final = "0.1"
SCALES: Final = {USUAL: "", "0.2": "-rewards-0.2", "0.3": "-rewards-0.3"}
WORLD: Final = "LunarLander"
EPSILONS: Final = (1.0, 2.5, 5.0, 7.5, 10.0)


def scores(learner: str, scale: str, name: str, epsilon: float | None = None) -> Any:
    """A method's scores by seed, with rewards multiplied by the scale."""
    facts = paper_tables.result(WORLD, f"{learner}-comparison{SCALES[scale]}")
    assert facts is not None
    return paper_tables.scores(facts, name, epsilon)


def at_full_scale() -> str:
    """Averaged private steps, all as fractions of one bound: that of the world's units."""
    rows = []
    for learner in ("cql", "bcq"):
        bound = scores(learner, USUAL, NON_PRIVATE)
        for scale in SCALES:
            methods = [scores(learner, scale, AVERAGED, epsilon) for epsilon in EPSILONS]
            each = [*methods, scores(learner, scale, NON_PRIVATE)]
            cells = [paper_tables.fraction(one, bound) for one in each]
            rows.append([f"{learner.upper()}, {scale}", *cells])
    head = ["LunarLander, reward scale", *(f"ε = {epsilon:g}" for epsilon in EPSILONS)]
    return table([*head, "without privacy"], rows)
