"""What several runs say together: means, interquartile means and their 95% intervals."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from quorum_rl.errors import QuorumError

Scores: TypeAlias = npt.NDArray[np.float64]

CONFIDENCE = 0.95
RESAMPLES = 5000
BOOTSTRAP_SEED = 0  # fixed, so that the same runs always get the same interval


@dataclass(frozen=True)
class Interval:
    """From `low` to `high`."""

    low: float
    high: float


@dataclass(frozen=True)
class Summary:
    """The scores of independent runs in a few numbers.

    The interquartile mean leaves out the worst and the best quarter: one lucky or broken seed
    hardly moves it. Its bootstrap interval is too narrow below ten seeds or so; prefer the
    mean's, which is exact for normal scores. One seed says nothing of others: no intervals.
    """

    seeds: int
    mean: float
    mean_interval: Interval | None  # Student's t
    interquartile_mean: float
    interquartile_interval: Interval | None  # bootstrap, stratified by world


def summarise(scores: npt.ArrayLike) -> Summary:
    """Summarise one score for each seed.

    With several worlds each world is a stratum: the bootstrap draws as many seeds of each as
    there are, as Agarwal et al. (2021, "Deep RL at the edge of the statistical precipice") do,
    and Student's t is applied to the means over the worlds of the seeds with equal numbers.

    Shapes: `(seeds,)` or `(worlds, seeds)`.

    Raises:
        QuorumError: if there are no scores, or one is not finite.
    """
    table = np.atleast_2d(np.asarray(scores, np.float64))
    if table.ndim != 2 or table.size == 0:
        raise QuorumError(
            f"scores have the shape {table.shape}: give one for each seed, or (worlds, seeds)."
        )
    if not np.isfinite(table).all():
        raise QuorumError(
            f"{np.count_nonzero(~np.isfinite(table))} of {table.size} scores are not finite: "
            "evaluate only runs that trained without error."
        )
    seeds = table.shape[1]
    several = seeds > 1
    return Summary(
        seeds=seeds,
        mean=float(table.mean()),
        mean_interval=_student_interval(table.mean(axis=0)) if several else None,
        interquartile_mean=float(interquartile_mean(table.reshape(-1))),
        interquartile_interval=_bootstrap_interval(table) if several else None,
    )


def paired_difference(ours: npt.ArrayLike, theirs: npt.ArrayLike) -> Summary:
    """How much more one method scores than another over the same seeds.

    Pairing takes out what the two have in common: the experts, the logs, the start states of run i
    (see `returns_of`). Ours is better at 95% confidence where `mean_interval.low` is above zero.

    Shapes: both `(seeds,)` or both `(worlds, seeds)`, in the same order of seeds.

    Raises:
        QuorumError: if the shapes differ, or as `summarise`.
    """
    first, second = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    if first.shape != second.shape:
        raise QuorumError(
            f"the scores to compare have the shapes {first.shape} and {second.shape}: "
            "give both methods the same seeds, in the same order."
        )
    return summarise(first - second)


def interquartile_mean(scores: Scores) -> Scores:
    """The mean without the lowest and the highest quarter; of each, the part below a whole stays.

    Shapes: `(…, scores) -> (…)`.
    """
    cut = scores.shape[-1] // 4
    ordered = np.sort(scores, axis=-1)
    middle: Scores = ordered[..., cut : scores.shape[-1] - cut].mean(axis=-1)
    return middle


def _student_interval(values: Scores) -> Interval:
    centre = values.mean()
    quantile = stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2)
    half = quantile * values.std(ddof=1) / np.sqrt(len(values))
    return Interval(float(centre - half), float(centre + half))


def _bootstrap_interval(table: Scores) -> Interval:
    """The percentile interval of the interquartile mean over seeds redrawn within each world."""
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    drawn = rng.integers(table.shape[1], size=(RESAMPLES, *table.shape))
    redrawn = np.take_along_axis(table[None], drawn, axis=-1).reshape(RESAMPLES, -1)
    outside = (1 - CONFIDENCE) / 2
    low, high = np.quantile(interquartile_mean(redrawn), [outside, 1 - outside])
    return Interval(float(low), float(high))
