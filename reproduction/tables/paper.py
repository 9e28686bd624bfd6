"""Tables of the paper's evaluation run again, and of what its settings cost."""

import warnings
from collections.abc import Iterator
from fnmatch import fnmatch
from itertools import product
from typing import Any, Final

import numpy as np
from scipy import stats

from quorum_rl.envs import get_world
from quorum_rl.evaluation import Interval, as_fraction_of, summarise
from reproduction.columns import (
    AVERAGED,
    BOTH,
    EPSILONS,
    NON_PRIVATE,
    ONE_EACH,
    RELEASE_ONLY,
    best_settings,
)
from reproduction.published import published_cost, true_cost
from reproduction.published_settings import BEST_SETTINGS, PublishedSetting, published_split
from reproduction.results import Facts, study
from reproduction.tables.formatting import (
    at_epsilons,
    brackets,
    fraction,
    hundredths,
    number,
    provenance,
    table,
    world_and_learner,
)

WORLDS: Final = ("CartPole", "Acrobot", "LunarLander", "HIV")
LEARNERS: Final = ("cql", "bcq")
OURS: Final = (BOTH, AVERAGED)
CLAIMED: Final = ("5", "7.5", "10")  # where the paper has best settings
AS_PUBLISHED: Final = "as published"
# How the paper's settings were run, and how the names of such results end.
WAYS: Final = {
    "Adam": "",
    "plain steps": "-sgd",
    "Adam, raw rewards": "-rewards-1.0",
    "plain steps, raw rewards": "-rewards-1.0-sgd",
}
REWARD_SCALES: Final = {"0.1": "", "0.2": "-rewards-0.2", "0.3": "-rewards-0.3"}
ALMOST: Final = 0.95  # of what is learned without privacy, at ε = 5
AGREED_AFTER: Final = (1, 5, 10, 20, 40)

# What the paper prints at ε = 10 in its ablation of p, as fractions of its non-private baseline.
PAPER_ON_P: Final = {
    ("LunarLander", "cql"): {0.0: "infeasible", 0.8: "0.75", 1.0: "0.67"},
    ("LunarLander", "bcq"): {0.0: "infeasible", 0.5: "0.57", 1.0: "0.54"},
    ("CartPole", "cql"): {0.0: "0.67", 0.8: "1.03", 1.0: "0.92"},
    ("CartPole", "bcq"): {0.0: "0.31", 0.5: "0.99", 1.0: "0.67"},
}


def found(stage: str) -> list[Facts]:
    """The results of a stage, in the order of the worlds; `*` in a stage stands for anything."""
    every = [facts for name, facts in study("paper").items() if fnmatch(name, f"*-{stage}")]
    return sorted(every, key=lambda facts: (WORLDS.index(facts["world"]), facts["stage"]))


def result(world: str, stage: str) -> Facts | None:
    return study("paper").get(f"{world.lower()}-{stage}")


def comparison(world: str, learner: str) -> Facts:
    return study("paper")[f"{world.lower()}-{learner}-comparison"]


def comparisons_run() -> Iterator[tuple[str, str, Facts]]:
    """World, learner and comparison."""
    for world, learner in product(WORLDS, LEARNERS):
        yield world, learner, comparison(world, learner)


def method_of(facts: Facts, name: str, epsilon: float | None = None) -> Facts | None:
    """One of a result's methods; None if it was not run."""
    for method in facts["methods"]:
        if (method["name"], method["epsilon"]) == (name, epsilon):
            return dict(method)
    return None


def scores(facts: Facts, name: str, epsilon: float | None = None) -> Any:
    """A method's scores by seed."""
    method = method_of(facts, name, epsilon)
    assert method is not None, (name, epsilon)
    return np.array(method["scores"])


def bound_of(world: str, learner: str) -> Any:
    """The scores by seed of what is learned without privacy."""
    return scores(comparison(world, learner), NON_PRIVATE)


def as_published(world: str, learner: str, epsilon: str) -> dict[str, Facts]:
    """The paper's method at its claimed ε in each way in which it was run."""
    each = {way: result(world, f"{learner}-published-{epsilon}{end}") for way, end in WAYS.items()}
    return {way: facts["methods"][0] for way, facts in each.items() if facts and facts["methods"]}


