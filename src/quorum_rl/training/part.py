"""A part of a private step's sum, over experts whose logs are somewhere else than the noise is.

Who adds the noise asks (`SummedElsewhere`); who has the logs answers with the sum on the lattice of
what its experts contribute (`part_of_sum`), by the same mechanism as on one machine. Which
transitions are drawn and what a contribution draws follows from keys that are told; they reveal
nothing of the step's other keys, and the guarantee of a step in which everybody takes part does not
count on them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from quorum_rl.learners import DenseLearner
from quorum_rl.logs import Declared
from quorum_rl.training.data import ExpertData
from quorum_rl.training.mechanism import StepNumbers, StepShape, sum_over_drawn
from quorum_rl.training.randomness import Array, StepKeys, key_of, keys_of, step_key
from quorum_rl.training.recipe import Run, TrainState

Sums: TypeAlias = Sequence[npt.NDArray[np.int32]]
"""A sum on the lattice: one array for each leaf that is trained."""


class AskedSum(NamedTuple):
    """What a step's sum depends on, beside the logs: noisy sums made all of it, or keys.

    Shapes: `transitions` and `contribution` are the words of those keys of the step, (2,) each.
    """

    number: int
    params: Any
    target: Any
    transitions: Any
    contribution: Any


@dataclass(frozen=True, eq=False, repr=False)
class SummedElsewhere:
    """Experts who are not here: `ask` gives the sum over all of them in a step. SENSITIVE."""

    declared: Declared
    ask: Callable[[AskedSum], Sums]

    def __repr__(self) -> str:
        return "SummedElsewhere(sensitive)"


def asked_of_step(runs: Run, state: TrainState, done: int) -> AskedSum:
    """What to ask for in the step after the first `done`, of one run."""
    keys = keys_of(step_key(runs.noise_key[0], jnp.uint32(done + 1)))
    params, target = jax.tree.map(lambda leaf: np.asarray(leaf[0]), (state.params, state.target))
    words = (np.asarray(jax.random.key_data(key)) for key in (keys.transitions, keys.contribution))
    return AskedSum(done + 1, params, target, *words)


def part_of_sum(
    learner: DenseLearner, shape: StepShape, numbers: StepNumbers, data: ExpertData, asked: AskedSum
) -> Sums:
    """The sum on the lattice over all experts in `data`, without noise. SENSITIVE.

    With chunks of one shape, parts add up to the bits of the sum over all experts at once, if
    `data.first` counts the experts of the parts before.

    Guarantee: an expert changes it by whole numbers whose norm is at most `numbers.units`.
    """
    words = asked.transitions, asked.contribution
    found = _program(learner, shape)(asked.params, asked.target, data, *words, numbers)
    return [np.asarray(leaf[0]) for leaf in found]


@lru_cache(maxsize=16)
def _program(learner: DenseLearner, shape: StepShape) -> Callable[..., list[Array]]:
    def of_run(
        params: Any,
        target: Any,
        data: ExpertData,
        transitions: Array,
        contribution: Array,
        numbers: StepNumbers,
    ) -> list[Array]:
        told = key_of(transitions), key_of(contribution)
        keys = StepKeys(told[0], *told, told[1])  # neither draws experts nor noise
        everybody = data.has_transitions
        return sum_over_drawn(learner, params, target, data, everybody, keys, numbers, shape)

    # Of one run among many, as training is compiled: another program might round otherwise.
    each = jax.vmap(of_run, (0, 0, None, 0, 0, None))

    def of_one(params: Any, target: Any, data: ExpertData, *rest: Any) -> list[Array]:
        *words, numbers = rest
        alone = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], (params, target, *words))
        return each(alone[0], alone[1], data, alone[2], alone[3], numbers)

    return jax.jit(of_one)
