"""Tables of how the defaults of private training were chosen, from results/tuning/*.json.

Each file has runs program by program, in the form that `benchmarks/tuning.py` writes.
"""

import json
import math
from dataclasses import dataclass
from typing import Any, Final

from rendering import RESULTS, table

from quorum_rl.envs import get_world, units_of
from quorum_rl.learners import defaults
from quorum_rl.pipeline import FitSettings
from quorum_rl.pipeline.learner_rule import OBSERVED
from quorum_rl.pipeline.plan import noise_of_mean, rate_for
from quorum_rl.training.contributions import Gradient
from quorum_rl.training.mechanism import PrivateStep

Row = dict[str, Any]
Maps = dict[str, list[Row]]
RAW: Final = "raw"
IN_UNITS: Final = "in the world's units"
NEAR: Final = 2.0  # a rate is near the rule's if they differ by this factor at most
# Rounds on how LunarLander's rewards are scaled, and whose: no other choice was made by them.
REWARDS: Final = {"rewards": "100 small ones", "rewards, seed 7": "999, seed 7"}
NOISE: Final = "noise, seed 7"  # what noise costs BCQ with rewards scaled in two ways


@dataclass(frozen=True)
class Choice:
    """A number of private training: others that were tried, and the default."""

    name: str
    key: str
    others: tuple[Any, ...]
    ours: Any


DEFAULTS: Final = FitSettings(method="dp-sgd").filled()  # what these runs were to choose
UNITS: Final = Choice("observations", "observations", (RAW,), IN_UNITS)
CHOICES: Final = (
    Choice("networks", "hidden", ([256, 256], [32, 32]), list(defaults.HIDDEN_SIZES)),
    Choice("transitions per expert", "transitions", (16,), DEFAULTS.transitions_per_expert),
    Choice("clip norm", "clip_norm", (1.0, 0.3), DEFAULTS.clip_norm),
    Choice("private steps", "steps", (2000,), DEFAULTS.private_steps),
    Choice("averaging", "averaging", (0.999,), DEFAULTS.averaging),
    UNITS,
)


def measured() -> list[Row]:
    """Every setting that was run, with its returns by seed."""
    rows = []
    for path in sorted((RESULTS / "tuning").glob("*.json"), reverse=True):
        facts = json.loads(path.read_text())
        for program in facts["programs"]:
            which = {"world": facts["world"], "round": program["round"]}
            settings = _observed(program["configuration"], facts.get("maps", {}))
            rows += [which | settings | row for row in program["rows"]]
    return rows


def _observed(configuration: Row, maps: Maps) -> Row:
    """A configuration with its observation map by name, and apart from the learner's options."""
    options = dict(configuration["options"])
    seen = {one: options.pop(one) for one in OBSERVED if one in options}
    names = [name for name, roundings in maps.items() if seen in roundings] if seen else [RAW]
    apart = {"observations": names[0], "weight_decay": configuration.get("weight_decay", 0.0)}
    return configuration | {"options": options} | apart


def step_of(row: Row) -> PrivateStep:
    """The step as it would be with as many experts as the noise was for."""
    return PrivateStep(
        sampling_rate=row["sampling_rate"],
        clip_norm=row["clip_norm"],
        noise_multiplier=row["noise_multiplier"],
        expected_batch=row["sampling_rate"] * row["experts"],
        chunk=1,
        contribution=Gradient(transitions=row["transitions"]),
    )


def private() -> list[Row]:
    """All that learned from private steps alone."""
    return [row for row in measured() if row["epsilon"] is not None and not both_stages(row)]


def both_stages(row: Row) -> Row | None:
    """How a row's plan was split, where there was a release too: its noise is then not here."""
    found: Row | None = row.get("both_stages")
    return found


def near_the_rule(row: Row) -> bool:
    return abs(math.log(row["rate"] / rate_for(step_of(row), row["steps"]))) <= math.log(NEAR)


def alike(row: Row, choice: Choice) -> str:
    """All that a row is beside the choice. Rates of other numbers of steps fall with their root.

    Units came in a round of their own, in which the rule's rate has more digits.
    """
    left_out = {choice.key, "returns", "noise_multiplier"}
    if choice == UNITS:
        left_out.add("round")
        row = row | {"rate": f"{row['rate']:.2g}"}
    if choice.key == "steps":
        left_out.add("rate")
        row = row | {"carried": f"{row['rate'] * math.sqrt(row['steps']):.3g}"}
    return json.dumps({key: value for key, value in row.items() if key not in left_out})


