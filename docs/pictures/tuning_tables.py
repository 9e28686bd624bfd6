"""Tables of how the defaults of private training were chosen, from results/tuning/*.json.

Each file has runs program by program, in the form that `benchmarks/tuning.py` writes.
"""

import json
import math
from dataclasses import dataclass
from typing import Any, Final

from rendering import RESULTS, table

from quorum_rl.fit import FitSettings
from quorum_rl.fit.stages import noise_of_mean, rate_for
from quorum_rl.learners import defaults
from quorum_rl.training.mechanism import PrivateStep

Row = dict[str, Any]
NEAR: Final = 2.0  # a rate is near the rule's if they differ by this factor at most


@dataclass(frozen=True)
class Choice:
    """A number of private training: others that were tried, and the default."""

    name: str
    key: str
    others: tuple[Any, ...]
    ours: Any


CHOICES: Final = (
    Choice("networks", "hidden", ([256, 256], [32, 32]), list(defaults.HIDDEN_SIZES)),
    Choice("transitions per expert", "transitions", (16,), FitSettings.transitions_per_expert),
    Choice("clip norm", "clip_norm", (1.0, 0.3), FitSettings.clip_norm),
    Choice("private steps", "steps", (2000,), FitSettings.private_steps),
    Choice("averaging", "averaging", (0.999,), FitSettings.averaging),
)


def measured() -> list[Row]:
    """Every setting that was run, with its returns by seed."""
    rows = []
    for path in sorted((RESULTS / "tuning").glob("*.json"), reverse=True):
        facts = json.loads(path.read_text())
        for program in facts["programs"]:
            which = {"world": facts["world"], "round": program["round"]}
            rows += [which | program["configuration"] | row for row in program["rows"]]
    return rows


def step_of(row: Row) -> PrivateStep:
    """The step as it would be with as many experts as the noise was for."""
    return PrivateStep(
        sampling_rate=row["sampling_rate"],
        clip_norm=row["clip_norm"],
        noise_multiplier=row["noise_multiplier"],
        expected_batch=row["sampling_rate"] * row["experts"],
        micro_batch=1,
        transitions_per_expert=row["transitions"],
    )


def private() -> list[Row]:
    return [row for row in measured() if row["epsilon"] is not None]


def near_the_rule(row: Row) -> bool:
    return abs(math.log(row["rate"] / rate_for(step_of(row), row["steps"]))) <= math.log(NEAR)


def alike(row: Row, choice: Choice) -> str:
    """All that a row is beside the choice. Rates of other numbers of steps fall with their root."""
    left_out = {choice.key, "returns", "noise_multiplier"}
    if choice.key == "steps":
        left_out.add("rate")
        row = row | {"carried": f"{row['rate'] * math.sqrt(row['steps']):.3g}"}
    return json.dumps({key: value for key, value in row.items() if key not in left_out})


def pairs(choice: Choice, other: Any) -> list[tuple[Row, Row]]:
    """Runs that differ in this choice alone: the other's, and ours."""
    near = [row for row in private() if near_the_rule(row)]
    ours = {alike(row, choice): row for row in near if row[choice.key] == choice.ours}
    theirs = [row for row in near if row[choice.key] == other]
    both = [(row, ours[alike(row, choice)]) for row in theirs if alike(row, choice) in ours]
    return sorted(both, key=_place)


def _place(pair: tuple[Row, Row]) -> tuple[bool, bool, float]:
    """CQL first, and LunarLander before CartPole."""
    ours = pair[1]
    return ours["learner"] != "cql", ours["world"] != "LunarLander", ours["epsilon"]


def mean(values: list[float]) -> str:
    return f"{sum(values) / len(values):.0f}".replace("-", "−")


def by_seed(returns: list[float]) -> str:
    each = ", ".join(mean([one]) for one in returns)
    return f"{mean(returns)} ({each})" if len(returns) > 1 else mean(returns)


