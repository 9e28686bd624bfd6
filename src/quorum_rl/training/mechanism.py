"""The private step: who is drawn, how much each one counts, and the noise that hides them.

One step is one Poisson-subsampled Gaussian mechanism, and `PrivateStep.event` says so:

1. every expert is drawn independently with probability q;
2. the gradients of the drawn experts are clipped to norm C and summed (`clipping.py`);
3. noise of standard deviation σ·C is added to every entry of the sum, once;
4. the result is divided by a declared constant, never by how many were drawn.

A step's key is split in four: who is drawn; which of their transitions (counted by the expert's
number); the learner's own randomness (folded with it); the noise. Give every step a key of its own.

Experts may be spread over the devices of a mesh. Every device has the step's key, and draws by the
same counters: an expert's fate depends on its number and not on where it is. An expert is on one
device only, so it changes one device's sum by at most C, and the sum of all sums by as much; noise
is what the first device's sum starts at and others' do not, so it is in the total once. All devices
get that one total, and take the same step from it. Before it is made, sums without noise travel
between devices: whoever could read them there must be trusted with the data.

Limitations: the noise is a float32 number, the generator is JAX's, and a step takes longer the more
experts it draws: the time a step takes must not be published.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from quorum_rl.errors import QuorumError
from quorum_rl.learners import Learner
from quorum_rl.privacy.events import TrainingEvent
from quorum_rl.training.clipping import clipped_sum
from quorum_rl.training.expert_data import Array, ChosenData, ExpertData
from quorum_rl.training.gaussian import standard_normal
from quorum_rl.training.generator import random_words

LARGEST_MICRO_BATCH = 1024


class StepShape(NamedTuple):
    """What decides the program that a step is compiled to."""

    transitions_per_expert: int
    micro_batch: int
    normalised: bool

    @property
    def remainder(self) -> int:
        """The size of the small micro-batches for what a whole one would mostly pad."""
        return 8 * math.ceil(self.micro_batch / 64)

    def on_one_of(self, devices: int) -> "StepShape":
        """The shape for a device's part of what is drawn; another changes nothing but rounding."""
        part = 8 * math.ceil(self.micro_batch / (8 * devices))
        return self._replace(micro_batch=min(part, self.micro_batch))


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

    What is left over goes into small ones (`StepShape.remainder`). On a CPU each of them costs
    more than its transitions do, and so does padding: with few transitions an expert the mean of
    what is drawn was best, with many what is nearly always drawn. An accelerator, idle in small
    ones, takes what is usually drawn in one (two deviations above the mean).
    """
    mean = experts_declared * sampling_rate
    deviation = math.sqrt(mean * (1 - sampling_rate))
    deviations = 2 if jax.default_backend() != "cpu" else 0 if transitions_per_expert <= 5 else -1
    size = mean + deviations * deviation
    return min(8 * max(1, (math.ceil if deviations > 0 else round)(size / 8)), LARGEST_MICRO_BATCH)


def private_gradient(
    learner: Learner,
    params: Any,
    target: Any,
    data: ExpertData | ChosenData,
    key: Array,
    numbers: StepNumbers,
    shape: StepShape,
    axis: str | None = None,
) -> Any:
    """The noisy mean gradient of a Poisson sample of experts.

    With `axis`, that of a mesh, every device calls this with its own experts as `data` and with all
    else the same, and gets the gradient of all.

    Guarantee: with `numbers` and `shape` of a `PrivateStep` and a fresh secret key, the result is
    as private as that step's `event(1)` says, for neighbours that differ by one expert. If nobody
    is drawn, the noise alone comes out.

    Shapes: the gradient as `params`. `learner` and `shape` are static; the rest may be traced.
    """
    sampling_key, transitions_key, learner_key, noise_key = keys_of(key)
    drawn = who_is_drawn(data, sampling_key, numbers.last_drawn)
    noise = noise_like(params, noise_key, numbers)
    if axis is not None:
        shape = shape.on_one_of(jax.lax.axis_size(axis))
        noise = _on_the_first(noise, axis)
    total = sum_over_drawn(
        learner,
        params,
        target,
        data,
        drawn,
        (transitions_key, learner_key),
        numbers.clip_norm,
        shape,
        noise,
    )
    if axis is not None:
        total = jax.lax.psum(total, axis)
    return jax.tree.map(lambda leaf: leaf / numbers.expected_batch, total)


def keys_of(key: Array) -> tuple[Array, Array, Array, Array]:
    """A step's keys: for who is drawn, for their transitions, for the learner, for the noise."""
    sampling, transitions, learner, noise = jax.random.split(key, 4)
    return sampling, transitions, learner, noise


