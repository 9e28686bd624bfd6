"""How HIV's settings were chosen: on small experts first, then on those of the paper's preset."""

from collections.abc import Callable
from typing import Final

from rendering import table
from tuning_tables import Row, both_stages, measured, other_rate, shown, units_reward

from quorum_rl.fit import FitSettings
from quorum_rl.learners import defaults

USUAL: Final = FitSettings()
EPSILONS: Final = (None, 5.0, 2.5, 1.0)
FEW: Final = 16  # transitions of an expert, where the usual number would take too long
Shown = Callable[[float], str]


def on_small_experts() -> str:
    """What either learner earned on experts of which many are stuck."""
    rows = [row for row in measured() if row["world"] == "HIV" and row["round"] == 1]
    return _by_epsilon("HIV, returns by seed", rows, lambda one: f"{one:.2g}")


def on_the_papers_experts() -> str:
    """What they earned on experts of the paper's preset, with private steps alone and with both."""
    rows = [row for row in _seed_2() if row["transitions"] == USUAL.transitions_per_expert]
    rows.sort(key=lambda row: both_stages(row) is not None)
    return _by_epsilon("HIV, returns by seed, in billions", rows, _billions)


def at_epsilon_1() -> str:
    """What else was tried with BCQ, and CQL beside it, at the least ε."""
    rows = [row for row in _seed_2() if row["transitions"] == FEW]
    assert {row["epsilon"] for row in rows} == {1.0}
    lines = [[_name(row), _each(row, _billions)] for row in rows]
    return table([f"HIV, ε = 1, {FEW} transitions", "returns by seed, in billions"], lines)


def _seed_2() -> list[Row]:
    return [row for row in measured() if row["round"] == "seed 2"]


def _by_epsilon(what: str, rows: list[Row], one: Shown) -> str:
    lines: dict[str, dict[float | None, str]] = {}
    for row in rows:
        earned = lines.setdefault(_name(row), {})
        assert row["epsilon"] not in earned, f"two runs called {_name(row)}"
        earned[row["epsilon"]] = _each(row, one)
    head = [what, "without noise", *(f"ε = {epsilon:g}" for epsilon in EPSILONS if epsilon)]
    return table(head, [[name, *(got.get(e, "") for e in EPSILONS)] for name, got in lines.items()])


def _billions(one: float) -> str:
    return f"{one / 1e9:.2f}"


def _each(row: Row, one: Shown) -> str:
    return " ".join(map(one, row["returns"]))


def _name(row: Row) -> str:
    """The learner, and all that is other than usual."""
    options = row["options"].items()
    said = [_said(name, value) for name, value in options if value != units_reward("HIV")]
    split = both_stages(row)
    if split is not None:
        said.append("both stages")
        said += [_said(name, value) for name, value in split.items() if value != _usual(name)]
    if row["hidden"] != list(defaults.HIDDEN_SIZES):
        said.append(f"networks {shown(row['hidden'])}, clip norm {row['clip_norm']:g}")
    elif row["clip_norm"] not in (None, USUAL.clip_norm, 1.0):
        said.append(f"clip norm {row['clip_norm']:g}")
    if row["steps"] != USUAL.private_steps:
        said.append(f"{row['steps']} steps")
    if row["averaging"] != USUAL.averaging:
        said.append(f"averaging {row['averaging']:g}")
    return ", ".join([row["learner"].upper(), *said, *other_rate(row)])


def _usual(name: str) -> float:
    found: float = getattr(USUAL, name)
    return found


def _said(name: str, value: float) -> str:
    return f"{name.replace('_', ' ')} {value:g}"
