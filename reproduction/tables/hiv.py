"""How HIV's settings were chosen, and how many steps without noise to take beside private ones."""

from typing import Final

from quorum_rl.learners import Bcq, defaults
from quorum_rl.pipeline import FitSettings
from reproduction.tables.formatting import at_epsilons, by_seed, in_billions, option, table
from reproduction.tables.tuning import (
    Row,
    by_epsilon,
    in_round,
    other_rate,
    reward_scale_of,
    shown,
)

BOTH_STAGES: Final = FitSettings(method="selective").filled()
EPSILONS: Final = (None, 5.0, 2.5, 1.0)
HEAD: Final = ("without noise", *at_epsilons((5, 2.5, 1)))
FEW: Final = 16  # transitions of an expert, where the usual number would take too long
ALONE: Final = "private steps alone"
SPLITS: Final = {
    "p = 0.8": {"private_share": 0.8, "learning_rate": 1e-3},
    "p = 0.95": {"private_share": 0.95, "learning_rate": 1e-3},
    "p = 0.8, rate 1e-4": {"private_share": 0.8, "learning_rate": 1e-4},
}


def small_experts() -> str:
    """What either learner earned on experts of which many are stuck."""
    rows = [row for row in in_round(1) if row["world"] == "HIV"]

    def in_two_digits(returns: list[float]) -> str:
        return " ".join(f"{earned:.2g}" for earned in returns)

    lines = by_epsilon(rows, _name, EPSILONS, in_two_digits)
    return table(["HIV, returns by seed", *HEAD], lines)


def papers_experts() -> str:
    """What they earned on experts of the paper's preset, with private steps alone and with both."""
    rows = sorted(_as_a_fit_has_it(), key=lambda row: row["both_stages"] is not None)
    lines = by_epsilon(rows, _name, EPSILONS, in_billions)
    return table(["HIV, returns by seed, in billions", *HEAD], lines)


def least_epsilon() -> str:
    """What else was tried with BCQ at the least ε."""
    rows = [row for row in in_round("seed 2") if row["transitions"] == FEW]
    lines = by_epsilon(rows, _name, (1.0,), in_billions)
    return table([f"HIV, ε = 1, {FEW} transitions", "returns by seed, in billions"], lines)


def _as_a_fit_has_it() -> list[Row]:
    """The runs on the paper's experts with the usual number of transitions."""
    usual = BOTH_STAGES.transitions_per_expert
    return [row for row in in_round("seed 2") if row["transitions"] == usual]


def _name(row: Row) -> str:
    """The learner, and all that is other than usual."""
    options = row["options"].items()
    words = [option(name, value) for name, value in options if value != reward_scale_of("HIV")]
    if row["both_stages"] is not None:
        split = row["both_stages"].items()
        words.append("both stages")
        words += [option(name, v) for name, v in split if v != getattr(BOTH_STAGES, name)]
    if row["hidden"] != list(defaults.HIDDEN_SIZES):
        words.append(f"networks {shown(row['hidden'])}, clip norm {row['clip_norm']:g}")
    elif row["clip_norm"] not in (None, BOTH_STAGES.clip_norm):
        words.append(f"clip norm {row['clip_norm']:g}")
    if row["steps"] != BOTH_STAGES.private_steps:
        words.append(f"{row['steps']} steps")
    if row["averaging"] != BOTH_STAGES.averaging:
        words.append(option("averaging", row["averaging"]))
    return ", ".join([row["learner"].upper(), *words, *other_rate(row)])


def split() -> str:
    """How many steps without noise to take beside private ones: returns at ε = 5."""
    cql, others = {"alpha": 0.1}, {"threshold": Bcq().threshold}  # BCQ had none of its own then
    units = {"reward_scale": reward_scale_of("HIV")}
    hiv = [
        row
        for row in _as_a_fit_has_it()
        if row["options"] == units | (cql if row["learner"] == "cql" else others)
    ]
    lines: dict[str, dict[str, str]] = {}
    for row in hiv + in_round("split"):
        name = _split_of(row)
        if row["epsilon"] == 5.0 and name is not None:
            each = in_billions if row["world"] == "HIV" else by_seed
            who = f"{row['world']}, {row['learner'].upper()}"
            lines.setdefault(who, {})[name] = each(row["returns"])
    heads = (ALONE, *SPLITS)
    rows = [[who, *(line.get(name, "not run") for name in heads)] for who, line in lines.items()]
    return table(["returns by seed, ε = 5", *heads], rows)


def _split_of(row: Row) -> str | None:
    if row["both_stages"] is None:
        return ALONE
    half = {"release_share": 0.5}
    matching = (name for name, given in SPLITS.items() if row["both_stages"] == half | given)
    return next(matching, None)