def pairs(choice: Choice, other: Any) -> list[tuple[Row, Row]]:
    """Runs that differ in this choice alone: the other's, and ours."""
    others = [row for row in private() if row["round"] not in (*REWARDS, NOISE)]
    near = [row for row in others if near_the_rule(row) and not row["weight_decay"]]
    if choice != UNITS:  # the others were made before units
        near = [row for row in near if row["observations"] == RAW]
    ours = {alike(row, choice): row for row in near if row[choice.key] == choice.ours}
    theirs = [row for row in near if row[choice.key] == other]
    both = [(row, ours[alike(row, choice)]) for row in theirs if alike(row, choice) in ours]
    return sorted(both, key=_place)


def _place(pair: tuple[Row, Row]) -> tuple[bool, bool, float]:
    """CQL first, and LunarLander before CartPole."""
    ours = pair[1]
    return ours["learner"] != "cql", ours["world"] != "LunarLander", ours["epsilon"]


def mean(values: list[float]) -> str:
    return f"{round(sum(values) / len(values))}".replace("-", "−")


def by_seed(returns: list[float]) -> str:
    each = ", ".join(mean([one]) for one in returns)
    return f"{mean(returns)} ({each})" if len(returns) > 1 else mean(returns)


def shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"({', '.join(map(str, value))})" if isinstance(value, list) else f"{value:g}"


def choices() -> str:
    """What each choice earned over another, over runs that differ in nothing else."""
    lines = [line for choice in CHOICES for other in choice.others for line in _over(choice, other)]
    head = ["choice", "world, learner, ε", "pairs of runs", "better", "before", "after"]
    return f"{table(head, lines, words=2)}\n\n{_how_many()}"


def _how_many() -> str:
    """How many settings were looked at, in words."""
    worlds = [row["world"] for row in measured()]
    each = ", ".join(f"{worlds.count(world)} on {world}" for world in dict.fromkeys(worlds))
    return f"In all {len(worlds)} settings were run: {each}."


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
    """LunarLander at the rule's rates, by seed, the last round before units and then with them.

    And the bound of each learner.
    """
    here = [row for row in private() if row["world"] == "LunarLander"]
    rows = [row for row in here if row["round"] == 4]
    rows += [ours for _, ours in pairs(UNITS, RAW) if ours in here and _is_chosen(ours)]
    epsilons = sorted({row["epsilon"] for row in rows})
    lines: dict[str, dict[float, str]] = {}
    for row in rows:
        slow = f", averaging {row['averaging']:g}" if row["averaging"] != DEFAULTS.averaging else ""
        seen = "" if row["observations"] == RAW else f", {row['observations']}"
        name = f"{row['learner'].upper()}, {row['steps']} steps{slow}{seen}"
        lines.setdefault(name, {})[row["epsilon"]] = by_seed(row["returns"])
    bounds = [
        row
        for row in measured()
        if row["without_privacy"] and row["world"] == "LunarLander" and row["round"] != "bcq"
    ]
    said = "; ".join(
        f"{row['learner'].upper()} at {row['rate']:g} {by_seed(row['returns'])}" for row in bounds
    )
    made = table(
        ["LunarLander, return (by seed)", *(f"ε = {epsilon:g}" for epsilon in epsilons)],
        [[name, *(earned.get(e, "not run") for e in epsilons)] for name, earned in lines.items()],
    )
    steps, hidden = bounds[0]["steps"], shown(bounds[0]["hidden"])
    return f"{made}\n\nWithout privacy, {steps} steps, networks {hidden}: {said}."


def _is_chosen(row: Row) -> bool:
    """Whether all numbers of a row that was run in units are today's defaults."""
    return all(row[choice.key] == choice.ours for choice in CHOICES)


def units() -> str:
    """Every run of the round in which observation maps were tried, and what it is beside."""
    before = [theirs for theirs, _ in pairs(UNITS, RAW) if theirs["round"] != "units"]
    rows = before + [row for row in private() if row["round"] == "units"]
    groups: dict[tuple[str, str], list[list[str]]] = {}
    for row in sorted(rows, key=_world_and_size):
        place = f"{row['world']}, {row['learner'].upper()}, {row['epsilon']:g}"
        numbers = f"{row['experts']}, {row['steps']}, {row['transitions']}"
        found = [row["observations"], _beside(row), by_seed(row["returns"])]
        groups.setdefault((place, numbers), []).append(found)
    lines = []
    for head, all_found in groups.items():
        usual_first = sorted(all_found, key=lambda line: line[1] != "")
        heads = [head] + [("", "")] * (len(all_found) - 1)
        lines += [[*one, *line] for one, line in zip(heads, usual_first, strict=True)]
    names = ["world, learner, ε", "experts, steps, transitions", "observations"]
    return table([*names, "other than usual", "return (by seed)"], lines, words=4)


