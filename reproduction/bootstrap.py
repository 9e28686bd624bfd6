"""Intervals over populations and seeds: both are drawn again, populations first.

One draw takes as many populations as there are, with replacement, and of each of them as many
seeds. With three populations there are ten different sets of them, so an interval is coarse and
rather too narrow; it says how much the experts matter at all.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

Table = npt.NDArray[np.float64]

RESAMPLES: Final = 5000
OUTSIDE: Final = 0.025  # of all draws, at each end
SEED: Final = 0  # fixed: the same results have the same interval


class Estimate(NamedTuple):
    """A number with its 95% interval."""

    mean: float
    low: float
    high: float


def estimate(
    statistic: Callable[..., npt.NDArray[Any]], *tables: Table, resamples: int = RESAMPLES
) -> Estimate:
    """The mean over populations of what `statistic` makes of each population's means.

    Populations are drawn for all tables together, seeds for each by itself; what is paired by seed
    is given as one table of differences. What is known of a population without seeds has one
    column.

    Shapes: tables are (populations, seeds); `statistic` takes as many arrays (…, populations) and
    gives one of that shape.
    """
    rng = np.random.default_rng(SEED)
    count = len(tables[0])
    chosen = rng.integers(count, size=(resamples, count))

    def redrawn(table: Table) -> Table:
        seeds = rng.integers(table.shape[1], size=(resamples, count, table.shape[1]))
        drawn: Table = np.take_along_axis(table[chosen], seeds, axis=-1).mean(axis=-1)
        return drawn

    values = statistic(*map(redrawn, tables)).mean(axis=-1)
    low, high = np.quantile(values, [OUTSIDE, 1 - OUTSIDE])
    mean = statistic(*(table.mean(axis=1) for table in tables)).mean()
    return Estimate(float(mean), float(low), float(high))
