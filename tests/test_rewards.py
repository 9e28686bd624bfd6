"""How LunarLander's rewards are scaled: what the page on the reproduction says is in the files."""

import importlib
from typing import Any

import numpy as np
import pytest
from docs_pages import Page


@pytest.fixture(scope="module", name="page")
def _page() -> Page:
    return Page("make_reproduction")


def rewards_of(which: str, transitions: int = 16) -> dict[tuple[str, float, float], Any]:
    """Returns by learner, reward scale and ε, at the rule's rate."""
    tables = importlib.import_module("tuning_tables")
    return {
        (one["learner"], one["options"]["reward_scale"], one["epsilon"]): np.array(one["returns"])
        for one in tables.measured()
        if (one["round"], one["transitions"]) == (which, transitions) and not tables.other_rate(one)
    }


@pytest.mark.usefixtures("page")
def test_with_few_transitions_larger_rewards_are_better_at_epsilon_1_and_worse_at_5() -> None:
    small, seven = rewards_of("rewards"), rewards_of("rewards, seed 7")
    assert (len(small), len(seven)) == (8, 16)
    for learner in ("cql", "bcq"):
        assert all(small[learner, 1.0, 1.0] > small[learner, 0.1, 1.0])
        for found in (small, seven):
            assert found[learner, 1.0, 1.0].mean() > found[learner, 0.1, 1.0].mean()
            assert found[learner, 1.0, 5.0].mean() < found[learner, 0.1, 5.0].mean()
    for scale, cost in ((0.2, 25), (0.3, 76)):
        assert all(seven["bcq", scale, 1.0] > seven["bcq", 0.1, 1.0])
        lost = seven["bcq", 0.1, 5.0] - seven["bcq", scale, 5.0]
        assert round(lost.mean()) == cost
        assert sum(lost > 20) == 1
    for learner, cost in (("cql", 43), ("bcq", 232)):
        assert round((seven[learner, 0.1, 5.0] - seven[learner, 1.0, 5.0]).mean()) == cost
    assert seven["cql", 0.3, 1.0].mean() > seven["cql", 1.0, 1.0].mean()
    assert abs((seven["cql", 0.3, 5.0] - seven["cql", 0.1, 5.0]).mean()) < 3
    for epsilon in (1.0, 5.0):
        assert seven["bcq", 0.03, epsilon].mean() < seven["bcq", 0.1, epsilon].mean()


@pytest.mark.usefixtures("page")
def test_as_a_fit_has_it_no_scale_is_the_best_of_bcq_at_every_epsilon() -> None:
    found = rewards_of("rewards, seed 7", 64)
    means = {key: round(returns.mean()) for key, returns in found.items()}
    bcq = {e: [means["bcq", scale, e] for scale in (0.1, 0.2, 0.3)] for e in (1.0, 2.5, 5.0)}
    assert bcq == {1.0: [57, 167, 174], 2.5: [163, 167, 141], 5.0: [202, 160, 81]}
    cql = [means["cql", scale, e] for scale in (0.1, 0.2, 0.3) for e in (1.0, 2.5, 5.0)]
    assert (min(cql), max(cql)) == (190, 207)
    assert [round(sum(bcq[e][one] for e in bcq) / 3) for one in (0, 1)] == [141, 165]
    gained, lost = (found["bcq", 0.2, e] - found["bcq", 0.1, e] for e in (1.0, 5.0))
    assert all(gained > 0)
    assert (round(gained.mean()), round(lost.mean())) == (110, -42)
    assert sum(lost < -30) == 1


def at_full_scale(name: str) -> dict[tuple[str, str], Any]:
    """Mean fractions of the bound at every ε, by learner and scale."""
    tables = importlib.import_module("reward_tables")
    return {
        (learner, scale): np.array(
            [tables.scores(learner, scale, name, epsilon).mean() for epsilon in tables.EPSILONS]
        )
        / tables.scores(learner, tables.USUAL, tables.NON_PRIVATE).mean()
        for learner in ("cql", "bcq")
        for scale in tables.SCALES
    }


