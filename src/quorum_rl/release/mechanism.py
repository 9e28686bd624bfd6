"""The pure core of the release: counts and noise in, released lengths out.

Algorithms 1 and 2 of the paper, as docs/theory.md analyses them. Everything around it (drawing,
counting, the ledger) is passed in, so the product, its exact tests and an audit all run this code.
"""

import math
from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt

from quorum_rl.privacy import ReleaseEvent

Integers = npt.NDArray[np.int64]
CountBlock = Callable[[Integers, int, int], Integers]
ReleaseProgress = Callable[[int, int], None]

FIRST_BLOCK = 4  # steps counted at once in the beginning, when many iterations end soon
LARGEST_BLOCK = 16


class NoiseDraws(Protocol):
    """The three draws that a release needs; see `noise.Noise`."""

    def threshold(self, iteration: int) -> int: ...

    def query(self, iteration: int, step: int) -> int: ...

    def stops(self, iteration: int, step: int) -> bool: ...


def released_lengths(
    event: ReleaseEvent,
    lengths: npt.ArrayLike,
    count_block: CountBlock,
    noise: NoiseDraws,
    progress: ReleaseProgress | None = None,
) -> Integers:
    """How many steps of each drawn trajectory come out.

    `lengths` has the steps of each iteration's trajectory, 0 where nothing may come out.
    `count_block(open, first, last)` returns the counts, in lattice steps, of the prefixes of
    first + 1 … last steps of the iterations `open`: it is called for consecutive blocks, each time
    with those that are still open, until none is. `progress` hears after each block how far the
    release has come: with outputs of the mechanism only.

    Guarantee: given fresh trajectories and exact noise, one iteration has the pair of distributions
    that `privacy.pairs.pair_of(event)` says.

    Shapes: `(iterations,)` in and out; counts `(open, last − first)`.
    """
    caps = np.minimum(np.asarray(lengths, np.int64), event.prefix_cap)
    released = np.zeros(len(caps), np.int64)
    base = math.ceil(event.threshold * 2.0**event.lattice_bits)
    still_open = np.flatnonzero(caps > 0)
    levels = {int(iteration): base + noise.threshold(int(iteration)) for iteration in still_open}
    for first, end in _blocks(event.prefix_cap):
        if not len(still_open):
            break
        last = min(end, int(caps[still_open].max()))
        counts = count_block(still_open, first, last)
        going_on = []
        for iteration, row in zip(still_open.tolist(), counts.tolist(), strict=True):
            cap = int(caps[iteration])
            passed = _passed(iteration, row[: cap - first], first, levels[iteration], noise)
            released[iteration] = first + passed
            if passed == last - first and first + passed < cap:
                going_on.append(iteration)
        still_open = np.array(going_on, np.int64)
        if progress is not None:
            progress(end, len(still_open))  # not `last`: how long a trajectory is is private
    return released


def _passed(iteration: int, counts: list[int], first: int, level: int, noise: NoiseDraws) -> int:
    """How many of these consecutive queries pass before one fails or chance stops the iteration."""
    for position, count in enumerate(counts):
        step = first + position
        if noise.stops(iteration, step) or count + noise.query(iteration, step) <= level:
            return position
    return len(counts)


def _blocks(cap: int) -> Iterator[tuple[int, int]]:
    """0 … cap in blocks that grow: most iterations end soon, the others should not wait."""
    first, size = 0, FIRST_BLOCK
    while first < cap:
        yield first, min(first + size, cap)
        first, size = first + size, min(2 * size, LARGEST_BLOCK)
