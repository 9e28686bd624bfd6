"""Tails of the noise's difference against numerical integration and exact sums on a lattice."""

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.integrate import quad
from scipy.stats import dlaplace, laplace

from quorum_rl.privacy.laplace import difference_tail, lattice_offset, lattice_tail

SCALES = [(0.136, 0.162), (0.162, 0.136), (1.0, 1.0), (0.5, 0.5 * (1 + 5e-6)), (2.0, 0.1)]


def integrated_tail(offset: float, first: float, second: float) -> float:
    """Pr[X − Y > offset] as an integral over Y, from breakpoint to breakpoint."""
    other, law = laplace(scale=1 / second), laplace(scale=1 / first)

    def part(low: float, high: float) -> float:
        value, _ = quad(lambda y: other.pdf(y) * law.sf(offset + y), low, high, epsabs=1e-15)
        return float(value)

    far = 60 / min(first, second)
    return part(-far, -offset) + part(-offset, 0.0) + part(0.0, far)


def exact_lattice_tail(offset: float, query: float, threshold: float, bits: int) -> float:
    """Pr[Z_q − Z_t > offset] for discrete Laplace noise on the lattice, as a sum over Z_t."""
    step = 2.0**-bits
    far = math.ceil(60 / threshold / step)
    points = np.arange(-far, far + 1)
    least = math.floor(offset / step) + points  # Z_q must be more steps than this
    return float(np.sum(dlaplace(threshold * step).pmf(points) * dlaplace(query * step).sf(least)))


@pytest.mark.parametrize(("first", "second"), SCALES)
@pytest.mark.parametrize("offset", [0.0, 0.7, 6.0, 30.0])
def test_the_tail_is_that_of_the_integral_never_less(
    first: float, second: float, offset: float
) -> None:
    exact = integrated_tail(offset, first, second)
    ours = difference_tail(offset, first, second)
    assert exact * (1 - 1e-9) <= ours <= exact * (1 + 2e-5 * (1 + offset)) + 1e-14


def test_a_negative_offset_is_always_passed() -> None:
    assert difference_tail(-0.1, 1.0, 1.0) == 1.0


@pytest.mark.parametrize("bits", [1, 3, 6])
@pytest.mark.parametrize(("query", "threshold"), [(0.3, 0.5), (0.5, 0.3), (1.0, 1.0)])
def test_on_a_lattice_the_tail_is_at_most_what_is_charged(
    bits: int, query: float, threshold: float
) -> None:
    step = 2.0**-bits
    # Just below a lattice point, too, where the discrete tail is largest beside the continuous one.
    for offset in (step, 1.0, 3.5, 12.0, 40.0, 4 - 1e-6, 12 - 1e-6):
        exact = exact_lattice_tail(offset, query, threshold, bits)
        assert exact <= lattice_tail(offset, query, threshold, bits)


def test_the_allowance_for_the_lattice_is_needed() -> None:
    """Between two lattice points, discrete noise passes more often than continuous noise."""
    offset, bits = 4.0 - 1e-6, 1
    assert exact_lattice_tail(offset, 0.5, 0.3, bits) > difference_tail(offset, 0.5, 0.3)


@settings(max_examples=50, derandomize=True)
@given(
    query=st.floats(0.05, 2.0),
    threshold=st.floats(0.05, 2.0),
    delta=st.floats(1e-12, 0.05),
    bits=st.integers(2, 6),
)
def test_an_offset_is_passed_as_seldom_as_asked_and_hardly_less(
    query: float, threshold: float, delta: float, bits: int
) -> None:
    offset = lattice_offset(delta, query, threshold, bits)
    assert offset * 2**bits == round(offset * 2**bits)
    assert lattice_tail(offset, query, threshold, bits) <= delta
    assert exact_lattice_tail(offset, query, threshold, bits) <= delta
    # Five lattice steps less would be too little: rounding up, twice the allowance, and one step.
    assert exact_lattice_tail(offset - 5 * 2.0**-bits, query, threshold, bits) > 0.99 * delta


def test_half_an_offset_would_be_passed_far_too_often() -> None:
    offset = lattice_offset(1e-5, 0.136, 0.162, 6)
    assert exact_lattice_tail(offset / 2, 0.136, 0.162, 6) > 100 * 1e-5
