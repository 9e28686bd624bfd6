"""All that is private about training: who is drawn, what each one counts for, and the noise.

One private step is one Poisson-subsampled Gaussian mechanism, and `PrivateStep.event` says so,
whatever an expert contributes (`contributions.py`):

1. every expert is drawn independently with probability q; with q = 1, everybody is;
2. the contributions of the drawn experts are clipped to norm C, rounded to a lattice of whole
   numbers (`lattice_sum`) and summed (`sum_over_drawn`);
3. whole numbers of noise of standard deviation σ·C are added to the sum, once (`noise.py`);
4. the result is divided by a declared constant, never by how many were drawn (`private_mean`).

**The lattice.** A contribution is rounded to whole numbers of C / units, `units` a public power of
two. The order of whole numbers in a sum changes nothing, and noise that is whole too reaches every
sum alike; docs/theory.md has the proof. The norm is checked on the whole numbers, exactly:
Σ k² ≤ units². A contribution that fails, or that is not finite anywhere, counts as zero. Sums wrap
around at 32 bits; so does what noise adds, and whoever sees a sum modulo 2³² sees a function of it.

**Chunks.** All chunks of a step have one size, a multiple of eight. A contribution is made of
floats, and the same transitions give other last bits in a chunk of another size: an expert who
moved others into one would change their shares too. Where it stands in chunks of one size changes
none (tests/training/test_mechanism.py).

**Devices.** Experts may be spread over the devices of a mesh. Every device has the step's key and
draws by the same counters: an expert's fate depends on its number and not on where it is. With
chunks of one size, devices and order change no bit of a sum. All devices add the same noise to the
total, and take the same step. Sums without noise travel between devices: whoever could read them
there must be trusted with the data.

Limitations: the generator is JAX's, and a step takes longer the more experts it draws: the time a
step takes must not be published.
"""

import math
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp

from quorum_rl.errors import POSITIVE, QuorumError, Rule, at_least, require
from quorum_rl.learners import Learner
from quorum_rl.privacy import TrainingEvent
from quorum_rl.training.contributions import Contribution, trained_leaves
from quorum_rl.training.data import ChosenData, ExpertData
from quorum_rl.training.randomness import Array, StepKeys, random_words

LARGEST_CHUNK: Final = 1024  # experts
LARGEST_READ: Final = 2**18  # transitions of a chunk on a CPU; elsewhere four times that

MOST_BITS: Final = 15  # so that a squared norm has 30
NOISE_BITS: Final = 26  # of its deviation: 32 deviations are within 32 bits
SUM_BITS: Final = 29  # of the clip norms of all experts that are expected
LEAST_BITS: Final = 6
ROUNDING: Final = 2.0**-25  # of a norm in float32, for each term of its sum
ROUNDINGS: Final = 64  # of everything else
# A sum of squares in float32 of up to so many terms is off by a quarter at most. What passes for
# 1.01·units² is then below 2³¹, and the whole numbers' sum beside it did not wrap around.
MOST_PARAMETERS: Final = 2**22
NEARLY: Final = 1.01
RATE: Final = Rule("a number from 2.4e-10 to 1", lambda value: 2**-32 <= value <= 1)
SQUARABLE: Final = Rule(  # within the squares that float32 can hold
    "a number from 1e-15 to 1e15", lambda value: 1e-15 <= value <= 1e15
)


# --- what is declared ---


class StepShape(NamedTuple):
    """What decides the program that a step is compiled to."""

    contribution: Contribution
    chunk: int
    normalised: bool

    @property
    def size(self) -> int:
        """How many experts every chunk has: `chunk`, up to a multiple of eight."""
        return 8 * math.ceil(self.chunk / 8)

    def on_one_of(self, devices: int) -> "StepShape":
        """The shape for a device's part of what is drawn; contributions may round otherwise."""
        return self._replace(chunk=8 * math.ceil(self.chunk / (8 * devices)))


class StepNumbers(NamedTuple):
    """What may differ between steps of one program: scalars, or under `vmap` one for each run."""

    last_drawn: Array  # uint32; an expert is drawn if its 32 random bits are at most this
    clip_norm: Array
    units: Array  # of the lattice, in a clip norm
    expected_batch: Array


