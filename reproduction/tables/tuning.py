"""Tables of how the defaults of private training were chosen."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from quorum_rl.envs import get_world, units_of
from quorum_rl.learners import defaults
from quorum_rl.pipeline import FitSettings
from quorum_rl.pipeline.plan import noise_of_mean, rate_for
from quorum_rl.pipeline.units import OBSERVED
from quorum_rl.training import Gradient, PrivateStep
from reproduction.results import Facts, study
from reproduction.tables.formatting import (
    at_epsilons,
    by_seed,
    mean,
    option,
    table,
)

Row = Facts
RAW: Final = "raw"
IN_UNITS: Final = "in the world's units"
NEAR: Final = 2.0  # a rate is near the rule's if they differ by this factor at most
# Rounds on how LunarLander's rewards are scaled, and whose: no other choice was made by them.
REWARDS: Final = {"rewards": "100 small ones", "rewards, seed 7": "999, seed 7"}
NOISE: Final = "noise, seed 7"  # what noise costs BCQ with rewards scaled in two ways
AGAINST_NOISE: Final = ("threshold", "target_rate")  # options of BCQ that were tried
NO_SETTINGS: Final = (
    "returns", "noise_multiplier", "population", "commit", "machine", "seconds", "digits",
)  # fmt: skip
DP_SGD: Final = FitSettings(method="dp-sgd").filled()


@dataclass(frozen=True)
class Choice:
    """A number of private training: others that were tried, and the default."""

    name: str
    key: str
    others: tuple[Any, ...]
    ours: Any


UNITS: Final = Choice("observations", "observations", (RAW,), IN_UNITS)
CHOICES: Final = (
    Choice("networks", "hidden", ([256, 256], [32, 32]), list(defaults.HIDDEN_SIZES)),
    Choice("transitions per expert", "transitions", (16,), DP_SGD.transitions_per_expert),
    Choice("clip norm", "clip_norm", (1.0, 0.3), DP_SGD.clip_norm),
    Choice("private steps", "steps", (2000,), DP_SGD.private_steps),
    Choice("averaging", "averaging", (0.999,), DP_SGD.averaging),
    UNITS,
)


@lru_cache
def measured() -> Sequence[Row]:
    """Every setting that was run, with its returns by seed.

    Observation maps have names, apart from the learner's other options.
    """
    rows = []
    for _, facts in sorted(study("tuning").items(), reverse=True):
        for row in facts["rows"]:
            options = dict(row["options"])
            seen = {name: options.pop(name) for name in OBSERVED if name in options}
            names = [name for name, maps in facts.get("maps", {}).items() if seen in maps]
            apart = {
                "world": facts["world"],
                "options": options,
                "observations": names[0] if seen else RAW,
                "weight_decay": row.get("weight_decay") or 0.0,
                "both_stages": row.get("both_stages"),
            }
            rows.append(row | apart)
    return rows


def in_round(*rounds: Any) -> list[Row]:
    return [row for row in measured() if row["round"] in rounds]


def private() -> list[Row]:
    """All that learned from private steps alone."""
    return [row for row in measured() if row["epsilon"] is not None and not row["both_stages"]]


def _step_of(row: Row) -> PrivateStep:
    """The step as it would be with as many experts as the noise was for."""
    return PrivateStep(
        sampling_rate=row["sampling_rate"],
        clip_norm=row["clip_norm"],
        noise_multiplier=row["noise_multiplier"],
        expected_batch=row["sampling_rate"] * row["experts"],
        chunk=1,
        contribution=Gradient(transitions=row["transitions"]),
    )


def _rule(row: Row) -> float:
    return rate_for(_step_of(row), row["steps"])


def other_rate(row: Row) -> list[str]:
    """How the rate of private steps differs from the rule's, if it does."""
    if row["epsilon"] is None or row["both_stages"]:
        return []
    times = f"{row['rate'] / _rule(row):.1g}"
    return [] if times == "1" else [f"{times} times the rule's rate"]


