"""One noisy sum of rows, by the one private mechanism that training has: vectors for gradients."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from quorum_rl.training.contributions import TrainsEverything
from quorum_rl.training.data import ExpertData
from quorum_rl.training.mechanism import (
    PrivateStep,
    StepNumbers,
    StepShape,
    default_chunk,
    private_mean,
)
from quorum_rl.training.noise import rounded_noise
from quorum_rl.training.randomness import Array, keys_of, step_key
from quorum_rl.types import Transition

Floats = npt.NDArray[np.float64]


def noisy_sum(
    rows: Floats, *, noise_multiplier: float, expected: float, noise_key: npt.NDArray[np.uint32]
) -> Floats:
    """The sum of one row from each expert, of whom about `expected` are declared.

    Guarantee: with a fresh secret key it is as private as `sum_step(...).event(1)` says, for
    experts of whom one takes part or not: a row that is longer than 1 is clipped.

    Shapes: `rows` (experts, size), `noise_key` (2,), words; (size,).
    """
    step, size = sum_step(noise_multiplier, expected), rows.shape[1]
    noise = np.asarray(rounded_noise(noise_key[None], [step.noise_scale], 1, 1, size))[0, 0]
    mean = _mean(step.shape, _as_data(rows), noise_key, noise, step.numbers)
    made: Floats = np.asarray(mean, np.float64) * step.expected_batch
    return made


def sum_step(noise_multiplier: float, expected: float) -> PrivateStep:
    """The private step that such a sum is.

    Raises:
        QuorumError: for so much noise, or so many experts, that nothing would be left of a row.
    """
    return PrivateStep(
        sampling_rate=1.0,
        clip_norm=1.0,
        noise_multiplier=noise_multiplier,
        expected_batch=max(expected, 1.0),
        chunk=default_chunk(max(round(expected), 1), 1.0, 1),
        contribution=Row(),
    )


@dataclass(frozen=True)
class Row(TrainsEverything):
    """An expert's one row, as the contribution to a sum."""

    transitions: int = 1

    def __call__(
        self, learner: Any, params: Any, target: Any, transitions: Transition, key: Array
    ) -> Any:
        del learner, params, target, key
        return transitions.observation[0]


def _as_data(rows: Floats) -> ExpertData:
    """Experts with one transition each, which shows their row; behind them one who has none.

    So there is a row also where there is nobody. Who has no transition is never drawn.
    """
    padded = np.pad(rows, ((0, 1), (0, 0))).astype(np.float32)
    none = np.zeros(len(padded), np.float32)
    columns = jax.device_put((padded, none.astype(np.int32), none, padded, none > 0, none > 0))
    offsets = np.minimum(np.arange(len(padded) + 1), len(rows)).astype(np.int32)
    return ExpertData(Transition(*columns), jax.device_put(offsets))


@partial(jax.jit, static_argnums=0)
def _mean(
    shape: StepShape, data: ExpertData, key: Array, noise: Array, numbers: StepNumbers
) -> Array:
    params = jnp.zeros(data.transitions.observation.shape[1])
    keys = keys_of(step_key(key, jnp.uint32(1)))
    learner: Any = None  # nothing is learned
    mean: Array = private_mean(learner, params, None, data, keys, noise, numbers, shape)
    return mean
