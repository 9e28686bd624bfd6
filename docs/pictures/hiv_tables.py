"""How HIV's settings were chosen: on small experts first, then on those of the paper's preset."""

from collections.abc import Callable
from typing import Final

from rendering import table
from tuning_tables import Row, both_stages, measured, other_rate, said_of, shown, units_reward

from quorum_rl.learners import defaults
from quorum_rl.pipeline import FitSettings

USUAL: Final = FitSettings(method="selective").filled()
EPSILONS: Final = (None, 5.0, 2.5, 1.0)
FEW: Final = 16  # transitions of an expert, where the usual number would take too long
Shown = Callable[[list[float]], str]


def on_small_experts() -> str:
    """What either learner earned on experts of which many are stuck."""
    rows = [row for row in measured() if row["world"] == "HIV" and row["round"] == 1]
    return _by_epsilon("HIV, returns by seed", rows, _in_two_digits)


def on_the_papers_experts() -> str:
    """What they earned on experts of the paper's preset, with private steps alone and with both."""
    rows = sorted(as_a_fit_has_it(), key=lambda row: both_stages(row) is not None)
    return _by_epsilon("HIV, returns by seed, in billions", rows, in_billions)


def at_epsilon_1() -> str:
    """What else was tried with BCQ at the least ε."""
    rows = [row for row in _seed_2() if row["transitions"] == FEW]
    assert {row["epsilon"] for row in rows} == {1.0}
    lines = [[name_of(row), in_billions(row["returns"])] for row in rows]
    return table([f"HIV, ε = 1, {FEW} transitions", "returns by seed, in billions"], lines)


def as_a_fit_has_it() -> list[Row]:
    """The runs on the paper's experts with the usual number of transitions."""
    return [row for row in _seed_2() if row["transitions"] == USUAL.transitions_per_expert]


def _seed_2() -> list[Row]:
    return [row for row in measured() if row["round"] == "seed 2"]


def _by_epsilon(what: str, rows: list[Row], each: Shown) -> str:
    lines: dict[str, dict[float | None, str]] = {}
    for row in rows:
        earned = lines.setdefault(name_of(row), {})
        assert row["epsilon"] not in earned, f"two runs called {name_of(row)}"
        earned[row["epsilon"]] = each(row["returns"])
    head = [what, "without noise", *(f"ε = {epsilon:g}" for epsilon in EPSILONS if epsilon)]
    return table(head, [[name, *(got.get(e, "") for e in EPSILONS)] for name, got in lines.items()])


def _in_two_digits(returns: list[float]) -> str:
    return " ".join(f"{one:.2g}" for one in returns)


def in_billions(returns: list[float]) -> str:
    return " ".join(f"{one / 1e9:.2f}" for one in returns)


def name_of(row: Row) -> str:
    """The learner, and all that is other than usual."""
    options = row["options"].items()
    said = [said_of(name, value) for name, value in options if value != units_reward("HIV")]
    split = both_stages(row)
    if split is not None:
        said.append("both stages")
        said += [said_of(name, value) for name, value in split.items() if value != _usual(name)]
    if row["hidden"] != list(defaults.HIDDEN_SIZES):
        said.append(f"networks {shown(row['hidden'])}, clip norm {row['clip_norm']:g}")
    elif row["clip_norm"] not in (None, USUAL.clip_norm):
        said.append(f"clip norm {row['clip_norm']:g}")
    if row["steps"] != USUAL.private_steps:
        said.append(f"{row['steps']} steps")
    if row["averaging"] != USUAL.averaging:
        said.append(f"averaging {row['averaging']:g}")
    return ", ".join([row["learner"].upper(), *said, *other_rate(row)])


def _usual(name: str) -> float:
    found: float = getattr(USUAL, name)
    return found