@pytest.mark.usefixtures("page")
def test_averaged_bcq_earns_less_with_larger_rewards_the_less_noise_there_is() -> None:
    tables = importlib.import_module("reward_tables")
    earned = at_full_scale(tables.AVERAGED)
    assert earned["bcq", "0.2"].round(2).tolist() == [0.83, 0.83, 0.79, 0.77, 0.70]
    assert all(np.diff(earned["bcq", "0.2"] - earned["bcq", "0.1"]) < 0)
    assert all(np.diff(earned["bcq", "0.3"]) < 0)
    assert all(np.diff(earned["bcq", "0.1"]) > 0)
    for scale in tables.SCALES:
        assert all(earned["cql", scale] > 0.955)
        quiet = tables.scores("bcq", scale, tables.NON_PRIVATE).mean()
        assert quiet / tables.scores("bcq", tables.USUAL, tables.NON_PRIVATE).mean() > 0.98


@pytest.mark.usefixtures("page")
def test_one_transition_earns_more_with_larger_rewards_and_then_more_than_the_mean() -> None:
    tables = importlib.import_module("reward_tables")
    earned, averaged = (at_full_scale(name) for name in (tables.ONE_EACH, tables.AVERAGED))
    for learner in ("cql", "bcq"):
        assert all(earned[learner, "0.1"] < earned[learner, "0.2"])
        assert all(earned[learner, "0.2"] < earned[learner, "0.3"])
    tens = [round(earned[learner, scale][-1], 2) for learner, scale in earned]
    assert tens == [0.35, 0.42, 0.51, 0.36, 0.50, 0.76]
    more = earned["bcq", "0.3"] > averaged["bcq", "0.3"]
    assert more[-2:].all()


@pytest.mark.usefixtures("page")
def test_twice_the_rules_rate_does_not_mend_larger_rewards() -> None:
    tables, usual = importlib.import_module("tuning_tables"), rewards_of("rewards, seed 7")
    fast = {
        one["options"]["reward_scale"]: one["returns"]
        for one in tables.measured()
        if one["round"] in tables.REWARDS and tables.other_rate(one) == ["2 times the rule's rate"]
    }
    assert fast.keys() == {0.1, 0.3}
    for scale, earned in fast.items():
        assert np.mean(earned) < usual["bcq", scale, 5.0].mean()


@pytest.mark.usefixtures("page")
def test_without_noise_nothing_is_lost_and_a_quarter_of_it_costs_as_much() -> None:
    earned = importlib.import_module("reward_tables").earned_by_bcq()
    means = {name: {e: round(np.mean(got)) for e, got in at.items()} for name, at in earned.items()}
    usual, larger = means["reward scale 0.1"], means["reward scale 0.3"]
    assert usual == {None: 251, 50.0: 207, 5.0: 207, 1.0: 8}
    assert larger == {None: 256, 5.0: 130, 1.0: 157}
    for at in (earned["reward scale 0.1"], earned["reward scale 0.3"]):
        assert min(at[None]) > max(at[5.0])
    alike = {
        "reward scale 0.1, clip norm 0.03": (1.0, usual),
        "reward scale 0.1, clip norm 0.3": (5.0, usual),
        "reward scale 0.1, momentum at 0.12": (5.0, usual),
        "reward scale 0.3, huber threshold 3": (5.0, larger),
    }
    for name, (epsilon, other) in alike.items():
        assert abs(means[name][epsilon] - other[epsilon]) < 4
    slow, fast = (means[f"reward scale 0.1, {times} times the rule's rate"] for times in (0.5, 2))
    assert max(slow[5.0], fast[5.0]) < usual[5.0]
    assert (slow[50.0], means["reward scale 0.1, momentum at 0.12"][50.0]) == (214, 221)
    assert fast[50.0] == 150
    assert means["reward scale 0.3, 0.5 times the rule's rate"][5.0] == 182