def experts() -> str:
    rows = []
    for facts in populations():
        quantiles, shares = facts["return_quantiles"], facts["agreement"]["mean"]
        shown = [number(quantiles[key]) for key in ("0.05", "0.25", "0.5", "0.75", "0.95")]
        agreed = [f"{shares[step - 1]:.2g}" for step in AGREED_AFTER if step <= len(shares)]
        name = f"{facts['world']}, {facts['experts']}"
        rows.append([name, number(facts["mean_return"]), " / ".join(shown), ", ".join(agreed)])
    names = ["world, experts", "mean return", "5 / 25 / 50 / 75 / 95%"]
    return table([*names, f"agreement after {', '.join(map(str, AGREED_AFTER))} steps"], rows)


def populations() -> list[Facts]:
    return [facts for facts in found("experts") if facts["stage"] == "experts"]


def comparisons() -> str:
    return "\n\n".join(_comparison(facts) for facts in found("*-comparison"))


def _comparison(facts: Facts) -> str:
    """Fractions of the bound without privacy, and returns, method by method."""
    normalised = get_world(facts["world"]).facts.normalised
    now = {
        (method["name"], method["epsilon"]): np.array([normalised(r) for r in method["returns"]])
        for method in facts["methods"]
    }
    earned = {(method["name"], method["epsilon"]): method for method in facts["methods"]}
    asked = [m for m in facts["methods"] + facts["infeasible"] if m["epsilon"] is not None]
    epsilons = sorted({method["epsilon"] for method in asked})
    bound = now[NON_PRIVATE, None]
    rows = []
    for name in dict.fromkeys(method["name"] for method in asked):
        cells = [
            f"{fraction(now[name, epsilon], bound)}, {number(earned[name, epsilon]['mean_return'])}"
            if (name, epsilon) in now
            else "infeasible"
            for epsilon in epsilons
        ]
        rows.append([name, *cells])
    title = (
        f"**{world_and_learner(facts)}**: {facts['experts']} experts, {facts['seeds']} seeds, the "
        f"bound without privacy earns {number(earned[NON_PRIVATE, None]['mean_return'])} "
        f"(score {bound.mean():.2f}{brackets(summarise(bound).mean_interval)}). "
        f"{provenance(facts)}."
    )
    head = ["fraction of the bound [95%], return", *at_epsilons(epsilons)]
    return f"{title}\n\n{table(head, rows)}"


def goals() -> str:
    """As good at a valid ε = 1 as the paper's method at its claimed 10; and 0.95 at ε = 5."""
    rows = []
    for world, learner, ours in comparisons_run():
        bound, claimed = bound_of(world, learner), as_published(world, learner, "10")
        way, best = max(claimed.items(), key=lambda named: named[1]["score"])
        theirs = np.array(best["scores"])
        for name in OURS:
            at_one, at_five = scores(ours, name, 1.0), scores(ours, name, 5.0)
            gap, between = _difference(at_one / bound.mean(), theirs / bound.mean())
            almost = summarise(as_fraction_of(at_five, bound))
            assert almost.mean_interval is not None
            rows.append(
                [
                    f"{world}, {learner.upper()}",
                    name,
                    _best_in_the_paper(world, learner),
                    f"{fraction(theirs, bound)}, {way}",
                    fraction(at_one, bound),
                    hundredths(gap, "+") + brackets(between),
                    _verdict(gap, between, 0.0),
                    fraction(at_five, bound),
                    _verdict(almost.mean, almost.mean_interval, ALMOST),
                ]
            )
    head = ["world, learner", "ours", "in the paper, claimed ε = 10", "theirs run again"]
    head += ["ours, valid ε = 1", "difference", "as good?", "ours, ε = 5", f"at least {ALMOST}?"]
    return table(head, rows, words=2)


def _best_in_the_paper(world: str, learner: str) -> str:
    """What the paper prints for its best setting at ε = 10, where it prints that."""
    printed = PAPER_ON_P.get((world, learner), {})
    return next((text for share, text in printed.items() if 0 < share < 1), "")


def _difference(ours: Any, theirs: Any) -> tuple[float, Interval]:
    """Of the means, with Welch's interval: seeds are as many as each was given."""
    with warnings.catch_warnings():  # that seeds are all alike, which they may well be
        warnings.simplefilter("ignore", RuntimeWarning)
        ends = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    return float(ours.mean() - theirs.mean()), Interval(float(ends.low), float(ends.high))


