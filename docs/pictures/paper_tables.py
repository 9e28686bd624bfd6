"""Tables of the paper's evaluation run again, from results/paper/*.json."""

import json
import warnings
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from rendering import RESULTS, hundredths, provenance, table
from scipy import stats

from quorum_rl.evaluation import Interval, as_fraction_of, summarise
from reproduction.columns import AVERAGED, BOTH, NON_PRIVATE, ONE_EACH

Facts = dict[str, Any]

WORLDS: Final = ("CartPole", "Acrobot", "LunarLander", "HIV")
LEARNERS: Final = ("cql", "bcq")
OURS: Final = (BOTH, AVERAGED)
CLAIMED: Final = ("5", "7.5", "10")  # where the paper has best settings
OPTIMISERS: Final = {"Adam": "adam", "plain steps": "sgd"}
# How the paper's settings were run, and how the names of such results end.
WAYS: Final = {
    "Adam": "",
    "plain steps": "-sgd",
    "Adam, raw rewards": "-rewards-1.0",
    "plain steps, raw rewards": "-rewards-1.0-sgd",
}
ALMOST: Final = 0.95  # of what is learned without privacy, at ε = 5

# What the paper prints at ε = 10 in its ablation of p, as fractions of its non-private baseline.
PAPER_ON_P: Final = {
    ("LunarLander", "cql"): {0.0: "infeasible", 0.8: "0.75", 1.0: "0.67"},
    ("LunarLander", "bcq"): {0.0: "infeasible", 0.5: "0.57", 1.0: "0.54"},
    ("CartPole", "cql"): {0.0: "0.67", 0.8: "1.03", 1.0: "0.92"},
    ("CartPole", "bcq"): {0.0: "0.31", 0.5: "0.99", 1.0: "0.67"},
}


def found(stage: str) -> list[Facts]:
    """The results of a stage, in the order of the worlds; `*` in a stage stands for anything."""
    read = [json.loads(path.read_text()) for path in (RESULTS / "paper").glob(f"*-{stage}.json")]
    return sorted(read, key=lambda one: (WORLDS.index(one["world"]), one["stage"]))


def result(world: str, stage: str) -> Facts | None:
    path = RESULTS / "paper" / f"{world.lower()}-{stage}.json"
    return json.loads(path.read_text()) if path.exists() else None


def in_a_way(world: str, stage: str, way: str) -> Facts | None:
    """The result of a stage of the paper's settings that were run in one of the ways."""
    return result(world, f"{stage}{WAYS[way]}")


def bound_of(world: str, learner: str) -> Any:
    """The scores by seed of what is learned without privacy."""
    comparison = result(world, f"{learner}-comparison")
    assert comparison is not None
    return scores(comparison, NON_PRIVATE)


def number(value: float) -> str:
    return f"{value:.2e}" if abs(value) >= 1e5 else f"{value:.4g}".replace("-", "−")


def scores(facts: Facts, name: str, epsilon: float | None = None) -> Any:
    """A method's scores by seed; None if it was not run."""
    for method in facts["methods"]:
        if (method["name"], method["epsilon"]) == (name, epsilon):
            return np.array(method["scores"])
    return None


def fraction(of: Any, bound: Any) -> str:
    """Scores as a fraction of the bound's mean, with their interval."""
    made = summarise(as_fraction_of(of, bound))
    return hundredths(made.mean) + between(made.mean_interval)


def between(interval: Interval | None) -> str:
    if interval is None:
        return ""
    return f" [{hundredths(interval.low)}, {hundredths(interval.high)}]"


def comparisons() -> Iterator[tuple[str, str, Facts]]:
    """World, learner and comparison, as far as run."""
    for world in WORLDS:
        for learner in LEARNERS:
            ours = result(world, f"{learner}-comparison")
            if ours is not None:
                yield world, learner, ours


def theirs(world: str, learner: str, epsilon: str) -> dict[str, Facts]:
    """The paper's method at its claimed ε in each way in which it was run."""
    each = {way: in_a_way(world, f"{learner}-published-{epsilon}", way) for way in WAYS}
    return {name: one["methods"][0] for name, one in each.items() if one and one["methods"]}