def _alike(row: Row, choice: Choice) -> str:
    """All that a row is beside the choice. Rates of other numbers of steps fall with their root.

    Units came in a round of their own, in which the rule's rate has more digits.
    """
    left_out = {choice.key, *NO_SETTINGS}
    if choice == UNITS:
        left_out.add("round")
        row = row | {"rate": f"{row['rate']:.2g}"}
    if choice.key == "steps":
        left_out.add("rate")
        row = row | {"carried": f"{row['rate'] * math.sqrt(row['steps']):.3g}"}
    return json.dumps({key: row[key] for key in row if key not in left_out}, sort_keys=True)


def _pairs(choice: Choice, other: Any) -> list[tuple[Row, Row]]:
    """Runs that differ in this choice alone: the other's, and ours."""
    near = [
        row
        for row in private()
        if row["round"] not in (*REWARDS, NOISE)
        and abs(math.log(row["rate"] / _rule(row))) <= math.log(NEAR)
        and not row["weight_decay"]
        and (choice == UNITS or row["observations"] == RAW)  # the others were made before units
    ]
    ours = {_alike(row, choice): row for row in near if row[choice.key] == choice.ours}
    theirs = [row for row in near if row[choice.key] == other]
    both = [(row, ours[_alike(row, choice)]) for row in theirs if _alike(row, choice) in ours]

    def place(pair: tuple[Row, Row]) -> tuple[bool, bool, float]:
        return pair[1]["learner"] != "cql", pair[1]["world"] != "LunarLander", pair[1]["epsilon"]

    return sorted(both, key=place)


def shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"({', '.join(map(str, value))})" if isinstance(value, list) else f"{value:g}"


def choices() -> str:
    """What each choice earned over another, over runs that differ in nothing else."""
    lines = [line for choice in CHOICES for other in choice.others for line in _over(choice, other)]
    head = ["choice", "world, learner, ε", "pairs of runs", "better", "before", "after"]
    worlds = [row["world"] for row in measured()]
    each = ", ".join(f"{worlds.count(world)} on {world}" for world in dict.fromkeys(worlds))
    return f"{table(head, lines, words=2)}\n\nIn all {len(worlds)} settings were run: {each}."


def _over(choice: Choice, other: Any) -> list[list[str]]:
    found: dict[str, list[tuple[float, float]]] = {}
    for theirs, ours in _pairs(choice, other):
        place = f"{ours['world']}, {ours['learner'].upper()}, {ours['epsilon']:g}"
        both = zip(theirs["returns"], ours["returns"], strict=True)
        found.setdefault(place, []).extend(both)
    lines: list[list[str]] = []
    for place, returns in found.items():
        name = "" if lines else f"{choice.name}: {shown(other)} → {shown(choice.ours)}"
        better = sum(after > before for before, after in returns)
        means = [mean([pair[side] for pair in returns]) for side in (0, 1)]
        lines.append([name, place, str(len(returns)), str(better), *means])
    return lines


def chosen_settings() -> str:
    """LunarLander at the rule's rates, the last round before units and then with them."""
    here = [row for row in private() if row["world"] == "LunarLander"]
    rows = [row for row in here if row["round"] == 4]
    rows += [
        ours
        for _, ours in _pairs(UNITS, RAW)
        if ours in here and all(ours[choice.key] == choice.ours for choice in CHOICES)
    ]
    lines: dict[str, dict[float, str]] = {}
    for row in rows:
        slow = f", averaging {row['averaging']:g}" if row["averaging"] != DP_SGD.averaging else ""
        seen = "" if row["observations"] == RAW else f", {row['observations']}"
        name = f"{row['learner'].upper()}, {row['steps']} steps{slow}{seen}"
        lines.setdefault(name, {})[row["epsilon"]] = by_seed(row["returns"])
    bounds = [
        row
        for row in measured()
        if row["without_privacy"] and row["world"] == "LunarLander" and row["round"] != "bcq"
    ]
    each = "; ".join(
        f"{row['learner'].upper()} at {row['rate']:g} {by_seed(row['returns'])}" for row in bounds
    )
    epsilons = sorted({row["epsilon"] for row in rows})
    made = table(
        ["LunarLander, return (by seed)", *at_epsilons(epsilons)],
        [[name, *(earned.get(e, "not run") for e in epsilons)] for name, earned in lines.items()],
    )
    steps, hidden = bounds[0]["steps"], shown(bounds[0]["hidden"])
    return f"{made}\n\nWithout privacy, {steps} steps, networks {hidden}: {each}."