def shown(value: Any) -> str:
    return f"({', '.join(map(str, value))})" if isinstance(value, list) else f"{value:g}"


def choices() -> str:
    """What each choice earned over another, over runs that differ in nothing else."""
    lines = [line for choice in CHOICES for other in choice.others for line in _over(choice, other)]
    head = ["choice", "world, learner, ε", "pairs of runs", "better", "before", "after"]
    return table(head, lines, words=2)


def _over(choice: Choice, other: Any) -> list[list[str]]:
    found: dict[tuple[str, str, float], list[tuple[float, float]]] = {}
    for theirs, ours in pairs(choice, other):
        where = (ours["world"], ours["learner"], ours["epsilon"])
        both = zip(theirs["returns"], ours["returns"], strict=True)
        found.setdefault(where, []).extend(both)
    lines: list[list[str]] = []
    name = f"{choice.name}: {shown(other)} → {shown(choice.ours)}"
    for (world, learner, epsilon), returns in found.items():
        better = sum(after > before for before, after in returns)
        means = [mean([pair[side] for pair in returns]) for side in (0, 1)]
        place = f"{world}, {learner.upper()}, {epsilon:g}"
        lines.append(["" if lines else name, place, str(len(returns)), str(better), *means])
    return lines


def chosen_settings() -> str:
    """The last round on LunarLander: rates of the rule, by seed; and the bound of each learner."""
    rows = [row for row in private() if row["world"] == "LunarLander" and row["round"] == 4]
    epsilons = sorted({row["epsilon"] for row in rows})
    lines: dict[str, list[str]] = {}
    for row in sorted(rows, key=lambda row: row["epsilon"]):
        slow = (
            f", averaging {row['averaging']:g}" if row["averaging"] != FitSettings.averaging else ""
        )
        name = f"{row['learner'].upper()}, {row['steps']} steps{slow}"
        lines.setdefault(name, []).append(by_seed(row["returns"]))
    bounds = [row for row in measured() if row["without_privacy"] and row["world"] == "LunarLander"]
    said = "; ".join(
        f"{row['learner'].upper()} at {row['rate']:g} {by_seed(row['returns'])}" for row in bounds
    )
    made = table(
        ["LunarLander, return (by seed)", *(f"ε = {epsilon:g}" for epsilon in epsilons)],
        [[name, *cells] for name, cells in lines.items()],
    )
    steps, hidden = bounds[0]["steps"], shown(bounds[0]["hidden"])
    return f"{made}\n\nWithout privacy, {steps} steps, networks {hidden}: {said}."


def rates() -> str:
    """What several rates earned beside the one that the rule gives."""
    groups: dict[str, list[Row]] = {}
    for row in private():
        kept = (row["learner"], row["hidden"], row["averaging"]) == ("cql", [64, 64], 0.995)
        numbers = (row["transitions"], row["clip_norm"])
        if kept and row["steps"] == 8000 and numbers in ((16, 1.0), (64, 0.1)):
            same = f"{row['world']}, {row['experts']}, {row['epsilon']:g}"
            groups.setdefault(f"{same}; {numbers[0]}, {numbers[1]:g}", []).append(row)
    lines = []
    for same, rows in groups.items():
        # A later round took more seeds, the first ones again.
        earned = {row["rate"]: row["returns"] for row in sorted(rows, key=_rate_and_seeds)}
        step, steps = step_of(rows[0]), rows[0]["steps"]
        if len(earned) > 1:
            each = "; ".join(f"{rate:g}: {by_seed(got)}" for rate, got in earned.items())
            rule = f"{rate_for(step, steps):.2g}"
            lines.append([*same.split("; "), f"{noise_of_mean(step, steps):.2g}", rule, each])
    head = ["world, experts, ε", "transitions, clip norm", "noise of the mean", "the rule's rate"]
    return table([*head, "rate: return (by seed)"], lines, words=2)


def _rate_and_seeds(row: Row) -> tuple[float, int]:
    return row["rate"], len(row["returns"])