def goals() -> str:
    """As good at a valid ε = 1 as the paper's method at its claimed 10; and 0.95 at ε = 5."""
    rows = []
    for world, learner, ours in comparisons():
        bound = scores(ours, NON_PRIVATE)
        claimed = theirs(world, learner, "10")
        printed = best_in_the_paper(world, learner)
        for name in OURS:
            at_one, at_five = scores(ours, name, 1.0), scores(ours, name, 5.0)
            rest = summarise(as_fraction_of(at_five, bound))
            assert rest.mean_interval is not None
            rows.append(
                [
                    f"{world}, {learner.upper()}",
                    name,
                    printed,
                    *_beside(claimed, at_one, bound),
                    fraction(at_five, bound),
                    verdict(rest.mean, rest.mean_interval, ALMOST),
                ]
            )
    head = ["world, learner", "ours", "in the paper, claimed ε = 10", "theirs run again"]
    head += ["ours, valid ε = 1", "difference", "as good?", "ours, ε = 5", f"at least {ALMOST}?"]
    return table(head, rows, words=2)


def best_in_the_paper(world: str, learner: str) -> str:
    """What the paper prints for its best setting at ε = 10, where it prints that."""
    printed = PAPER_ON_P.get((world, learner), {})
    return next((printed[p] for p in printed if 0 < p < 1), "")


def _beside(claimed: dict[str, Facts], ours: Any, bound: Any) -> list[str]:
    """Theirs in the way that did best, ours, the difference, whether ours is as good."""
    if not claimed:
        return ["not run", fraction(ours, bound), "", ""]
    way, method = max(claimed.items(), key=lambda one: one[1]["score"])
    made = np.array(method["scores"])
    gap = difference(ours / bound.mean(), made / bound.mean())
    return [
        f"{fraction(made, bound)}, {way}",
        fraction(ours, bound),
        hundredths(gap[0], "+") + between(gap[1]),
        verdict(gap[0], gap[1], 0.0),
    ]


def difference(ours: Any, theirs: Any) -> tuple[float, Interval]:
    """Of the means, with Welch's interval: seeds are as many as each was given."""
    with warnings.catch_warnings():  # that seeds of one are all alike, which they may well be
        warnings.simplefilter("ignore", RuntimeWarning)
        found = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    return float(ours.mean() - theirs.mean()), Interval(float(found.low), float(found.high))


def verdict(mean: float, interval: Interval, goal: float) -> str:
    if mean >= goal:
        return "met" if interval.low >= goal else "met on average"
    return "missed" if interval.high < goal else "missed on average"


def published() -> str:
    """The paper's best settings trained to the end of their budget by its own account."""
    rows = []
    for world, learner, ours in comparisons():
        bound, printed = scores(ours, NON_PRIVATE), best_in_the_paper(world, learner)
        for way in WAYS:
            stages = [f"{learner}-published-{epsilon}" for epsilon in CLAIMED]
            each = [in_a_way(world, stage, way) for stage in stages]
            if any(each):
                cells = ["not run" if one is None else _published(one, bound) for one in each]
                rows.append([f"{world}, {learner.upper()}", way, *cells, printed])
    head = ["fraction of the bound [95%]; steps with and without noise; released", "how run"]
    head += [f"claimed ε = {epsilon}" for epsilon in CLAIMED]
    return table([*head, "in the paper, ε = 10"], rows, words=2)


def _published(one: Facts, bound: Any) -> str:
    if not one["methods"]:
        return "infeasible"
    (method,) = one["methods"]
    steps = f"{method['private_steps']:,} + {method['plain_steps']:,}"
    given = (
        f"; {min(method['released'])} to {max(method['released'])}" if method["released"] else ""
    )
    return f"{fraction(np.array(method['scores']), bound)}; {steps}{given}"


