"""Learners solve a small task from logs, and what they learn is what they say they learn.

The task: five places in a row. A sign, seen everywhere, says whether action 0 or action 1 leads
forward; the other leads back. Every step costs one until somebody steps beyond the last place: then
the episode terminates. A third action is never logged, and as all others cost, it tempts.
"""

import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pytest

from quorum_rl.learners import Bc, Bcq, Cql, DenseLearner, DoubleDqn, Learner, Networks
from quorum_rl.learners.learner import outputs_of
from quorum_rl.types import Transition

Train: TypeAlias = Callable[[DenseLearner, Transition, int], Networks]

OWN_LEARNER = Path(__file__).parents[2] / "examples" / "own_learner.py"
PLACES, DISCOUNT = 5, 0.9
SIGNS, WHERE = (grid.ravel() for grid in np.meshgrid([0, 1], range(PLACES), indexing="ij"))


def observations(signs: npt.NDArray[Any], places: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    return np.column_stack([2.0 * signs - 1.0, np.eye(PLACES + 1)[places]]).astype(np.float32)


def logs(times_forward: int, times_back: int) -> Transition:
    """Every state, its two actions logged so many times each.

    All that does not terminate is truncated, as at the end of a released prefix.
    """
    forward = np.repeat([True, False], [times_forward, times_back])
    sign, place = (np.repeat(column, len(forward)) for column in (SIGNS, WHERE))
    forward = np.tile(forward, len(SIGNS))
    after = np.maximum(place + np.where(forward, 1, -1), 0)
    return Transition(
        observation=jnp.asarray(observations(sign, place)),
        action=jnp.asarray(np.where(forward, sign, 1 - sign)),
        reward=jnp.full(len(after), -1.0),
        next_observation=jnp.asarray(observations(sign, after)),
        terminated=jnp.asarray(after == PLACES),
        truncated=jnp.asarray(after != PLACES),
    )


def greedy(learner: Learner, params: Networks) -> list[int]:
    return learner.act(params, jnp.asarray(observations(SIGNS, WHERE))).tolist()


@pytest.mark.parametrize(
    "learner",
    [
        Cql(hidden_sizes=(16, 16), discount=DISCOUNT, alpha=0.1, target_rate=0.1),
        Bcq(hidden_sizes=(16, 16), discount=DISCOUNT, target_rate=0.1),
    ],
    ids=lambda learner: learner.name,
)
def test_cql_and_bcq_go_forward_though_logs_do_so_only_half_the_time(
    learner: DenseLearner, train: Train
) -> None:
    assert greedy(learner, train(learner, logs(1, 1), 3)) == SIGNS.tolist()


def optimal_values() -> npt.NDArray[np.float64]:
    """What going back (column 0) and forward (column 1) is worth in each place."""
    values = np.zeros((PLACES + 1, 2))
    for _ in range(200):
        best = values.max(axis=1)
        for place in range(PLACES):
            values[place] = -1 + DISCOUNT * best[[max(place - 1, 0), place + 1]]
    return values


def test_double_dqn_finds_the_optimal_values(train: Train) -> None:
    learner = DoubleDqn(
        hidden_sizes=(16, 16), discount=DISCOUNT, target_interval=10, target_rate=1.0
    )
    params = train(learner, logs(1, 1), 2)
    assert greedy(learner, params) == SIGNS.tolist()
    seen = jnp.asarray(observations(SIGNS, WHERE))
    values = np.asarray(outputs_of(params, seen)["action_values"])
    by_direction = np.where(SIGNS[:, None] == 1, values, values[:, ::-1])
    np.testing.assert_allclose(by_direction, optimal_values()[WHERE], atol=0.2)


def test_double_dqn_falls_for_the_action_that_nobody_tried(train: Train) -> None:
    learner = DoubleDqn(hidden_sizes=(16, 16), discount=DISCOUNT, target_rate=0.1)
    assert 2 in greedy(learner, train(learner, logs(1, 1), 3))


def test_behaviour_cloning_does_what_is_done_most(train: Train) -> None:
    learner = Bc(hidden_sizes=(16, 16))
    assert greedy(learner, train(learner, logs(3, 2), 3)) == SIGNS.tolist()
    assert greedy(learner, train(learner, logs(2, 3), 3)) == (1 - SIGNS).tolist()


def test_the_example_of_an_own_learner_trains_when_run_as_a_program(
    capsys: pytest.CaptureFixture[str],
) -> None:
    runpy.run_path(str(OWN_LEARNER), run_name="__main__")
    learned, random = map(float, re.findall(r"\d+", capsys.readouterr().out))
    assert learned > 4 * random  # it was 304 against 22
