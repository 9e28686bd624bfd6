"""The noise of a release: one draw for each threshold and each query, made when it is needed.

Every draw has a stream of its own, named by iteration and step. So what is released does not
depend on the order or the blocks in which counts are computed.
"""

from fractions import Fraction

from quorum_rl.budget import Entropy
from quorum_rl.privacy import ReleaseEvent
from quorum_rl.release.discrete_laplace import discrete_laplace


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