@dataclass(frozen=True, kw_only=True)
class PrivateStep:
    """One private step; every number is declared, none measured from data.

    `expected_batch` is what the sum is divided by; it scales the step and is no part of the
    guarantee. `chunk` is how many experts are worked on at once.

    Raises:
        QuorumError: for a number out of its range.
    """

    sampling_rate: float
    clip_norm: float
    noise_multiplier: float
    expected_batch: float
    chunk: int
    contribution: Contribution
    normalised: bool = False

    def __post_init__(self) -> None:
        require("sampling_rate", self.sampling_rate, RATE)
        require("clip_norm", self.clip_norm, SQUARABLE)
        require("expected_batch", self.expected_batch, SQUARABLE)
        require("noise_multiplier", self.noise_multiplier, POSITIVE)
        require("chunk", self.chunk, at_least(1))
        _ = self.units  # refuses more noise than there is room for

    def event(self, steps: int) -> TrainingEvent:
        """What `steps` such steps are, for the ledger."""
        return TrainingEvent(
            sampling_rate=self.sampling_rate, noise_multiplier=self.noise_multiplier, steps=steps
        )

    @property
    def units(self) -> int:
        """How many units of the lattice a clip norm has."""
        return units_for(self.noise_multiplier, self.expected_batch)

    @property
    def noise_scale(self) -> float:
        """The standard deviation of the noise before it is rounded, in units of the lattice."""
        return self.noise_multiplier * self.units

    @property
    def shape(self) -> StepShape:
        return StepShape(self.contribution, self.chunk, self.normalised)

    @property
    def numbers(self) -> StepNumbers:
        """The numbers as arrays. The rate is rounded down to a multiple of 2⁻³², never up."""
        return StepNumbers(
            jnp.asarray(math.floor(self.sampling_rate * 2**32) - 1, jnp.uint32),
            jnp.asarray(self.clip_norm, jnp.float32),
            jnp.asarray(self.units, jnp.float32),
            jnp.asarray(self.expected_batch, jnp.float32),
        )


