"""Contributions on a lattice of whole numbers: what an expert adds to a sum, to the last bit.

A contribution is clipped to norm C and rounded to whole numbers of C / units, `units` a public
power of two. Whole numbers are summed: their order changes nothing, and noise that is whole too
(`noise.py`) reaches every sum alike. docs/theory.md has the proof.

The norm is checked on the whole numbers, exactly: Σ k² ≤ units². A contribution that fails, or that
is not finite anywhere, counts as zero. Sums wrap around at 32 bits; so does what noise adds, and
whoever sees a sum modulo 2³² sees a function of it.
"""

import math
from typing import Final

import jax
import jax.numpy as jnp

from quorum_rl.errors import QuorumError

Array = jax.Array

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
    """
    Raises:
        QuorumError: for more parameters than a norm can be checked of, or than the lattice has
            units for.
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
