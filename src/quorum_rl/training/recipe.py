"""How to train: what is fixed for a program, and what may differ between runs of it."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax

from quorum_rl.errors import QuorumError
from quorum_rl.learners import Learner, defaults
from quorum_rl.pytree import pytree
from quorum_rl.training.expert_data import Array
from quorum_rl.training.mechanism import PrivateStep, StepNumbers, StepShape

Optimiser = Literal["adam", "momentum", "sgd"]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What is compiled: the learner, the optimiser, and the shapes of a step.

    Steps with and without noise have optimisers of their own unless `shared_optimiser`, which is
    the paper's: noise would otherwise fill the second moments that scale the steps without it.
    `averaging` is the decay of an exponential average over the parameters, which is then what
    training returns; 0 returns the last ones. `batch_size` is that of steps without noise.

    Raises:
        QuorumError: for a number out of its range.
    """

    learner: Learner
    private_shape: StepShape | None
    batch_size: int = 256
    optimiser: Optimiser = defaults.OPTIMISER  # type: ignore[assignment]
    shared_optimiser: bool = False
    averaging: float = 0.0

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise QuorumError(f"the batch size is {self.batch_size}: give at least 1.")
        if not 0 <= self.averaging < 1:
            raise QuorumError(f"averaging is {self.averaging}: give a decay from 0 to below 1.")
        if self.optimiser not in ("adam", "momentum", "sgd"):
            raise QuorumError(f"the optimiser is {self.optimiser!r}: choose adam, momentum or sgd.")

    def update(self) -> Any:
        """The optimiser without its learning rate, which is a number of the run."""
        if self.optimiser == "adam":
            return optax.scale_by_adam()
        if self.optimiser == "momentum":
            return optax.trace(decay=0.9)
        return optax.identity()


@pytree
class Run:
    """What one run has for itself. Stacked along a first axis, many runs are one program.

    Steps with and without noise may have different learning rates; both fall in a straight line to
    zero at step `rates_end`, and stay as they are if that is infinite. `plain_part` is where, in
    the transitions that all runs share for steps without noise, this run's own begin and end.

    `noise_key` is SECRET: with it the noise can be taken off. `public_key` decides the initial
    parameters and the batches of released data. Both are the words of a JAX key.
    """

    noise_key: Array
    public_key: Array
    learning_rate: Array
    private_learning_rate: Array
    rates_end: Array
    plain_part: tuple[Array, Array]
    numbers: StepNumbers

    def __repr__(self) -> str:
        return "Run(sensitive)"


def new_run(
    *,
    noise_key: Any,
    public_key: Any,
    learning_rate: float,
    private_learning_rate: float | None = None,
    rates_end: float = math.inf,
    private: PrivateStep | None,
    plain_part: tuple[int, int] = (0, 0),
) -> Run:
    """A run from plain numbers; keys are words as `budget.jax_key_data` makes them.

    A `plain_part` that ends at 0 is all of the transitions.

    Raises:
        QuorumError: if a learning rate is not positive.
    """
    rates = (
        learning_rate,
        learning_rate if private_learning_rate is None else private_learning_rate,
    )
    for rate in rates:
        if not rate > 0:
            raise QuorumError(f"the learning rate is {rate}: give a positive number.")
    return Run(
        noise_key=jnp.asarray(noise_key, jnp.uint32),
        public_key=jnp.asarray(public_key, jnp.uint32),
        learning_rate=jnp.asarray(rates[0], jnp.float32),
        private_learning_rate=jnp.asarray(rates[1], jnp.float32),
        rates_end=jnp.asarray(rates_end, jnp.float32),
        plain_part=(jnp.asarray(plain_part[0]), jnp.asarray(plain_part[1])),
        numbers=_no_numbers() if private is None else private.numbers,
    )


def key_of(words: Array) -> Array:
    """The JAX key that is made of these words."""
    key: Array = jax.random.wrap_key_data(words, impl="threefry2x32")
    return key


def private_key(run: Run, number: Array) -> Array:
    """The secret key of the step of that number, the first being 1."""
    return jax.random.fold_in(key_of(run.noise_key), number)


def _no_numbers() -> StepNumbers:
    """Those of a run without private steps. No constant: it would start JAX on import."""
    return StepNumbers(jnp.zeros((), jnp.uint32), jnp.zeros(()), jnp.zeros(()), jnp.ones(()))
