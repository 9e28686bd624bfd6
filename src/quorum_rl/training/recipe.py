"""How to train: the order of steps, what is compiled, what differs between runs, where they are.

The paper tosses a coin at every step and accounts as if nobody saw it fall. A step on released data
has no noise, so whoever sees the iterates does see it. Here the order of the steps is public, drawn
before training, and the account is of the private steps that are really taken.
"""

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, TypeAlias

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax

from quorum_rl.errors import (
    POSITIVE,
    SHARE,
    QuorumError,
    Rule,
    at_least,
    require,
    unknown_name,
)
from quorum_rl.learners import Learner
from quorum_rl.pytree import pytree
from quorum_rl.training.mechanism import PrivateStep, StepNumbers, StepShape
from quorum_rl.training.randomness import Array

Schedule: TypeAlias = npt.NDArray[np.int8]


class StepKind(IntEnum):
    """What a step does."""

    NOTHING = -1  # padding behind the last step, or a step that only other runs take
    PLAIN = 0
    PRIVATE = 1


def shuffled_schedule(private_steps: int, plain_steps: int, seed: int) -> Schedule:
    """So many steps of either kind, in random order. `seed` is public.

    Raises:
        QuorumError: if there is no step, or a number is negative.
    """
    if min(private_steps, plain_steps) < 0 or private_steps + plain_steps == 0:
        raise QuorumError(
            f"there are {private_steps} private and {plain_steps} plain steps: give at least one."
        )
    steps = np.full(private_steps + plain_steps, StepKind.PLAIN, np.int8)
    steps[:private_steps] = StepKind.PRIVATE
    return np.random.default_rng(seed).permutation(steps)


def steps_at_share(private_steps: int, private_share: float) -> int:
    """How many plain steps make the private ones the given share of all.

    Raises:
        QuorumError: if the share is not above 0 and at most 1.
    """
    require("private_share", private_share, SHARE)
    return round(private_steps * (1 / private_share - 1))


@dataclass(frozen=True)
class Optimiser:
    """How the server turns gradients, or what experts contribute like them, into steps.

    Any optax transformation without its learning rate, which is a number of the run and falls over
    it. Its state is made of noisy sums only. `name` is what configurations call it.
    """

    name: str
    transformation: optax.GradientTransformation


OPTIMISERS: Final = {
    name: Optimiser(name, transformation)
    for name, transformation in (
        ("sgd", optax.identity()),
        ("momentum", optax.trace(decay=0.9)),
        ("adam", optax.scale_by_adam()),
    )
}


def optimiser_of(said: str | Optimiser) -> Optimiser:
    """An optimiser by name, or one's own.

    Raises:
        QuorumError: if none of ours has that name.
    """
    if isinstance(said, Optimiser):
        return said
    if said not in OPTIMISERS:
        raise unknown_name("optimiser", said, OPTIMISERS)
    return OPTIMISERS[said]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What is compiled: the learner, the optimiser, and the shapes of a step.

    Steps with and without noise have optimisers of their own unless `shared_optimiser`, which is
    the paper's: noise would otherwise fill the second moments that scale the steps without it.
    `averaging` is the decay of an average over the parameters, which is then what training
    returns; 0 returns the last ones, 1 the plain mean from the run's `average_from` on.
    `batch_size` is that of steps without noise.

    Raises:
        QuorumError: for a number out of its range.
    """

    learner: Learner
    private_shape: StepShape | None
    batch_size: int = 256
    optimiser: Optimiser = OPTIMISERS["adam"]
    shared_optimiser: bool = False
    averaging: float = 0.0

    def __post_init__(self) -> None:
        require("batch_size", self.batch_size, at_least(1))
        decay = Rule("a decay from 0 to 1", lambda averaging: 0 <= averaging <= 1)
        require("averaging", self.averaging, decay)


@pytree
class Run:
    """What one run has for itself. Stacked along a first axis, many runs are one program.

    Steps with and without noise may have different learning rates; both fall in a straight line to
    zero at step `rates_end`, and stay as they are if that is infinite. The average of parameters
    begins after step `average_from`. `plain_part` is where, in the transitions that all runs share
    for steps without noise, this run's own begin and end.

    `noise_key` is SECRET: with it the noise can be taken off. `public_key` decides the initial
    parameters and the batches of released data. Both are the words of a JAX key; `noise_scale` is
    the words of a double, which the programs of a training do not read.
    """

    noise_key: Array
    public_key: Array
    noise_scale: Array
    learning_rate: Array
    private_learning_rate: Array
    rates_end: Array
    average_from: Array
    plain_part: tuple[Array, Array]
    numbers: StepNumbers

    def __repr__(self) -> str:
        return "Run(sensitive)"


@pytree
class TrainState:
    """The state of some runs; every leaf has a first axis of runs.

    `optimisers` has the state of the one for plain and of the one for private steps. `step` is how
    far into the schedule the runs are, places with nothing to do included.

    Parameters that private steps have touched are as private as the ledger says they are.
    """

    params: Any
    target: Any
    optimisers: tuple[Any, Any]
    average: Any
    step: Array


def new_run(
    *,
    noise_key: Any,
    public_key: Any,
    learning_rate: float,
    private_learning_rate: float | None = None,
    rates_end: float = math.inf,
    average_from: float = 0.0,
    private: PrivateStep | None,
    plain_part: tuple[int, int] = (0, 0),
) -> Run:
    """A run from plain numbers; keys are words as `budget.jax_key_data` makes them.

    A `plain_part` that ends at 0 is all of the transitions.

    Raises:
        QuorumError: if a learning rate is not positive.
    """
    if private_learning_rate is None:
        private_learning_rate = learning_rate
    require("learning_rate", learning_rate, POSITIVE)
    require("private_learning_rate", private_learning_rate, POSITIVE)
    scale = 0.0 if private is None else private.noise_scale
    return Run(
        noise_key=jnp.asarray(noise_key, jnp.uint32),
        public_key=jnp.asarray(public_key, jnp.uint32),
        noise_scale=jnp.asarray(np.float64(scale).reshape(1).view(np.uint32)),
        learning_rate=jnp.asarray(learning_rate, jnp.float32),
        private_learning_rate=jnp.asarray(private_learning_rate, jnp.float32),
        rates_end=jnp.asarray(rates_end, jnp.float32),
        average_from=jnp.asarray(average_from, jnp.float32),
        plain_part=(jnp.asarray(plain_part[0]), jnp.asarray(plain_part[1])),
        numbers=_no_numbers() if private is None else private.numbers,
    )


def noise_scales(runs: Run) -> Any:
    """The doubles in `noise_scale`. Shapes: (runs,)."""
    words = np.ascontiguousarray(np.asarray(runs.noise_scale, np.uint32))
    return words.view(np.float64)[..., 0]


def _no_numbers() -> StepNumbers:
    """Those of a run without private steps. No constant: it would start JAX on import."""
    return StepNumbers(jnp.zeros((), jnp.uint32), jnp.zeros(()), jnp.ones(()), jnp.ones(()))
