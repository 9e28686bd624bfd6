"""Counting: how many experts would have gone along with a prefix, in whole steps of a lattice.

Each expert's product of probabilities is kept in fixed point and rounded down at every factor, so
it never exceeds the true product, and the counts are sums of integers: the same whatever the order,
the chunks or the devices, given the same probabilities. Adding an expert raises a count by 0 to
2**bits steps, exactly.
"""

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

import numpy as np
import numpy.typing as npt

from quorum_rl.experts import ExpertSet
from quorum_rl.privacy import ReleaseEvent
from quorum_rl.release.mechanism import Integers

EXPERTS_AT_ONCE: Final = 512  # with the rows below, arrays of 28 MiB: memory that is reused
WORKERS: Final = 4  # threads that count, at most so many chunks behind
ROWS_AT_ONCE: Final = 7168
SHADE: Final = 1 - 2.0**-50  # more than double precision can add to a quotient

FixedPoint = npt.NDArray[np.uint64]


class PrefixCounts:
    """The counts of growing prefixes of some trajectories.

    Memory beyond one number per expert and trajectory is bounded by a few times `experts_at_once`
    times `rows_at_once`, however many experts and trajectories there are. With `share`, only those
    experts are asked and counted.

    Shapes: `states` (iterations, steps, observation_size), `actions` (iterations, steps), padded
    however one likes; `counted` (experts,), False for those who were dropped.
    """

    def __init__(
        self,
        event: ReleaseEvent,
        experts: ExpertSet,
        counted: npt.NDArray[np.bool_],
        states: npt.NDArray[np.float32],
        actions: npt.NDArray[np.int32],
        *,
        experts_at_once: int = EXPERTS_AT_ONCE,
        rows_at_once: int = ROWS_AT_ONCE,
        share: slice = slice(None),
    ) -> None:
        self._event = event
        self._experts = experts
        self._asked = range(len(experts))[share]
        self._states, self._actions = states, actions
        self._experts_at_once, self._rows_at_once = experts_at_once, rows_at_once
        self._products: FixedPoint = np.zeros((len(self._asked), len(states)), np.uint64)
        self._products[counted[share]] = 2**event.lattice_bits

    def __call__(self, still_open: Integers, first: int, last: int) -> Integers:
        """The counts of the next steps; see `mechanism.released_lengths`."""
        counts = np.zeros((len(still_open), last - first), np.int64)
        at_once = max(self._rows_at_once // (last - first), 1)
        for start in range(0, len(still_open), at_once):
            part = slice(start, start + at_once)
            counts[part] = self._part(still_open[part], first, last)
        return counts

    def _part(self, iterations: Integers, first: int, last: int) -> Integers:
        # Steps come first, so that one step of all iterations lies together in memory.
        states = self._states[iterations, first:last].swapaxes(0, 1)
        actions = self._actions[iterations, first:last].swapaxes(0, 1)
        counts = np.zeros(actions.shape, np.int64)
        advancing: deque[Future[Integers]] = deque()
        with ThreadPoolExecutor(WORKERS) as workers:  # they count while the next are asked
            for start in range(0, len(self._asked), self._experts_at_once):
                places = slice(start, min(start + self._experts_at_once, len(self._asked)))
                some = self._asked[places]
                taken = self._experts.taken_probabilities(
                    slice(some.start, some.stop), states.reshape(actions.size, -1), actions.ravel()
                )
                if len(advancing) == WORKERS:
                    counts += advancing.popleft().result()
                shaped = taken.reshape(-1, *actions.shape)
                advancing.append(workers.submit(self._advance, places, iterations, shaped))
            for rest in advancing:
                counts += rest.result()
        return counts.T

    def _advance(
        self, places: slice, iterations: Integers, taken: npt.NDArray[np.float64]
    ) -> Integers:
        """Multiply the products of some experts by their next factors, and add them up.

        Shapes: `taken` (experts, steps, iterations) to (steps, iterations).
        """
        factors = fixed_point_factors(taken, self._event)
        kept = self._products[places]
        products = kept[:, iterations]
        counts = np.zeros(factors.shape[1:], np.int64)
        for step in range(len(counts)):
            products *= factors[:, step]
            products >>= np.uint64(self._event.lattice_bits)
            counts[step] = products.sum(axis=0, dtype=np.int64)
        kept[:, iterations] = products
        return counts


def fixed_point_factors(probabilities: npt.NDArray[np.float64], event: ReleaseEvent) -> FixedPoint:
    """What each probability multiplies a normalised product by, in fixed point, rounded down.

    At most 2**bits − 1, also where a probability exceeds the declared p_max; 0 where an expert gave
    no valid answer, which is NaN here. Its product is then 0 from there on: one expert adds between
    0 and 1 at every length, and never more at a greater one, whatever it answers.
    """
    most = event.p_max if event.mode == "tight" else 1.0
    unit = 2.0**event.lattice_bits
    scaled = probabilities * (unit * SHADE / most)
    np.minimum(scaled, unit - 1, out=scaled)
    np.fmax(scaled, 0.0, out=scaled)  # of NaN and 0, 0
    return scaled.astype(np.uint64)  # towards zero