def counts() -> str:
    """Fewer experts, as a fraction of what is learned without privacy from as many."""
    rows = []
    for world in WORLDS:
        for learner in LEARNERS:
            stages = ("1000-experts", "2000-experts", "comparison")
            each = [result(world, f"{learner}-{stage}") for stage in stages]
            if each[0] is None and each[1] is None:
                continue
            who = f"{world}, {learner.upper()}"
            for name in (ONE_EACH, *OURS):
                for epsilon in (1.0, 5.0, 10.0):
                    cells = [_count(one, name, epsilon) for one in each]
                    rows.append([who, f"{name}, ε = {epsilon:g}", *cells])
            fewer = [_count(one, "as published", 10.0) for one in each[:2]]
            whole = theirs(world, learner, "10").get("Adam")
            all_of_them = whole and fraction(np.array(whole["scores"]), bound_of(world, learner))
            rows.append([who, "as published, claimed ε = 10", *fewer, all_of_them or "not run"])
    head = ["world, learner", "method", "1000 experts", "2000 experts", "3000 experts"]
    return table(head, rows, words=2)


def _count(one: Facts | None, name: str, epsilon: float) -> str:
    names = {(method["name"], method["epsilon"]) for method in one["methods"]} if one else set()
    if one is None or (name, epsilon) not in names:
        return "not run"
    return fraction(scores(one, name, epsilon), scores(one, NON_PRIVATE))


def ablation() -> str:
    """The paper's p in short trainings, and our split of ε."""
    parts = []
    for one in found("*-ablation"):
        world, learner = one["world"], one["configuration"]["learner"]
        bound = bound_of(world, learner)
        each = {way: in_a_way(world, f"{learner}-ablation", way) for way in WAYS}
        run = {way: facts for way, facts in each.items() if facts}
        rows = [
            [
                f"{m['name']}, ε = {m['epsilon']:g}",
                *(_ablated(way, facts, m, bound) for way, facts in run.items()),
                _in_the_paper(one, m),
            ]
            for m in one["methods"] + one["infeasible"]
        ]
        where = "; ".join(f"{way}: {provenance(facts)}" for way, facts in run.items())
        title = f"**{world}, {learner.upper()}**, {one['seeds']} seeds. {where}."
        head = ["setting, as a fraction of the bound [95%]", *run, "in the paper"]
        parts.append(f"{title}\n\n{table(head, rows)}")
    return "\n\n".join(parts)


def _ablated(way: str, facts: Facts, method: Facts, bound: Any) -> str:
    """A setting run in a way; nothing for our own methods with plain steps, which have Adam."""
    for one in facts["methods"] + facts["infeasible"]:
        if (one["name"], one["epsilon"]) == (method["name"], method["epsilon"]):
            ours = one.get("settings", {}).get("optimiser") != "sgd"
            plain = "sgd" in WAYS[way] and "scores" in one
            return "" if plain and ours else _tried(one, bound)
    return ""


def _tried(method: Facts, bound: Any) -> str:
    if "scores" not in method:
        return "infeasible"
    return fraction(np.array(method["scores"]), bound)


def _in_the_paper(one: Facts, method: Facts) -> str:
    """What it prints of its p, all at ε = 10."""
    printed = PAPER_ON_P.get((one["world"], one["configuration"]["learner"]), {})
    tried = method["name"].split(",")[0] if method["epsilon"] == 10 else None
    return next((printed[p] for p in printed if tried == f"p = {p:g}"), "")


def seconds() -> str:
    """How long the stages of a world took."""
    rows = []
    for world, learner, ours in comparisons():
        longest = result(world, f"{learner}-published-10")
        sizes = f"{len(ours['methods'])} methods, {ours['seeds']} seeds"
        timed = (result(world, "experts"), ours, longest)
        each = ["not run" if one is None else f"{one['seconds']:.0f}" for one in timed]
        rows.append([f"{world}, {learner.upper()}, {sizes}", *each])
    head = ["world, learner", "demonstrations, returns, agreement", "comparison"]
    return table([*head, "published, ε = 10"], rows)