def _verdict(mean: float, interval: Interval, goal: float) -> str:
    if mean >= goal:
        return "met" if interval.low >= goal else "met on average"
    return "missed" if interval.high < goal else "missed on average"


def published() -> str:
    """The paper's best settings trained to the end of their budget by its own account."""
    rows = []
    for world, learner, _ in comparisons_run():
        for way, end in WAYS.items():
            each = [result(world, f"{learner}-published-{epsilon}{end}") for epsilon in CLAIMED]
            if any(each):
                cells = [_published(facts, bound_of(world, learner)) for facts in each]
                printed = _best_in_the_paper(world, learner)
                rows.append([f"{world}, {learner.upper()}", way, *cells, printed])
    head = ["fraction of the bound [95%]; steps with and without noise; released", "how run"]
    head += [f"claimed ε = {epsilon}" for epsilon in CLAIMED]
    return table([*head, "in the paper, ε = 10"], rows, words=2)


def _published(facts: Facts | None, bound: Any) -> str:
    if facts is None or not facts["methods"]:
        return "not run" if facts is None else "infeasible"
    (method,) = facts["methods"]
    steps = f"{method['private_steps']:,} + {method['plain_steps']:,}"
    some = method["released"]
    released = f"; {min(some)} to {max(some)}" if some else ""
    return f"{fraction(method['scores'], bound)}; {steps}{released}"


def counts() -> str:
    """Fewer experts, as a fraction of what is learned without privacy from as many."""
    rows = []
    for world, learner, everyone in comparisons_run():
        fewer = [result(world, f"{learner}-{count}-experts") for count in (1000, 2000)]
        if not any(fewer):
            continue
        who = f"{world}, {learner.upper()}"
        for name, epsilon in product((ONE_EACH, *OURS), (1.0, 5.0, 10.0)):
            cells = [_count(facts, name, epsilon) for facts in (*fewer, everyone)]
            rows.append([who, f"{name}, ε = {epsilon:g}", *cells])
        some = [_count(facts, AS_PUBLISHED, 10.0) for facts in fewer]
        every = as_published(world, learner, "10")["Adam"]["scores"]
        every_one = fraction(every, bound_of(world, learner))
        rows.append([who, "as published, claimed ε = 10", *some, every_one])
    head = ["world, learner", "method", "1000 experts", "2000 experts", "3000 experts"]
    return table(head, rows, words=2)


def _count(facts: Facts | None, name: str, epsilon: float) -> str:
    if facts is None or method_of(facts, name, epsilon) is None:
        return "not run"
    return fraction(scores(facts, name, epsilon), scores(facts, NON_PRIVATE))


def ablation() -> str:
    """The paper's p in short trainings, and our split of ε."""
    parts = []
    for facts in found("*-ablation"):
        world, learner = facts["world"], facts["configuration"]["learner"]
        each = {way: result(world, f"{learner}-ablation{end}") for way, end in WAYS.items()}
        run = {way: others for way, others in each.items() if others}
        rows = [
            [
                f"{method['name']}, ε = {method['epsilon']:g}",
                *(_ablated(way, others, method) for way, others in run.items()),
                _printed(facts, method),
            ]
            for method in facts["methods"] + facts["infeasible"]
        ]
        where = "; ".join(f"{way}: {provenance(others)}" for way, others in run.items())
        title = f"**{world_and_learner(facts)}**, {facts['seeds']} seeds. {where}."
        head = ["setting, as a fraction of the bound [95%]", *run, "in the paper"]
        parts.append(f"{title}\n\n{table(head, rows)}")
    return "\n\n".join(parts)


def _ablated(way: str, facts: Facts, named: Facts) -> str:
    """A setting run in a way; nothing for our own methods with plain steps, which have Adam."""
    method = method_of(facts, named["name"], named["epsilon"])
    if method is None:
        where = {(other["name"], other["epsilon"]) for other in facts["infeasible"]}
        return "infeasible" if (named["name"], named["epsilon"]) in where else ""
    if "sgd" in WAYS[way] and method["settings"].get("optimiser") != "sgd":
        return ""
    return fraction(method["scores"], bound_of(facts["world"], facts["configuration"]["learner"]))


def _printed(facts: Facts, method: Facts) -> str:
    """What the paper prints of its p, all at ε = 10."""
    printed = PAPER_ON_P.get((facts["world"], facts["configuration"]["learner"]), {})
    tried = method["name"].split(",")[0] if method["epsilon"] == 10 else None
    return next((text for share, text in printed.items() if tried == f"p = {share:g}"), "")


