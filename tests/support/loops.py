"""Small recipes and runs for the tests of the training loop. Equal ones share a program."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from quorum_rl.learners import Cql
from quorum_rl.training.contributions import Gradient
from quorum_rl.training.loop import begin, train
from quorum_rl.training.mechanism import PrivateStep
from quorum_rl.training.recipe import (
    Recipe,
    Run,
    Schedule,
    StepKind,
    TrainState,
    new_run,
    optimiser_of,
)
from quorum_rl.training.sources import PrivateData
from quorum_rl.types import Transition

A, B, NO = StepKind.PLAIN, StepKind.PRIVATE, StepKind.NOTHING
MIXED = np.array([A, B, B, A, A, B, A, B, B, A, B, A], np.int8)
CHUNK = 4
AVERAGING = 0.8
LEARNER = Cql(hidden_sizes=(6,), target_interval=3, target_rate=0.4)
PRIVATE_STEP = PrivateStep(
    sampling_rate=0.5,
    clip_norm=0.7,
    noise_multiplier=0.6,
    expected_batch=5.5,
    chunk=4,
    contribution=Gradient(transitions=2),
)


def recipe_of(**choices: Any) -> Recipe:
    shape, size = PRIVATE_STEP.shape, 5
    usual = {"private_shape": shape, "batch_size": size, "averaging": AVERAGING}
    if "optimiser" in choices:
        choices["optimiser"] = optimiser_of(choices["optimiser"])
    return Recipe(learner=LEARNER, **{**usual, **choices})


def run_of(seed: int, step: PrivateStep | None = PRIVATE_STEP, **numbers: Any) -> Run:
    rates = {"learning_rate": 1e-2, "private_learning_rate": 2e-2}
    return new_run(
        noise_key=[seed, 17], public_key=[seed, 23], private=step, **{**rates, **numbers}
    )


def stacked(runs: list[Run]) -> Run:
    made: Run = jax.tree.map(lambda *leaves: jnp.stack(leaves), *runs)
    return made


def trained(
    recipe: Recipe,
    runs: list[Run],
    schedule: Schedule,
    data: PrivateData | None,
    plain: Transition | None,
    *,
    chunk: int = CHUNK,
    after_chunk: Callable[[TrainState, int], bool | None] | None = None,
    start: TrainState | None = None,
) -> TrainState:
    """The runs from `start`, or their first step, to the last of the schedule."""
    together = stacked(runs)
    return train(
        recipe,
        together,
        begin(recipe, together, 3, 4) if start is None else jax.tree.map(jnp.array, start),
        schedule,
        private=data,
        plain=plain,
        after_chunk=after_chunk,
        steps_at_once=chunk,
    )


def kept(standing: TrainState) -> TrainState:
    """A copy in NumPy, which no later step takes over."""
    copy: TrainState = jax.tree.map(np.array, standing)
    return copy


def same_bits(found: Any, other: Any) -> None:
    jax.tree.map(np.testing.assert_array_equal, found, other)


def nearly_the_same(found: Any, other: Any) -> None:
    """But for rounding, which other programs may do otherwise."""
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), found, other)
