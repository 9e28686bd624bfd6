"""How many steps without noise to take beside private ones: what p was chosen by."""

from typing import Final

from rendering import table
from tuning_tables import Row, both_stages, by_seed, measured

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
    found: dict[str, dict[str, list[float]]] = {}
    for row in measured():
        if row["epsilon"] == EPSILON and _is_of_these(row):
            name = f"{row['world']}, {row['learner'].upper()}"
            split = _split_of(row)
            if split is not None:
                found.setdefault(name, {})[split] = row["returns"]
    return found


def _is_of_these(row: Row) -> bool:
    if row["round"] != "seed 2":
        return bool(row["round"] == "split")
    usual = {"reward_scale": 1e-8} | (
        {"alpha": 0.1} if row["learner"] == "cql" else {"threshold": Bcq().threshold}
    )
    return bool(row["options"] == usual and row["transitions"] == 64)


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
            split: " ".join(f"{one / 1e9:.2f}" for one in each) if "HIV" in name else by_seed(each)
            for split, each in earned.items()
        }
        lines.append([name, *(shown.get(split, "not run") for split in (ALONE, *SPLITS))])
    return table([f"returns by seed, ε = {EPSILON:g}", ALONE, *SPLITS], lines)
