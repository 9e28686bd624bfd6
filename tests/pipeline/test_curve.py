"""The loss on released data: what it is, and that a run which goes on repeats no line."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax

from quorum_rl.learners import Bc
from quorum_rl.pipeline.training_stage import MOST_TRANSITIONS, LossCurve
from quorum_rl.training.recipe import Recipe, TrainState
from quorum_rl.types import Released, Transition

LEARNER = Bc(hidden_sizes=())
RECIPE = Recipe(learner=LEARNER, private_shape=None, averaging=0.5)


def released(count: int) -> Released:
    rng = np.random.default_rng(count)
    states = rng.normal(size=(count + 1, 3)).astype(np.float32)
    ends = jnp.zeros(count, bool)
    seen = Transition(
        jnp.asarray(states[:-1]),
        jnp.asarray(rng.integers(2, size=count), jnp.int32),
        jnp.zeros(count),
        jnp.asarray(states[1:]),
        ends,
        ends,
    )
    return Released(seen, np.array([0, count]), 3, 2, horizon=count)


def standing(seed: int) -> TrainState:
    """One run, whose average is what counts."""
    params, average = (
        jax.tree.map(lambda leaf: leaf[None], LEARNER.init(jax.random.key(one), 3, 2))
        for one in (seed, seed + 1)
    )
    return TrainState(params, {}, ({}, {}), average, jnp.zeros(1, jnp.int32))


def lines(path: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("count", [7, 2 * MOST_TRANSITIONS])
def test_the_loss_is_the_mean_over_released_transitions_of_what_training_would_return(
    count: int, tmp_path: Path
) -> None:
    path, data, at = tmp_path / "metrics.jsonl", released(count), standing(0)
    LossCurve(path, RECIPE, data, begun_at=0).add(at, 250)
    (layer,) = at.average["policy"]
    logits = np.asarray(data.transitions.observation) @ layer.weight[0] + layer.bias[0]
    losses = -log_softmax(logits, axis=1)[np.arange(count), np.asarray(data.transitions.action)]
    chosen = np.round(np.linspace(0, count - 1, min(count, MOST_TRANSITIONS))).astype(int)
    (line,) = lines(path)
    assert line["step"] == 250
    assert line["loss_on_released"] == pytest.approx(losses[chosen].mean(), rel=1e-5)


def test_a_run_that_goes_on_takes_again_what_was_not_saved_and_a_line_that_was_cut_off(
    tmp_path: Path,
) -> None:
    path, data = tmp_path / "metrics.jsonl", released(7)
    first = LossCurve(path, RECIPE, data, begun_at=0)
    for step in (250, 500, 750):
        first.add(standing(step), step)
    with path.open("a") as file:
        file.write('{"step": 10')
    before = lines_until_cut(path)
    again = LossCurve(path, RECIPE, data, begun_at=500)
    assert lines(path) == before[:2]
    again.add(standing(750), 750)
    assert lines(path) == before


def lines_until_cut(path: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in path.read_text().splitlines()[:-1]]
