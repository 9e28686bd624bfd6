"""Fitting a policy's values, privately, on those who do not judge it.

Fitted-Q evaluation of a policy π whose actions are known before it begins. Of every step it asks

    Q(s, a) = what the expert earned from there until π does otherwise, at s',  + Q(s', π(s')),

without the second term where the episode was over before. That holds for the true values in the
mean: as long as both do the same, what the expert earned is what π would have earned. An episode
that is cut at the horizon is over: a return is of so many steps.

Values are linear in their weights w, so an expert's own steps are equations A w = b. In a private
step each expert solves them for itself, pulled towards the weights so far, and contributes the
change (A + λ)⁻¹ (b − A w). What it brings to each step is made once: (A + λ)⁻¹ b and (A + λ)⁻¹ A.
"""

from dataclasses import dataclass
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from quorum_rl.judging.values import (
    STEPS,
    Beside,
    Values,
    ValueUnits,
    beside,
    pieces,
)
from quorum_rl.learners import Learner
from quorum_rl.logs import Demonstrations
from quorum_rl.policy import Policy
from quorum_rl.training import (
    ExpertData,
    PrivateStep,
    Recipe,
    TrainsEverything,
    begin,
    default_chunk,
    new_run,
    optimiser_of,
    result_of,
    shuffled_schedule,
    train,
)
from quorum_rl.types import Transition

Array = jax.Array
Floats = npt.NDArray[np.float64]

RIDGE: Final = 0.003
CLIP_NORM: Final = 0.3
SERVER_RATE: Final = 1.5  # falling to zero; the mean over the last half is the result


@dataclass(frozen=True)
class Weights:
    """What is learned: as many numbers, from zero. It has no loss, for experts solve equations."""

    count: int

    def init(self, key: Array, observation_size: int, action_count: int) -> Array:
        del key, observation_size, action_count
        return jnp.zeros(self.count)

    def init_target(self, params: Array) -> tuple[()]:
        del params
        return ()

    def update_target(self, params: Array, target: tuple[()], step: Array) -> tuple[()]:
        del params, target, step
        return ()


@dataclass(frozen=True)
class Solved(TrainsEverything):
    """The change of the weights that solves an expert's own equations, as `solved` made them."""

    transitions: int = 1

    def __call__(
        self, learner: Learner, params: Array, target: Any, transitions: Transition, key: Array
    ) -> Array:
        del learner, target, key
        wanted, by_weights = jnp.split(transitions.observation[0], [params.size])
        return by_weights.reshape(params.size, params.size) @ params - wanted


def value_step(noise_multiplier: float, expected: float) -> PrivateStep:
    """One private step of the fit, with about so many experts."""
    return PrivateStep(
        sampling_rate=1.0,
        clip_norm=CLIP_NORM,
        noise_multiplier=noise_multiplier,
        expected_batch=max(expected, 1.0),
        chunk=default_chunk(max(round(expected), 1), 1.0, 1),
        contribution=Solved(),
    )


def fitted_values(
    others: Demonstrations,
    policy: Policy,
    units: ValueUnits,
    step: PrivateStep,
    noise_key: npt.NDArray[np.uint32],
) -> Values:
    """The policy's values, from those who do not judge it.

    Guarantee: with a fresh secret key they are as private as `step.event(STEPS)` says: what an
    expert brings is a function of its own log and the policy.
    """
    learner: Any = Weights(units.weights)
    recipe = Recipe(
        learner=learner, private_shape=step.shape, optimiser=optimiser_of("sgd"), averaging=1.0
    )
    run = new_run(
        noise_key=noise_key,
        public_key=np.zeros(2, np.uint32),
        learning_rate=SERVER_RATE,
        rates_end=STEPS,
        average_from=STEPS // 2,
        private=step,
    )
    runs = jax.device_put(jax.tree.map(lambda leaf: np.asarray(leaf)[None], run))
    last = train(
        recipe,
        runs,
        begin(recipe, runs, 1, 1),
        shuffled_schedule(STEPS, 0, 0),
        private=value_data(others, policy, units),
        plain=None,
    )
    return Values(units, np.asarray(result_of(recipe, last))[0])


def value_data(others: Demonstrations, policy: Policy, units: ValueUnits) -> ExpertData:
    """What every expert brings, as the one thing that it shows; behind all one who shows nothing,
    in case there are no others. SENSITIVE.

    Guarantee: what an expert brings is a function of its own log and the policy, to the bit.
    """
    count, size = others.expert_count, units.weights
    shown = np.zeros((count + 1, size + size**2), np.float32)
    with np.errstate(over="ignore"):
        for expert in range(count):
            shown[expert] = solved(beside(others, expert, policy), units)
    none = np.zeros(count + 1, np.float32)
    columns = jax.device_put(
        (shown, none.astype(np.int32), none, none[:, None], none > 0, none > 0)
    )
    offsets = np.minimum(np.arange(count + 2), count).astype(np.int32)
    return ExpertData(Transition(*columns), jax.device_put(offsets))


def solved(row: Beside, units: ValueUnits) -> Floats:
    """An expert's (A + λ)⁻¹ b, and behind it (A + λ)⁻¹ A; no numbers where there is no solution,
    which counts as nothing.

    Shapes: (size + size²,).
    """
    size, count = units.weights, len(row.action)
    matrix, wanted = np.zeros((size, size)), np.zeros(size)

    def of(steps: Any, action: Any) -> Floats:
        """The features of these steps, each with an action."""
        return units.features_of(row.observations[steps], row.time[steps], action)

    for some in pieces(count):
        following = row.following[some]
        own = of(some, row.action[some])
        after = of(following, row.preferred[following]) * ~row.over[some, None]
        matrix += own.T @ (own - after) / count
        wanted += own.T @ row.earned[some] / (count * units.reward)
    try:
        found = np.linalg.solve(
            matrix + RIDGE * np.eye(len(matrix)), np.column_stack([wanted, matrix])
        )
    except np.linalg.LinAlgError:
        return np.full(len(matrix) * (len(matrix) + 1), np.nan)
    return np.concatenate([found[:, 0], found[:, 1:].ravel()])