def units() -> str:
    """Every run of the round in which observation maps were tried, and what it is beside."""
    before = [theirs for theirs, _ in _pairs(UNITS, RAW) if theirs["round"] != "units"]
    rows = before + [row for row in private() if row["round"] == "units"]
    groups: dict[tuple[str, str], list[list[str]]] = {}
    for row in sorted(rows, key=_world_and_size):
        place = f"{row['world']}, {row['learner'].upper()}, {row['epsilon']:g}"
        numbers = f"{row['experts']}, {row['steps']}, {row['transitions']}"
        line = [row["observations"], _other_than_usual(row), by_seed(row["returns"])]
        groups.setdefault((place, numbers), []).append(line)
    lines = []
    for head, found in groups.items():
        usual_first = sorted(found, key=lambda line: line[1] != "")
        heads = [head] + [("", "")] * (len(found) - 1)
        lines += [[*names, *line] for names, line in zip(heads, usual_first, strict=True)]
    names = ["world, learner, ε", "experts, steps, transitions", "observations"]
    return table([*names, "other than usual", "return (by seed)"], lines, words=4)


def _world_and_size(row: Row) -> tuple[bool, int, int, float, int]:
    """LunarLander before CartPole, CQL first, many transitions before few; raw, then in units."""
    learner = ("cql", "bcq", "bc").index(row["learner"])
    seen = [RAW, IN_UNITS, row["observations"]].index(row["observations"])
    return row["world"] != "LunarLander", learner, -row["transitions"], row["epsilon"], seen


def _other_than_usual(row: Row) -> str:
    """What a row has that is neither the default nor shown in the table's other columns."""
    words = [
        option(name, value)
        for name, value in row["options"].items()
        if (name, value) != ("reward_scale", reward_scale_of(row["world"]))
    ]
    words += other_rate(row)
    if row["hidden"] != list(defaults.HIDDEN_SIZES):
        words.append(f"networks {shown(row['hidden'])}")
    if row["weight_decay"]:
        words.append(option("weight decay", row["weight_decay"]))
    return ", ".join(words)


def reward_scale_of(world: str) -> float:
    stated = units_of(get_world(world))
    assert stated is not None
    return stated.reward_scale


def by_epsilon(
    rows: Sequence[Row],
    name_of: Callable[[Row], str],
    epsilons: Sequence[float | None],
    earned: Callable[[list[float]], str] = by_seed,
) -> list[list[str]]:
    """A line for each name, what it earned at each ε; two runs of one name are an error."""
    lines: dict[str, dict[float | None, str]] = {}
    for row in rows:
        line = lines.setdefault(name_of(row), {})
        assert row["epsilon"] not in line, f"two runs are called {name_of(row)}"
        line[row["epsilon"]] = earned(row["returns"])
    return [[name, *(line.get(e, "") for e in epsilons)] for name, line in lines.items()]