def default_chunk(experts_declared: int, sampling_rate: float, transitions: int) -> int:
    """How many experts to work on at once, for what is drawn of that many.

    The padding of the last chunk takes as long as experts do. So what is usually drawn (two
    deviations above the mean, and one more, as one fewer than there are may be declared) is cut
    into equal chunks, as few as do not read too much at once.
    """
    mean = experts_declared * sampling_rate
    usual = mean + 2 * math.sqrt(mean * (1 - sampling_rate)) + 1
    read = LARGEST_READ if jax.default_backend() == "cpu" else 4 * LARGEST_READ
    most = 8 * max(1, min(LARGEST_CHUNK, read // transitions) // 8)
    return 8 * math.ceil(usual / (8 * math.ceil(usual / most)))


def units_for(noise_multiplier: float, expected_batch: float = 1.0) -> int:
    """How many units of the lattice a clip norm has, so that noise and sums have room in 32 bits.

    Both numbers are declared. If all of four times the experts that are expected contribute a clip
    norm in one coordinate, it does not wrap around.

    Raises:
        QuorumError: if there is so much noise, or so many experts, that nothing would be left of a
            contribution.
    """
    room = min(2.0**NOISE_BITS / noise_multiplier, 2.0**SUM_BITS / max(expected_batch, 1.0))
    bits = min(MOST_BITS, math.floor(math.log2(room)))
    if bits < LEAST_BITS:
        raise QuorumError(
            f"noise of {noise_multiplier:.3g} times an expert's share, beside a sum over "
            f"{expected_batch:,.0f} experts, leaves nothing of it: give a larger epsilon, fewer "
            "private steps, or a smaller sampling rate."
        )
    return 1 << bits


def check_parameters(count: int, units: int | None = None) -> None:
    """Refuse more parameters than a norm can be checked of, or than the lattice has units for.

    Raises:
        QuorumError: naming how many there are.
    """
    if units is not None and math.sqrt(count) >= units:
        raise QuorumError(
            f"there are {count:,} parameters, and a lattice of {units} units leaves nothing of a "
            "contribution: give a larger epsilon, or smaller networks."
        )
    if count > MOST_PARAMETERS:
        raise QuorumError(
            f"there are {count:,} parameters, and private steps take at most {MOST_PARAMETERS:,}: "
            "give smaller networks."
        )


def trained_count(learner: Learner, params: Any, contribution: Contribution) -> int:
    """How many parameters a contribution changes, and noise is added to."""
    leaves = jax.tree.leaves(params)
    marks = jax.tree.leaves(contribution.trained(learner, params))
    return sum(math.prod(leaf.shape) for leaf, mark in zip(leaves, marks, strict=True) if mark)


# --- one step ---


def private_mean(
    learner: Learner,
    params: Any,
    target: Any,
    data: ExpertData | ChosenData,
    keys: StepKeys,
    noise: Array,
    numbers: StepNumbers,
    shape: StepShape,
    axis: str | None = None,
    before: list[Array] | None = None,
) -> Any:
    """The noisy mean contribution of a Poisson sample of experts.

    With `axis`, that of a mesh, every device calls this with its own experts as `data` and with all
    else the same, and gets the mean of all. `before` is the sum over experts who were drawn and are
    not in `data`.

    Guarantee: with `numbers` and `shape` of a `PrivateStep`, fresh secret keys, and `noise` drawn
    by `rounded_noise` at the step's `noise_scale`, the result is as private as that step's
    `event(1)` says, for neighbours that differ by one expert. If nobody is drawn, the noise alone
    comes out.

    Shapes: the mean as `params`, zeros where the contribution trains nothing; `noise`
    (`trained_count`,), int32. `learner` and `shape` are static; the rest may be traced.
    """
    drawn = who_is_drawn(data, keys.sampling, numbers.last_drawn)
    if axis is not None:
        shape = shape.on_one_of(jax.lax.axis_size(axis))
    total = sum_over_drawn(learner, params, target, data, drawn, keys, numbers, shape)
    if axis is not None:
        total = jax.lax.psum(total, axis)
    if before is not None:
        total = jax.tree.map(jnp.add, before, total)
    unit = numbers.clip_norm / numbers.units / numbers.expected_batch
    return _as_params(learner, params, shape.contribution, total, noise, unit)


def _as_params(
    learner: Learner,
    params: Any,
    contribution: Contribution,
    total: list[Array],
    noise: Array,
    unit: Array,
) -> Any:
    """Sums and noise of the trained leaves, in the parameters' own units and places."""
    leaves, structure = jax.tree.flatten(params)
    marks = jax.tree.leaves(contribution.trained(learner, params))
    made, sums, place = [], iter(total), 0
    for leaf, mark in zip(leaves, marks, strict=True):
        if not mark:
            made.append(jnp.zeros_like(leaf))
            continue
        own = jax.lax.dynamic_slice_in_dim(noise, place, leaf.size).reshape(leaf.shape)
        made.append((next(sums) + own).astype(jnp.float32) * unit)
        place += leaf.size
    return jax.tree.unflatten(structure, made)


def who_is_drawn(data: ExpertData | ChosenData, key: Array, last_drawn: Array) -> Array:
    """Draw the experts that are in `data`. Shapes: (experts,), True for who is drawn."""
    drawn = poisson_sample(key, data.expert_count, last_drawn, data.first)
    return drawn & data.has_transitions


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


def sum_over_drawn(
    learner: Learner,
    params: Any,
    target: Any,
    data: ExpertData | ChosenData,
    drawn: Array,
    keys: StepKeys,
    numbers: StepNumbers,
    shape: StepShape,
) -> list[Array]:
    """The sum on the lattice over all drawn experts, in as many chunks as it takes.

    Guarantee: an expert changes the sum by a norm of at most `units` (see `lattice_sum`).

    Shapes: a list of the trained leaves, int32.
    """
    contribution = shape.contribution
    marks = jax.tree.leaves(contribution.trained(learner, params))
    drawn_so_far = jnp.cumsum(drawn)
    drawn_count = drawn_so_far[-1]
    last = jnp.minimum(drawn_count, data.end)

    def contributed(transitions: Any, number: Array) -> list[Array]:
        key = jax.random.fold_in(keys.contribution, number)
        return trained_leaves(contribution, learner, params, target, transitions, key)

    def add(state: tuple[Array, list[Array]]) -> tuple[Array, list[Array]]:
        done, total = state
        places = done + jnp.arange(1, shape.size + 1)
        experts = experts_at(drawn_so_far, places)
        shown = data.read(experts, places - 1, keys.transitions, contribution.transitions)
        part = lattice_sum(
            jax.vmap(contributed)(shown, data.first + experts),
            places <= last,
            numbers.clip_norm,
            numbers.units,
            shape.normalised,
        )
        return done + shape.size, jax.tree.map(jnp.add, total, part)

    def some_are_left(state: tuple[Array, list[Array]]) -> Array:
        return state[0] < last

    leaves = jax.tree.leaves(params)
    nothing = [
        jnp.zeros(leaf.shape, jnp.int32) for leaf, mark in zip(leaves, marks, strict=True) if mark
    ]
    state = (jnp.zeros_like(drawn_count) + data.begin, nothing)
    total: list[Array] = jax.lax.while_loop(some_are_left, add, state)[1]
    return total


def experts_at(drawn_so_far: Array, places: Array) -> Array:
    """Who is drawn as the first, the second, …; `drawn_so_far` counts them along the experts.

    Places beyond the last drawn expert are padding, and whoever is found there is not counted.
    """
    found = jnp.searchsorted(drawn_so_far, places, method="scan_unrolled")
    return found.clip(max=len(drawn_so_far) - 1)


def lattice_sum(
    contributions: list[Array],
    present: Array,
    clip_norm: Array,
    units: Array,
    normalised: bool = False,
) -> list[Array]:
    """The sum over the experts present of their contributions, each on the lattice.

    With `normalised`, every contribution but zero is scaled to the clip norm, also a smaller one.

    Guarantee: an expert changes the sum by a vector of whole numbers whose norm is at most `units`,
    whatever its contribution holds; others' shares do not depend on it.

    Shapes: each leaf (experts, …), `present` (experts,); the sums without that axis, int32.
    """
    leaves = [leaf.reshape(len(present), -1).astype(jnp.float32) for leaf in contributions]
    count = sum(leaf.shape[1] for leaf in leaves)
    check_parameters(count)
    largest = jnp.stack([jnp.abs(leaf).max(axis=1) for leaf in leaves]).max(axis=0)
    sound = present & jnp.isfinite(largest)
    scale = jnp.where(sound & (largest > 0), largest, 1)
    scaled = [jnp.where(sound[:, None], leaf / scale[:, None], 0) for leaf in leaves]
    norm = jnp.sqrt(_squares(scaled))
    # What rounding to whole numbers may add, and to float32, is taken off first.
    room = units * (1 - (count + ROUNDINGS) * ROUNDING) - math.sqrt(count) / 2
    clipped = room.clip(0) / jnp.where(norm > 0, norm, 1)
    factor = clipped if normalised else jnp.minimum(scale * (units / clip_norm), clipped)
    whole = [jnp.floor(leaf * factor[:, None] + 0.5).astype(jnp.int32) for leaf in scaled]
    about = _squares([leaf.astype(jnp.float32) for leaf in whole])
    exactly = _squares(whole)
    within = (about <= NEARLY * units**2) & (exactly <= (units**2).astype(jnp.int32))
    counts = (sound & within)[:, None]
    counted = [jnp.where(counts, leaf, 0).sum(axis=0, dtype=jnp.int32) for leaf in whole]
    return [leaf.reshape(like.shape[1:]) for leaf, like in zip(counted, contributions, strict=True)]


def _squares(leaves: list[Array]) -> Array:
    kind = leaves[0].dtype  # also where JAX would count in 64 bits
    each = [jnp.square(leaf).sum(axis=1, dtype=kind) for leaf in leaves]
    return jnp.stack(each).sum(axis=0, dtype=kind)
