"""The exact discrete Laplace sampler against SciPy's distribution."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from quorum_rl.budget.entropy import BitStream, SeededEntropy
from quorum_rl.release import noise as module
from quorum_rl.release.noise import discrete_laplace

FALSE_ALARM = 1e-6  # of every statistical test below; with fixed seeds they pass or fail for good
DRAWS = 20_000

Sampler = Callable[[BitStream, Fraction], int]


def drawn(epsilon: Fraction, sampler: Sampler = discrete_laplace) -> npt.NDArray[np.int64]:
    stream = SeededEntropy(7).stream("discrete Laplace", str(epsilon))
    return np.array([sampler(stream, epsilon) for _ in range(DRAWS)])


def chi_square_pvalue(values: npt.NDArray[np.int64], epsilon: Fraction) -> float:
    """Against `scipy.stats.dlaplace`, every integer its own cell while it expects 20 draws."""
    law = stats.dlaplace(float(epsilon))
    edge = 0
    while law.pmf(edge + 1) * DRAWS >= 20:
        edge += 1
    cells = np.arange(-edge, edge + 1)
    counts = [np.sum(values < -edge), *(np.sum(values == z) for z in cells), np.sum(values > edge)]
    expected = [law.cdf(-edge - 1), *law.pmf(cells), law.sf(edge)]
    return float(stats.chisquare(counts, np.array(expected) / np.sum(expected) * DRAWS).pvalue)


@pytest.mark.parametrize(
    "epsilon",
    [Fraction(3), Fraction(1), Fraction(7, 10), Fraction(1, 3), Fraction(0.1), Fraction(2, 41)],
)
def test_every_integer_comes_as_often_as_it_should(epsilon: Fraction) -> None:
    assert chi_square_pvalue(drawn(epsilon), epsilon) > FALSE_ALARM


@pytest.mark.parametrize("epsilon", [0.1, 0.0123456789, 1.7, 25.0])
def test_on_the_lattice_of_the_release_it_is_laplace_noise(epsilon: float) -> None:
    """At a scale of 2**32/epsilon steps the discrete law and the continuous one are the same to
    every test of this size: their distribution functions differ by less than 2**-32·epsilon."""
    values = drawn(Fraction(epsilon) / 2**32) / 2**32
    law = stats.laplace(scale=1 / epsilon)
    assert stats.kstest(values, law.cdf).pvalue > FALSE_ALARM
    # The tail, where the threshold's offset is decided: Kolmogorov-Smirnov hardly sees it.
    for tail in (0.1, 0.01, 0.001):
        beyond = int(np.sum(np.abs(values) > law.isf(tail / 2)))
        assert stats.binomtest(beyond, DRAWS, tail).pvalue > FALSE_ALARM
    # The low bits are uniform: noise on a coarser lattice would give the counts away.
    low = np.bincount(drawn(Fraction(epsilon) / 2**32) % 16, minlength=16)
    assert stats.chisquare(low).pvalue > FALSE_ALARM


def _zero_for_both_signs(stream: BitStream, epsilon: Fraction) -> int:
    size = module._geometric(stream, epsilon.denominator) // epsilon.numerator
    return -size if stream.bits(1) else size


def _one_sided_coins(stream: BitStream, epsilon: Fraction) -> int:
    """Forgets that zero is reached with one sign only, the other way round: it never is."""
    while (z := discrete_laplace(stream, epsilon)) == 0:
        pass
    return z


def _a_little_too_small(stream: BitStream, epsilon: Fraction) -> int:
    return discrete_laplace(stream, epsilon * Fraction(11, 10))


@pytest.mark.parametrize("fault", [_zero_for_both_signs, _one_sided_coins, _a_little_too_small])
def test_a_sampler_with_a_fault_would_be_noticed(fault: Sampler) -> None:
    epsilon = Fraction(1, 3)
    assert chi_square_pvalue(drawn(epsilon, fault), epsilon) < FALSE_ALARM


def test_a_coin_of_probability_exp_is_fair_to_its_probability() -> None:
    stream = SeededEntropy(3).stream("coins")
    for numerator, denominator in ((0, 5), (1, 5), (4, 5), (1, 1), (2**80 - 3, 2**81)):
        heads = sum(module._exp_coin(stream, numerator, denominator) for _ in range(DRAWS))
        probability = float(np.exp(-numerator / denominator))
        assert stats.binomtest(heads, DRAWS, probability).pvalue > FALSE_ALARM


def test_the_noise_of_one_step_does_not_depend_on_when_it_is_drawn() -> None:
    entropy, epsilon = SeededEntropy(5), Fraction(0.1) / 2**32
    steps = [(iteration, step) for iteration in range(20) for step in range(20)]
    forwards = {at: discrete_laplace(entropy.stream("query", *at), epsilon) for at in steps}
    backwards = {at: discrete_laplace(entropy.stream("query", *at), epsilon) for at in steps[::-1]}
    assert forwards == backwards
    assert len(set(forwards.values())) == len(steps)


@pytest.mark.parametrize("epsilon", [Fraction(0), Fraction(-1, 2)])
def test_noise_needs_a_positive_epsilon(epsilon: Fraction) -> None:
    with pytest.raises(ValueError, match="positive epsilon"):
        discrete_laplace(SeededEntropy(0).stream(), epsilon)
