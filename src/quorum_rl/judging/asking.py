"""Asking the judges: by the one private mechanism that training has, on vectors for gradients."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from quorum_rl.budget import SplitKey
from quorum_rl.judging.plan import JudgingPlan
from quorum_rl.logs import Demonstrations
from quorum_rl.training import (
    ExpertData,
    PrivateStep,
    StepNumbers,
    StepShape,
    TrainsEverything,
    default_chunk,
    keys_of,
    private_mean,
    rounded_noise,
    step_key,
)
from quorum_rl.types import Transition

Array = jax.Array
Floats = npt.NDArray[np.float64]


def parted(demonstrations: Demonstrations, key: SplitKey) -> tuple[Demonstrations, Demonstrations]:
    """Those to be learned from, and the judges; either may be nobody. SENSITIVE.

    Guarantee: an expert's whole log is in one of the two, by its own name and the key.
    """
    judging = key.judges(demonstrations.names)
    episodes = np.repeat(judging, np.diff(demonstrations.expert_episode_offsets))
    return demonstrations.select(~episodes), demonstrations.select(episodes)


def ask(told: Floats, plan: JudgingPlan, noise_key: npt.NDArray[np.uint32]) -> Floats:
    """The noisy sums of what the judges tell, in the units of each block.

    Guarantee: with a fresh secret key it is as private as `plan.event` says, for judges of whom one
    takes part or not: a row that is longer than 1 is clipped.

    Shapes: `told` (judges, size), `noise_key` (2,), words; (size,).
    """
    step = PrivateStep(
        sampling_rate=1.0,
        clip_norm=1.0,
        noise_multiplier=plan.noise_multiplier,
        expected_batch=max(plan.expected, 1.0),
        chunk=default_chunk(max(round(plan.expected), 1), 1.0, 1),
        contribution=Told(),
    )
    noise = rounded_noise(noise_key[None], [step.noise_scale], 1, 1, plan.size)[0, 0]
    mean = _mean(step.shape, _as_data(told), jnp.asarray(noise_key), noise, step.numbers)
    sums = np.asarray(mean, np.float64) * step.expected_batch
    weights = np.concatenate([np.full(block.size, block.weight) for block in plan.blocks.values()])
    made: Floats = sums / weights
    return made


@dataclass(frozen=True)
class Told(TrainsEverything):
    """What a judge tells, as the contribution to a sum: its one row."""

    transitions: int = 1

    def __call__(
        self, learner: Any, params: Any, target: Any, transitions: Transition, key: Array
    ) -> Any:
        del learner, params, target, key
        return transitions.observation[0]


def _as_data(told: Floats) -> ExpertData:
    """Judges with one transition each, which shows what they tell; behind them one who has none.

    So there is a row also where nobody judges. Who has no transition is never drawn.
    """
    rows = jnp.asarray(np.pad(told, ((0, 1), (0, 0))), jnp.float32)
    none = jnp.zeros(len(rows))
    shown = Transition(rows, none.astype(jnp.int32), none, rows, none > 0, none > 0)
    offsets = np.minimum(np.arange(len(rows) + 1), len(told))
    return ExpertData(shown, jnp.asarray(offsets, jnp.int32))


@partial(jax.jit, static_argnums=0)
def _mean(
    shape: StepShape, data: ExpertData, key: Array, noise: Array, numbers: StepNumbers
) -> Array:
    params = jnp.zeros(data.transitions.observation.shape[1])
    keys = keys_of(step_key(key, jnp.uint32(1)))
    learner: Any = None  # nothing is learned
    mean: Array = private_mean(learner, params, None, data, keys, noise, numbers, shape)
    return mean
