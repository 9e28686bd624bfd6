"""The noise of a release: Laplace on the integers, drawn exactly, when it is needed.

Whole numbers only, never a float: the probabilities are what the privacy proof says they are, bit
for bit, so the known attacks on floating-point noise have nothing to hold on to. The method is that
of Canonne, Kamath and Steinke ("The Discrete Gaussian for Differential Privacy", 2020): coins of
probability exp(−γ) from uniform integers, and geometric variables from such coins.

Every draw has a stream of its own, named by iteration and step. So what is released does not depend
on the order or the blocks in which counts are computed.
"""

from fractions import Fraction

from quorum_rl.budget import BitStream, Entropy
from quorum_rl.privacy import ReleaseEvent


class Noise:
    """Exact noise for one release, in steps of its lattice."""

    def __init__(self, entropy: Entropy, event: ReleaseEvent) -> None:
        self._entropy = entropy
        unit = 2**event.lattice_bits
        self._threshold_rate = Fraction(event.threshold_epsilon) / unit
        self._query_rate = Fraction(event.query_epsilon) / unit
        self._stop = Fraction(event.stop_probability)

    def threshold(self, iteration: int) -> int:
        """What is added to the threshold of an iteration."""
        return discrete_laplace(self._entropy.stream("threshold", iteration), self._threshold_rate)

    def query(self, iteration: int, step: int) -> int:
        """What is added to the count of the prefix that ends with `step`."""
        return discrete_laplace(self._entropy.stream("query", iteration, step), self._query_rate)

    def stops(self, iteration: int, step: int) -> bool:
        """Whether the iteration ends before `step` is queried, whatever the data."""
        if self._stop == 0:
            return False
        drawn = self._entropy.stream("stop", iteration, step).below(self._stop.denominator)
        return drawn < self._stop.numerator


def discrete_laplace(stream: BitStream, epsilon: Fraction) -> int:
    """One integer z with probability proportional to exp(−epsilon·|z|), exactly.

    `epsilon` is the rate per lattice step: with noise of density exp(−e·|x|) on the lattice of
    2**-bits it is `Fraction(e) / 2**bits`.

    Raises:
        ValueError: if `epsilon` is not positive.
    """
    if epsilon <= 0:
        raise ValueError(f"noise needs a positive epsilon, not {epsilon}")
    step, fine = epsilon.numerator, epsilon.denominator
    while True:
        # The size: the rate of `geometric` is 1/fine, and every `step` of its values become one.
        size = _geometric(stream, fine) // step
        negative = stream.bits(1)
        if size or not negative:  # zero must not be counted once for each sign
            return -size if negative else size


def _geometric(stream: BitStream, scale: int) -> int:
    """x = 0, 1, 2, … with probability proportional to exp(−x/scale).

    With x = fraction + scale·whole the two parts are independent.
    """
    while not _exp_coin(stream, fraction := stream.below(scale), scale):
        pass
    whole = 0
    while _exp_coin(stream, 1, 1):
        whole += 1
    return fraction + scale * whole


def _exp_coin(stream: BitStream, numerator: int, denominator: int) -> bool:
    """True with probability exp(−γ) for γ = numerator/denominator between 0 and 1.

    Coins of probability γ/1, γ/2, γ/3, … are tossed until one fails: at least k of them succeed
    with probability γ^k/k!, so the number of successes is even with probability exp(−γ).
    """
    successes = 0
    while stream.below(successes + 1) == 0 and stream.below(denominator) < numerator:
        successes += 1
    return successes % 2 == 0