def _world_and_size(row: Row) -> tuple[bool, int, int, float, int]:
    """LunarLander before CartPole, CQL first, many transitions before few; raw, then in units."""
    learner = ("cql", "bcq", "bc").index(row["learner"])
    seen = [RAW, IN_UNITS, row["observations"]].index(row["observations"])
    return row["world"] != "LunarLander", learner, -row["transitions"], row["epsilon"], seen


def _beside(row: Row) -> str:
    """What a row has that is neither the default nor said in the table's other columns."""
    said = [
        said_of(name, value)
        for name, value in row["options"].items()
        if (name, value) != ("reward_scale", units_reward(row["world"]))
    ]
    said += other_rate(row)
    if row["hidden"] != list(defaults.HIDDEN_SIZES):
        said.append(f"networks {shown(row['hidden'])}")
    if row["weight_decay"]:
        said.append(f"weight decay {row['weight_decay']:g}")
    return ", ".join(said)


TRIED = ("threshold", "target_rate")  # options of BCQ, against noise


def bcq() -> str:
    """What noise costs BCQ on LunarLander, and what was tried against it."""
    usual = [
        row
        for row in private()
        if (row["world"], row["round"]) == ("LunarLander", "units")
        and row["learner"] in ("bcq", "cql")
        and (row["observations"], row["transitions"]) == (IN_UNITS, 16)
    ]
    lines: dict[str, dict[float | None, str]] = {}
    for row in usual + [row for row in measured() if row["round"] == "bcq"]:
        said = [] if row["learner"] == "bcq" else [row["learner"].upper()]
        said += [said_of(name, value) for name, value in row["options"].items() if name in TRIED]
        said += ["one network for both parts"] if row.get("one_network") else []
        weight = row.get("imitation_weight")
        said += [f"imitation weighted {weight:g}"] if weight else []
        said += [f"{row['steps']} steps"] if row["steps"] != DEFAULTS.private_steps else []
        said += other_rate(row)
        said = ["neither noise nor clipping"] if row["without_privacy"] else said
        _add(row, lines.setdefault(", ".join(said) or "as usual", {}))
    head = ["LunarLander, BCQ, return (by seed)", "no noise", "ε = 5", "ε = 1"]
    return table(
        head, [[name, *(got.get(e, "") for e in (None, 5.0, 1.0))] for name, got in lines.items()]
    )


def _add(row: Row, line: dict[float | None, str]) -> None:
    """What a row earned, in the place of its ε, which nothing else may have."""
    assert row["epsilon"] not in line, f"two runs at {row['epsilon']} are called alike"
    line[row["epsilon"]] = by_seed(row["returns"])


def rewards() -> str:
    """LunarLander's rewards as they are, as its units have them, and between."""
    lines: dict[tuple[str, str, str], dict[float | None, str]] = {}
    for row in measured():
        if row["round"] in REWARDS:
            said = [row["learner"].upper(), said_of("reward_scale", row["options"]["reward_scale"])]
            said += other_rate(row)
            key = REWARDS[row["round"]], ", ".join(said), str(row["transitions"])
            _add(row, lines.setdefault(key, {}))
    epsilons = (1.0, 2.5, 5.0)
    rows = [[*key, *(got.get(epsilon, "") for epsilon in epsilons)] for key, got in lines.items()]
    head = ["experts", "LunarLander, return (by seed)", "transitions"]
    return table([*head, *(f"ε = {epsilon:g}" for epsilon in epsilons)], rows, words=2)


def said_of(name: str, value: float) -> str:
    """A setting in words."""
    return f"{name.replace('_', ' ')} {value:g}"


def other_rate(row: Row) -> list[str]:
    """How the rate of private steps differs from the rule's, if it does."""
    if row["epsilon"] is None or both_stages(row):
        return []
    times = row["rate"] / rate_for(step_of(row), row["steps"])
    return [] if f"{times:.1g}" == "1" else [f"{times:.1g} times the rule's rate"]


def units_reward(world: str) -> float:
    stated = units_of(get_world(world))
    assert stated is not None
    return stated.reward_scale


def rates() -> str:
    """What several rates earned beside the one that the rule gives, with raw observations."""
    groups: dict[str, list[Row]] = {}
    for row in private():
        seen = (row["observations"], row["weight_decay"]) == (RAW, 0)
        kept = (row["learner"], row["hidden"], row["averaging"]) == ("cql", [64, 64], 0.995)
        numbers = (row["transitions"], row["clip_norm"])
        if seen and kept and row["steps"] == 8000 and numbers in ((16, 1.0), (64, 0.1)):
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
