"""Gaussian noise on whole numbers, exact: no value is out of its reach, and none is too likely.

A private step needs floor(s·Z + 1/2) for a standard normal Z. It is found by inversion: Z is where
the normal distribution function reaches a uniform number p. Of p the first 63 bits are drawn, and
double precision says where s·Z lies and how far off that may be. If a cell of the rounding holds
all of it, the cell is decided. If not (once in ten thousand draws or far less), more bits of p are
drawn, and the cell's edge is computed to as many digits as it takes. So every draw has exactly the
law that docs/theory.md asks for, as far as the generator's bits are uniform.
"""

import math
from functools import lru_cache, partial
from typing import Any, Final

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import numpy.typing as npt
from jax.scipy.special import ndtri
from scipy.special import ndtri as scipy_ndtri

from quorum_rl.training.randomness import Array, keys_of, random_words, step_key

UNDECIDED: Final = np.int32(-(2**31))
# How far off double precision may be: of z, in relation to |z| and by itself. Both are a thousand
# times what was measured (tests/training/test_noise.py).
RELATIVE, ABSOLUTE = 2.0**-42, 2.0**-42
STEEPEST: Final = 1.2534  # the most that ln p moves z by: Mills' ratio at 0
WORD: Final = 2.0**32
MORE_BITS: Final = 32


def rounded_noise(noise_keys: Any, scales: Any, first: int, steps: int, count: int) -> Array:
    """The noise of some steps of some runs: floor(scale·Z + 1/2), Z standard normal, exactly.

    `first` is the number of the first step, counted from one. A number depends on the run's key,
    the step's number and its place alone.

    Shapes: `noise_keys` (runs, 2), words; `scales` (runs,), doubles; (steps, runs, count), int32.
    """
    with jax.enable_x64(True):
        drawn: Array
        keys, wide = np.asarray(noise_keys, np.uint32), np.asarray(scales, np.float64)
        numbers = np.arange(first, first + steps, dtype=np.uint32)
        drawn, undecided = _program(count)(keys, wide, numbers)
        missing = int(undecided)
    if not missing:
        return drawn
    words = np.asarray(noise_keys, np.uint32)
    return _with_the_rest(drawn, words, np.asarray(scales, np.float64), first)


@lru_cache(maxsize=64)
def _program(count: int) -> Any:
    def of_run(key_words: Array, scale: Array, number: Array) -> Array:
        key = keys_of(step_key(key_words, number)).noise
        # A whole number of vectors: an odd number is compiled to a slower loop.
        high, low = random_words(key, 0, jnp.arange(64 * math.ceil(count / 64), dtype=jnp.uint32))
        return _decided(high, low, scale)[:count]

    def every(keys: Array, scales: Array, numbers: Array) -> tuple[Array, Array]:
        of_step = jax.vmap(of_run, (0, 0, None))
        drawn = jax.lax.map(partial(of_step, keys, scales), numbers)
        return drawn, (drawn == UNDECIDED).sum()

    return jax.jit(every)


def _decided(high: Array, low: Array, scale: Array) -> Array:
    """The rounded numbers that 64 bits each decide; `UNDECIDED` where they do not.

    The lowest bit is the sign, the others p: Pr[|Z| > |z|] = p up to the bits still to come.
    """
    whole = high.astype(jnp.float64) * (WORD / 2) + (low >> 1).astype(jnp.float64)
    z = -ndtri((whole + 0.5) * 2.0**-64)
    size = scale * z
    unsure = scale * (RELATIVE * z + ABSOLUTE + STEEPEST / (whole + 0.5))
    cell = jnp.floor(size + 0.5)
    sure = (whole > 0) & (jnp.abs(size - cell) < 0.5 - unsure)
    signed = jnp.where(low & 1 == 1, -cell, cell)
    return jnp.where(sure & (cell < WORD / 2), signed, float(UNDECIDED)).astype(jnp.int32)


def _with_the_rest(
    drawn: Array, key_words: npt.NDArray[np.uint32], scales: npt.NDArray[np.float64], first: int
) -> Array:
    """The same with every undecided number drawn to the end."""
    every = np.array(drawn)
    for step, run, place in np.argwhere(every == UNDECIDED):
        key = keys_of(step_key(jnp.asarray(key_words[run]), jnp.uint32(first + step))).noise
        every[step, run, place] = _in_full(key, int(place), float(scales[run]))
    return jnp.asarray(every)


def _in_full(key: Array, place: int, scale: float) -> int:
    """One number, with as many bits and digits as its cell takes; beyond int32 it wraps around."""

    def more(stream: int) -> tuple[int, int]:
        high, low = random_words(key, stream, jnp.full(1, place, jnp.uint32))
        return int(high[0]), int(low[0])

    high, low = more(0)
    bits, whole, stream = 64, high << 31 | low >> 1, 0
    while True:
        stream += 1
        bits, whole = bits + MORE_BITS, whole << MORE_BITS | more(stream)[0]
        cell = cell_of(whole, bits, scale)
        if cell is not None:
            signed = -cell if low & 1 else cell
            return (signed + 2**31) % 2**32 - 2**31


def cell_of(whole: int, bits: int, scale: float) -> int | None:
    """floor(scale·z + 1/2) for z ≥ 0 with Pr[Z > z] from whole to whole + 1, over 2^bits.

    None if that is not one number.
    """
    with mpmath.workprec(bits + 64):
        least, most = (mpmath.ldexp(end, -bits) for end in (whole, whole + 1))

        def beyond(cell: int) -> Any:
            """Pr[Z > z] at the upper edge of a cell."""
            return mpmath.erfc((cell + mpmath.mpf(0.5)) / (scale * mpmath.sqrt(2))) / 2

        cell = max(round(-scale * float(scipy_ndtri(max(float(most), 1e-300)))), 0)
        while most <= beyond(cell):
            cell += 1
        while cell > 0 and least >= beyond(cell - 1):
            cell -= 1
        inside = beyond(cell) <= least and (cell == 0 or most <= beyond(cell - 1))
        return cell if inside else None