def seconds() -> str:
    """How long the stages of a world took."""
    rows = []
    for world, learner, ours in comparisons_run():
        sizes = f"{len(ours['methods'])} methods, {ours['seeds']} seeds"
        timed = (result(world, "experts"), ours, result(world, f"{learner}-published-10"))
        each = ["not run" if facts is None else f"{facts['seconds']:.0f}" for facts in timed]
        rows.append([f"{world}, {learner.upper()}, {sizes}", *each])
    head = ["world, learner", "demonstrations, returns, agreement", "comparison"]
    return table([*head, "published, ε = 10"], rows)


def rewards_at_full_scale() -> str:
    """LunarLander's private steps by reward scale, as fractions of the bound in its units."""
    rows = []
    for learner, name in product(LEARNERS, (AVERAGED, ONE_EACH)):
        bound = bound_of("LunarLander", learner)
        for scale, end in REWARD_SCALES.items():
            facts = study("paper")[f"lunarlander-{learner}-comparison{end}"]
            cells = [fraction(scores(facts, name, epsilon), bound) for epsilon in EPSILONS]
            rest = fraction(scores(facts, NON_PRIVATE), bound)
            rows.append([f"{learner.upper()}, {name}", scale, *cells, rest])
    head = ["LunarLander", "reward scale", *at_epsilons(EPSILONS), "without privacy"]
    return table(head, rows, words=2)


def setting_of(world: str, learner: str, epsilon: str) -> PublishedSetting:
    (found_one,) = (
        setting for setting in best_settings(world, learner) if setting.epsilon == float(epsilon)
    )
    return found_one


def costs() -> str:
    """What of the ε of every best setting can be computed."""
    rows = []
    for world, learner in product(WORLDS, LEARNERS):
        settings = [setting_of(world, learner, epsilon) for epsilon in CLAIMED]
        each = [hundredths(true_cost(setting).total_epsilon) for setting in settings]
        rows.append([f"{world}, {learner.upper()}", *each])
    return table(
        ["ε that can be computed", *(f"claimed ε = {epsilon}" for epsilon in CLAIMED)], rows
    )


def accounts() -> str:
    """What every best setting claims and costs, stage by stage."""
    rows = []
    for setting in BEST_SETTINGS:
        split, cost = published_split(setting), true_cost(setting)
        noise = "–" if setting.noise_multiplier is None else f"{setting.noise_multiplier:g}"
        of_all = cost.total_epsilon / published_cost(setting).epsilon
        rows.append(
            [
                f"{setting.world} {setting.learner} {setting.epsilon:g}",
                f"{setting.private_share:g}, {setting.batch_size}, {noise}, "
                f"{setting.iterations or '–'}",
                f"{split.release_epsilon:g} + {split.training_epsilon:g}",
                f"{cost.steps:,}" if cost.steps else "–",
                f"{cost.release_epsilon:.2f}" if setting.iterations else "–",
                f"{cost.training_epsilon:.2f}" if cost.steps else "–",
                "–" if cost.training_ratio is None else f"{cost.training_ratio:.2f}",
                f"{cost.total_epsilon:.2f}",
                f"{of_all:.2f}",
            ]
        )
    head = ["setting", "p, b, s, T", "claimed ε1 + ε2", "steps", "ε1 exact", "ε2 true"]
    return table([*head, "true/claimed ε2", "true total", "true/claimed total"], rows, words=9)


def releases() -> str:
    """Where the paper's method is its release alone: that, and a release of ours at the same ε."""
    rows = []
    for world, learner, epsilon in product(WORLDS, LEARNERS, CLAIMED):
        if setting_of(world, learner, epsilon).private_share:
            continue
        ours = method_of(comparison(world, learner), RELEASE_ONLY, float(epsilon))
        assert ours is not None
        cells = []
        for method in (as_published(world, learner, epsilon)["Adam"], ours):
            cells.append(f"{min(method['released']):,} to {max(method['released']):,}")
            cells.append(fraction(method["scores"], bound_of(world, learner)))
        rows.append([f"{world}, {learner.upper()}, {epsilon}", *cells])
    head = ["world, learner, ε", "released as published", "fraction of the bound [95%]"]
    return table([*head, "released by our account", "fraction of the bound [95%]"], rows)
