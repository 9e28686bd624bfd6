"""How many steps without noise to take beside private ones: what p was chosen by."""

from typing import Final

from hiv_tables import as_a_fit_has_it, in_billions
from rendering import table
from tuning_tables import Row, both_stages, by_seed, measured, units_reward

from quorum_rl.learners import Bcq

EPSILON: Final = 5.0
ALONE: Final = "private steps alone"
SPLITS: Final = {
    "p = 0.8": {"private_share": 0.8, "learning_rate": 1e-3},
    "p = 0.95": {"private_share": 0.95, "learning_rate": 1e-3},
    "p = 0.8, rate 1e-4": {"private_share": 0.8, "learning_rate": 1e-4},
}


def splits() -> dict[str, dict[str, list[float]]]:
    """Returns by seed at ε = 5, by world and learner and then by what was taken beside."""
    small = [row for row in measured() if row["round"] == "split"]
    hiv = [row for row in as_a_fit_has_it() if row["options"] == _usual_on_hiv(row["learner"])]
    found: dict[str, dict[str, list[float]]] = {}
    for row in hiv + small:
        split = _split_of(row)
        if row["epsilon"] == EPSILON and split is not None:
            name = f"{row['world']}, {row['learner'].upper()}"
            found.setdefault(name, {})[split] = row["returns"]
    return found


def _usual_on_hiv(learner: str) -> Row:
    """What p was compared with: BCQ had no setting of its own then."""
    own = {"alpha": 0.1} if learner == "cql" else {"threshold": Bcq().threshold}
    return {"reward_scale": units_reward("HIV")} | own


def _split_of(row: Row) -> str | None:
    mine = both_stages(row)
    if mine is None:
        return ALONE
    half = {"release_share": 0.5}
    return next((name for name, one in SPLITS.items() if mine == half | one), None)


def beside() -> str:
    lines = []
    for name, earned in splits().items():
        shown = {
            split: in_billions(each) if name.startswith("HIV") else by_seed(each)
            for split, each in earned.items()
        }
        lines.append([name, *(shown.get(split, "not run") for split in (ALONE, *SPLITS))])
    return table([f"returns by seed, ε = {EPSILON:g}", ALONE, *SPLITS], lines)
