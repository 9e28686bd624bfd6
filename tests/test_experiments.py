"""Comparisons of methods: paired, seed by seed, and what they write down."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cartpole import alike
from remembered_plans import remembered_plans

from quorum_rl.envs import get_world
from quorum_rl.errors import QuorumError
from quorum_rl.learners import get_learner
from quorum_rl.logs import collect
from quorum_rl.pipeline import Comparison, FitSettings, Method, compare
from quorum_rl.pipeline.driver import joined
from quorum_rl.types import Released, Transition

__all__ = ["remembered_plans"]  # a fixture for all tests here

EXPERTS = 200
PRIVATE = FitSettings(
    method="dp-sgd", private_steps=60, transitions_per_expert=2, falling_rates=False
)
SELECTIVE = replace(PRIVATE, method="selective", batch_size=8)
METHODS = [
    Method(name="ours", settings=SELECTIVE, epsilon=20.0),
    Method(name="theirs", settings=PRIVATE, epsilon=20.0),
    Method(name="bound", settings=FitSettings(method="non-private", release_only_steps=3)),
]


def compared(seeds: int, first_seed: int = 0, methods: list[Method] = METHODS) -> Comparison:
    world = get_world("CartPole")
    acting = alike(EXPERTS, 4).smoothed(0.1)
    log, experts = collect(acting, world, trajectories=8, minimum_experts=EXPERTS - 1, seed=0)
    learner = get_learner("cql", hidden_sizes=())
    chosen: dict[str, Any] = {"delta": 1e-3, "episodes": 2}
    return compare(
        experts, log, world, learner, methods, seeds=seeds, first_seed=first_seed, **chosen
    )


@pytest.fixture(scope="module", name="both")
def _both() -> Comparison:
    return compared(seeds=2)


def test_a_seed_does_the_same_whoever_is_trained_beside_it(both: Comparison) -> None:
    """But for its episodes, which follow from its place: the policies are judged by releases."""
    others = compared(seeds=2, first_seed=1, methods=METHODS[:1])
    assert others["ours"].released[0] == both["ours"].released[1]
    assert len(set(both["ours"].released)) == 2  # each seed has a release of its own


def test_the_same_comparison_again_finds_the_same(both: Comparison) -> None:
    again = compared(seeds=2, methods=METHODS[1:2])
    np.testing.assert_array_equal(again["theirs"].returns, both["theirs"].returns)


def test_what_is_written_down_is_json_and_says_who_paid_what(both: Comparison) -> None:
    facts = json.loads(json.dumps(both.to_json()))
    assert facts["world"] == "CartPole"
    assert facts["seeds"] == 2
    paid = {method["name"]: (method["epsilon"], method["delta"]) for method in facts["methods"]}
    assert paid == {"ours": (20.0, 1e-3), "theirs": (20.0, 1e-3), "bound": (None, None)}
    for method in facts["methods"]:
        assert method["score"] == pytest.approx(np.mean(method["scores"]))
        low, high = method["interval"]
        assert low <= method["score"] <= high
    normalised = both.world.facts.normalised
    bound = facts["methods"][2]
    assert bound["score"] == pytest.approx(normalised(bound["mean_return"]), rel=1e-6)


@pytest.mark.parametrize(
    ("settings", "epsilon"), [(PRIVATE, None), (FitSettings(method="non-private"), 1.0)]
)
def test_only_a_method_without_privacy_has_no_epsilon(
    settings: FitSettings, epsilon: float | None
) -> None:
    with pytest.raises(QuorumError, match="give an epsilon to all but non-private"):
        Method(name="odd", settings=settings, epsilon=epsilon)


def test_releases_are_laid_in_a_row_each_with_its_own_part() -> None:
    def of(numbers: list[int]) -> Released:
        column = np.array(numbers, np.float32)
        none = np.zeros(len(numbers), bool)
        fields: Any = (column[:, None], none.astype(int), column, column[:, None], none, none)
        return Released(Transition(*fields), np.array([0, len(numbers)]), 1, 2, 5)

    whole, parts = joined([of([1, 2]), of([]), of([3])])
    assert parts == [(0, 2), (2, 2), (2, 3)]
    assert whole.reward.tolist() == [1, 2, 3, 0]  # up to a power of two