def bcq() -> str:
    """What noise costs BCQ on LunarLander, and what was tried against it."""
    usual = [
        row
        for row in private()
        if (row["world"], row["round"]) == ("LunarLander", "units")
        and row["learner"] in ("bcq", "cql")
        and (row["observations"], row["transitions"]) == (IN_UNITS, 16)
    ]

    def name_of(row: Row) -> str:
        if row["without_privacy"]:
            return "neither noise nor clipping"
        words = [] if row["learner"] == "bcq" else [row["learner"].upper()]
        tried = row["options"].items()
        words += [option(name, value) for name, value in tried if name in AGAINST_NOISE]
        words += ["one network for both parts"] if row.get("one_network") else []
        weight = row.get("imitation_weight")
        words += [f"imitation weighted {weight:g}"] if weight else []
        words += [f"{row['steps']} steps"] if row["steps"] != DP_SGD.private_steps else []
        return ", ".join(words + other_rate(row)) or "as usual"

    head = ["LunarLander, BCQ, return (by seed)", "no noise", *at_epsilons((5, 1))]
    return table(head, by_epsilon(usual + in_round("bcq"), name_of, (None, 5.0, 1.0)))


def rewards() -> str:
    """LunarLander's rewards as they are, as its units have them, and between."""

    def name_of(row: Row) -> str:
        scale = option("reward_scale", row["options"]["reward_scale"])
        words = ", ".join([row["learner"].upper(), scale, *other_rate(row)])
        return " | ".join([REWARDS[row["round"]], words, str(row["transitions"])])

    epsilons = (1.0, 2.5, 5.0)
    head = ["experts", "LunarLander, return (by seed)", "transitions", *at_epsilons(epsilons)]
    return table(head, by_epsilon(in_round(*REWARDS), name_of, epsilons), words=2)


def noise() -> str:
    """What BCQ earns with less noise, and what makes no difference."""
    looked_at = in_round(NOISE)
    scales = {row["options"]["reward_scale"] for row in looked_at}
    rows = [
        row
        for row in in_round("rewards, seed 7") + looked_at
        if (row["learner"], row["transitions"]) == ("bcq", 16)
        and row["options"]["reward_scale"] in scales
    ]

    def name_of(row: Row) -> str:
        rest = {name: value for name, value in row["options"].items() if name != "reward_scale"}
        if row["clip_norm"] != DP_SGD.clip_norm:
            rest["clip_norm"] = row["clip_norm"]
        named = {"reward_scale": row["options"]["reward_scale"]} | rest
        words = [option(name, value) for name, value in named.items()]
        if (row.get("optimiser") or "adam") != "adam":
            return ", ".join([*words, f"{row['optimiser']} at {row['rate']:g}"])
        return ", ".join(words + other_rate(row))

    head = ["LunarLander, BCQ, return (by seed)", "no noise", *at_epsilons((50, 5, 1))]
    return table(head, sorted(by_epsilon(rows, name_of, (None, 50.0, 5.0, 1.0))))


def rates() -> str:
    """What several rates earned beside the one that the rule gives, with raw observations."""
    groups: dict[str, list[Row]] = {}
    for row in private():
        kept = (row["learner"], row["hidden"], row["averaging"]) == ("cql", [64, 64], 0.995)
        plain = (row["observations"], row["weight_decay"], row["steps"]) == (RAW, 0, 8000)
        numbers = (row["transitions"], row["clip_norm"])
        if kept and plain and numbers in ((16, 1.0), (64, 0.1)):
            same = f"{row['world']}, {row['experts']}, {row['epsilon']:g}"
            groups.setdefault(f"{same}; {numbers[0]}, {numbers[1]:g}", []).append(row)
    lines = []
    for same, rows in groups.items():
        # A later round took more seeds, the first ones again.
        ordered = sorted(rows, key=lambda row: (row["rate"], len(row["returns"])))
        earned = {row["rate"]: row["returns"] for row in ordered}
        if len(earned) > 1:
            each = "; ".join(f"{rate:g}: {by_seed(got)}" for rate, got in earned.items())
            of_mean = noise_of_mean(_step_of(rows[0]), rows[0]["steps"])
            lines.append([*same.split("; "), f"{of_mean:.2g}", f"{_rule(rows[0]):.2g}", each])
    head = ["world, experts, ε", "transitions, clip norm", "noise of the mean", "the rule's rate"]
    return table([*head, "rate: return (by seed)"], lines, words=2)