def who_is_drawn(data: ExpertData | ChosenData, key: Array, last_drawn: Array) -> Array:
    """Draw the experts that are in `data`. Shapes: (experts,), True for who is drawn."""
    drawn = poisson_sample(key, data.expert_count, last_drawn, data.first)
    return drawn & data.somebody


def poisson_sample(
    key: Array, expert_count: int, last_drawn: Array, first: Array | int = 0
) -> Array:
    """Draw each expert by itself, with probability (last_drawn + 1) / 2³² exactly.

    Exactly, as far as the generator's 32 bits are uniform: whole numbers are compared, nothing is
    rounded. Experts are numbered from `first`, and the number alone decides on an expert.

    Shapes: (expert_count,), True for who is drawn.
    """
    bits, _ = random_words(key, 0, first + jnp.arange(expert_count))
    return bits <= last_drawn


def _on_the_first(tree: Any, axis: str) -> Any:
    """`tree` on the first device of the axis, zeros on all others."""
    first = jax.lax.axis_index(axis) == 0
    return jax.tree.map(lambda leaf: jnp.where(first, leaf, 0), tree)


def noise_like(params: Any, key: Array, numbers: StepNumbers) -> Any:
    """What hides an expert: for every parameter, a normal number of standard deviation σ·C."""
    leaves, structure = jax.tree.flatten(params)
    scale = numbers.noise_multiplier * numbers.clip_norm
    noise = [
        scale * standard_normal(key, leaf.size, stream).reshape(leaf.shape)
        for stream, leaf in enumerate(leaves)
    ]
    return jax.tree.unflatten(structure, noise)


def sum_over_drawn(
    learner: Learner,
    params: Any,
    target: Any,
    data: ExpertData | ChosenData,
    drawn: Array,
    keys: tuple[Array, Array],
    clip_norm: Array,
    shape: StepShape,
    start: Any,
) -> Any:
    """`start` and the clipped sum over all drawn experts, in as many micro-batches as it takes.

    Nobody is left out, however many were drawn, and the micro-batch does not change the result
    but for rounding. `keys` are those for transitions and for the learner.

    A step starts at its noise rather than at zero: it is then made in one pass, where a compiler
    that sees it used by a sum, and that by both moments of an optimiser, makes it several times.

    Guarantee: an expert changes the sum by at most `clip_norm` (see `clipped_sum`).
    """
    transitions_key, learner_key = keys
    per_expert = shape.transitions_per_expert
    drawn_so_far = jnp.cumsum(drawn)
    drawn_count = drawn_so_far[-1]

    def learner_keys(number: Array) -> Array:
        return jax.random.split(jax.random.fold_in(learner_key, number), per_expert)

    def add(size: int, state: tuple[Array, Any]) -> tuple[Array, Any]:
        done, total = state
        places = done + jnp.arange(1, size + 1)
        experts = experts_at(drawn_so_far, places)
        part = clipped_sum(
            learner,
            params,
            target,
            data.read(experts, places - 1, transitions_key, per_expert),
            places <= drawn_count,
            jax.vmap(learner_keys)(data.first + experts),
            clip_norm,
            shape.normalised,
        )
        return done + size, jax.tree.map(jnp.add, total, part)

    def more_than(left_over: int, state: tuple[Array, Any]) -> Array:
        return drawn_count - state[0] > left_over

    state = (jnp.zeros_like(drawn_count), start)
    for size, left_over in ((shape.micro_batch, shape.micro_batch // 2), (shape.remainder, 0)):
        state = jax.lax.while_loop(partial(more_than, left_over), partial(add, size), state)
    return state[1]


def experts_at(drawn_so_far: Array, places: Array) -> Array:
    """Who is drawn as the first, the second, …; `drawn_so_far` counts them along the experts.

    Places beyond the last drawn expert are padding: there anybody stands, and is not present.
    """
    found = jnp.searchsorted(drawn_so_far, places, method="scan_unrolled")
    return found.clip(max=len(drawn_so_far) - 1)


def _check(name: str, value: object, holds: bool, fix: str) -> None:
    if not holds:
        raise QuorumError(f"the {name} is {value}: give {fix}.")
