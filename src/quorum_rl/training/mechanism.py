"""The private step: who is drawn, how much each one counts, and the noise that hides them.

One step is one Poisson-subsampled Gaussian mechanism, and `PrivateStep.event` says so:

1. every expert is drawn independently with probability q;
2. the gradients of the drawn experts are clipped to norm C and summed (`clipping.py`);
3. noise of standard deviation σ·C is added to every entry of the sum, once;
4. the result is divided by a declared constant, never by how many were drawn.

A step's key is split in four: who is drawn; which of their transitions (folded with the expert's
number); the learner's own randomness (likewise); the noise. Give every step a key of its own.

Limitations: the noise is a float32 number, the generator is JAX's, and a step takes longer the more
experts it draws: the time a step takes must not be published.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from quorum_rl.errors import QuorumError
from quorum_rl.learners import Learner
from quorum_rl.privacy.events import TrainingEvent
from quorum_rl.training.clipping import clipped_sum
from quorum_rl.training.expert_data import Array, ExpertData, transitions_of
from quorum_rl.training.gaussian import standard_normal

LARGEST_MICRO_BATCH = 1024


class StepShape(NamedTuple):
    """What decides the program that a step is compiled to."""

    transitions_per_expert: int
    micro_batch: int
    normalised: bool


class StepNumbers(NamedTuple):
    """What may differ between steps of one program: scalars, or under `vmap` one for each run."""

    last_drawn: Array  # uint32; an expert is drawn if its 32 random bits are at most this
    clip_norm: Array
    noise_multiplier: Array
    expected_batch: Array


@dataclass(frozen=True, kw_only=True)
class PrivateStep:
    """One step of expert-level DP-SGD; every number is declared, none measured from data.

    `expected_batch` is what the sum is divided by; it scales the step and is no part of the
    guarantee. `micro_batch` is how many experts are worked on at once.

    Raises:
        QuorumError: for a number out of its range.
    """

    sampling_rate: float
    clip_norm: float
    noise_multiplier: float
    expected_batch: float
    micro_batch: int
    transitions_per_expert: int = 16
    normalised: bool = False

    def __post_init__(self) -> None:
        rate = self.sampling_rate
        _check("sampling rate", rate, 2**-32 <= rate <= 1, "a number above 0 and at most 1")
        for name in ("clip_norm", "expected_batch"):
            value = getattr(self, name)
            # Within the squares that float32 can hold.
            _check(name.replace("_", " "), value, 1e-15 <= value <= 1e15, "a positive number")
        _check(
            "noise multiplier",
            self.noise_multiplier,
            0 < self.noise_multiplier < 1e15,
            "a positive number",
        )
        for name in ("micro_batch", "transitions_per_expert"):
            value = getattr(self, name)
            whole = isinstance(value, int) and value >= 1
            _check(name.replace("_", " "), value, whole, "a whole number above 0")

    def event(self, steps: int) -> TrainingEvent:
        """What `steps` such steps are, for the ledger."""
        return TrainingEvent(
            sampling_rate=self.sampling_rate, noise_multiplier=self.noise_multiplier, steps=steps
        )

    @property
    def shape(self) -> StepShape:
        return StepShape(self.transitions_per_expert, self.micro_batch, self.normalised)

    @property
    def numbers(self) -> StepNumbers:
        """The numbers as arrays. The rate is rounded down to a multiple of 2⁻³², never up."""
        return StepNumbers(
            jnp.asarray(math.floor(self.sampling_rate * 2**32) - 1, jnp.uint32),
            jnp.asarray(self.clip_norm, jnp.float32),
            jnp.asarray(self.noise_multiplier, jnp.float32),
            jnp.asarray(self.expected_batch, jnp.float32),
        )


def default_micro_batch(
    experts_declared: int, sampling_rate: float, transitions_per_expert: int = 1
) -> int:
    """The micro-batch that wastes least, for what is drawn of that many experts.

    One for all that are usually drawn (two deviations above the mean) wastes 2√mean experts on
    padding. Several of size r waste r/2 experts and, on a CPU, the time of about ten transitions
    for each of mean/r; the best r is √(20 mean / transitions per expert), and with more than five
    transitions an expert it wastes less. An accelerator is idle in small ones.
    """
    mean = experts_declared * sampling_rate
    if transitions_per_expert > 5 and jax.default_backend() == "cpu":
        best = math.sqrt(20 * mean / transitions_per_expert)
        return max(8, 8 * round(best / 8))
    usual = mean + 2 * math.sqrt(mean * (1 - sampling_rate))
    return min(8 * math.ceil(usual / 8), LARGEST_MICRO_BATCH)


def private_gradient(
    learner: Learner,
    params: Any,
    target: Any,
    data: ExpertData,
    key: Array,
    numbers: StepNumbers,
    shape: StepShape,
) -> Any:
    """The noisy mean gradient of a Poisson sample of experts.

    Guarantee: with `numbers` and `shape` of a `PrivateStep` and a fresh secret key, the result is
    as private as that step's `event(1)` says, for neighbours that differ by one expert. If nobody
    is drawn, the noise alone comes out.

    Shapes: the gradient as `params`. `learner` and `shape` are static; the rest may be traced.
    """
    sampling_key, transitions_key, learner_key, noise_key = jax.random.split(key, 4)
    drawn = poisson_sample(sampling_key, data.expert_count, numbers.last_drawn)
    total = sum_over_drawn(
        learner,
        params,
        target,
        data,
        drawn,
        (transitions_key, learner_key),
        numbers.clip_norm,
        shape,
    )
    return noisy_mean(total, noise_key, numbers)


def poisson_sample(key: Array, expert_count: int, last_drawn: Array) -> Array:
    """Draw each expert by itself, with probability (last_drawn + 1) / 2³² exactly.

    Exactly, as far as the generator's 32 bits are uniform: whole numbers are compared, nothing is
    rounded.

    Shapes: (expert_count,), True for who is drawn.
    """
    return jax.random.bits(key, (expert_count,), jnp.uint32) <= last_drawn


def sum_over_drawn(
    learner: Learner,
    params: Any,
    target: Any,
    data: ExpertData,
    drawn: Array,
    keys: tuple[Array, Array],
    clip_norm: Array,
    shape: StepShape,
) -> Any:
    """The clipped sum over all drawn experts, in as many micro-batches as it takes.

    Nobody is left out, however many were drawn, and the micro-batch does not change the result
    but for rounding. `keys` are those for transitions and for the learner.

    Guarantee: an expert changes the sum by at most `clip_norm` (see `clipped_sum`).
    """
    transitions_key, learner_key = keys
    size, per_expert = shape.micro_batch, shape.transitions_per_expert
    drawn_so_far = jnp.cumsum(drawn)
    drawn_count = drawn_so_far[-1]

    def learner_keys(expert: Array) -> Array:
        return jax.random.split(jax.random.fold_in(learner_key, expert), per_expert)

    def add_micro_batch(state: tuple[Array, Any]) -> tuple[Array, Any]:
        done, total = state
        places = done + jnp.arange(1, size + 1)
        # Places beyond the last drawn expert are padding: any expert will do, it is not present.
        experts = jnp.searchsorted(drawn_so_far, places).clip(max=len(drawn) - 1)
        part = clipped_sum(
            learner,
            params,
            target,
            transitions_of(data, experts, transitions_key, per_expert),
            places <= drawn_count,
            jax.vmap(learner_keys)(experts),
            clip_norm,
            shape.normalised,
        )
        return done + size, jax.tree.map(jnp.add, total, part)

    start = (jnp.zeros_like(drawn_count), jax.tree.map(jnp.zeros_like, params))
    _, total = jax.lax.while_loop(lambda state: state[0] < drawn_count, add_micro_batch, start)
    return total


def noisy_mean(total: Any, key: Array, numbers: StepNumbers) -> Any:
    """The sum with its noise, divided by the declared constant."""
    flat, unflatten = ravel_pytree(total)
    noise = standard_normal(key, len(flat))
    scale = numbers.noise_multiplier * numbers.clip_norm
    return unflatten((flat + scale * noise) / numbers.expected_batch)


def _check(name: str, value: object, holds: bool, fix: str) -> None:
    if not holds:
        raise QuorumError(f"the {name} is {value}: give {fix}.")
