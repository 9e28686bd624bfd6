"""How likely noise lifts a count over the offset: tails of a difference of two Laplace draws.

All bounds are from above, and offsets are rounded up: rounding never favours the claim.
"""

import math
from typing import Final

ROUNDING: Final = 1 + 1e-9  # more than what double precision can take off the values here
EQUAL: Final = 1e-5  # relative distance below which two scales are treated as the larger of them


def difference_tail(offset: float, first_epsilon: float, second_epsilon: float) -> float:
    """An upper bound on Pr[X − Y > offset] for X ~ Lap(1/first_epsilon), Y ~ Lap(1/second_epsilon).

    Exact up to rounding, unless the scales are nearly equal: then both are taken as the larger,
    which only raises the tail.
    """
    if offset < 0:
        return 1.0
    low, high = sorted((first_epsilon, second_epsilon))  # `low` has the larger scale
    decay = math.exp(-low * offset)
    if high - low < EQUAL * low:
        return decay * (2 + low * offset) / 4 * ROUNDING
    ratio = (low / high) ** 2
    return decay * (1 - ratio * math.exp((low - high) * offset)) / (2 * (1 - ratio)) * ROUNDING


def lattice_tail(offset: float, query_epsilon: float, threshold_epsilon: float, bits: int) -> float:
    """As `difference_tail`, for discrete Laplace noise on the lattice of 2**-bits.

    Each discrete draw is stochastically at most a continuous one plus one step of the lattice.
    """
    return difference_tail(offset - 2 * 2.0**-bits, query_epsilon, threshold_epsilon)


def lattice_offset(
    delta: float, query_epsilon: float, threshold_epsilon: float, bits: int
) -> float:
    """The least offset, in whole lattice steps, that noise passes with probability `delta`.

    Guarantee: `lattice_tail` of the result is at most `delta`.
    """
    low, high = 0.0, 1.0

    def tail(offset: float) -> float:
        return difference_tail(offset, query_epsilon, threshold_epsilon)

    while tail(high) > delta:
        high *= 2
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if tail(middle) > delta else (low, middle)
    return (math.ceil(high * 2.0**bits) + 2) / 2.0**bits
