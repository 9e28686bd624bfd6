"""From what an adversary saw, with and without one expert, to what privacy was lost at least.

A mechanism that is (ε, δ)-private satisfies P(S) ≤ e^ε·Q(S) + δ and Q(S) ≤ e^ε·P(S) + δ for every
set S of outputs; P is their distribution with the expert, Q without. So one set with
P(S) > e^ε·Q(S) + δ, seen in enough runs, refutes the claim. Sets here are "the score is at least
this" and "the score is below this", for any score of an output.

The set is chosen on the first quarter of the runs and judged on the others, which had no part in
the choice: no correction for many sets is needed, and the two rates get exact intervals (Clopper
and Pearson).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.stats import beta, norm

from quorum_rl.errors import QuorumError

Floats = npt.NDArray[np.float64]
Direction = Literal["remove", "add"]
Value = Callable[[Floats, int, Floats, int, float, float], Floats]
"""What counts of two kinds of runs are worth: often of trials, seldom of others, δ, error."""

CONFIDENCE: Final = 0.95
CHOOSING: Final = 0.25  # the part of the runs that chooses; the others judge
MOST_THRESHOLDS: Final = 400
LEAST_RUNS: Final = 8
CAUTION: Final = 50


@dataclass(frozen=True)
class LowerBound:
    """With `confidence`, the mechanism is not (ε', delta)-private for any ε' below `epsilon`.

    `direction` says whether removing or adding the expert shows it. `judged` are the runs of each
    kind that the bound rests on.
    """

    epsilon: float
    delta: float
    confidence: float
    direction: Direction
    judged: int


def lower_bound(
    present: npt.ArrayLike, absent: npt.ArrayLike, delta: float, confidence: float = CONFIDENCE
) -> LowerBound:
    """What independent runs with and without the expert say of ε at `delta`, whatever the score.

    Runs must be in an order that does not depend on their scores.

    Guarantee: the bound exceeds the true ε with probability at most 1 − `confidence`.

    Shapes: `(runs,)` each; a higher score should speak for the expert's presence.

    Raises:
        QuorumError: for fewer than eight runs of a kind, or scores that are no numbers.
    """
    return _judged(present, absent, delta, confidence, _epsilon)


def gaussian_lower_bound(
    present: npt.ArrayLike, absent: npt.ArrayLike, delta: float, confidence: float = CONFIDENCE
) -> LowerBound:
    """As `lower_bound`, for a mechanism whose trade-off function is that of a Gaussian one.

    Assumption: telling P from Q is exactly as hard as telling N(0, 1) from N(μ, 1) for some μ. So
    it is for private steps that draw everybody, seen along one expert's gradient. One threshold
    then bounds μ, and μ every (ε, δ): far tails need not be sampled. Where the assumption fails,
    so may the bound.
    """
    made = _judged(present, absent, delta, confidence, _separation)
    return replace(made, epsilon=gaussian_epsilon(made.epsilon, delta))


def gaussian_epsilon(separation: float, delta: float) -> float:
    """The ε of telling N(0, 1) from N(separation, 1), at `delta` (Balle and Wang, 2018)."""
    if separation <= 0:
        return 0.0

    def excess(epsilon: float) -> float:
        near, far = norm.logcdf(
            [separation / 2 - epsilon / separation, -separation / 2 - epsilon / separation]
        )
        return float(math.exp(near) - math.exp(min(epsilon + far, 700.0)) - delta)

    if excess(0.0) <= 0:
        return 0.0
    return float(brentq(excess, 0.0, 10 * separation**2 + 50 * separation + 1, xtol=1e-9))


def proportion_bounds(
    successes: npt.ArrayLike, trials: float, error: float
) -> tuple[Floats, Floats]:
    """Exact bounds on a proportion, each wrong with probability at most `error`."""
    found = np.asarray(successes, np.float64)
    with np.errstate(invalid="ignore"):
        low = np.where(found <= 0, 0.0, beta.ppf(error, found, trials - found + 1))
        high = np.where(found >= trials, 1.0, beta.ppf(1 - error, found + 1, trials - found))
    return low, high


def ratio_scores(present: Any, absent: Any) -> tuple[Floats, Floats]:
    """Scores of runs that put out a list of outcomes: how much oftener each comes with the expert.

    The logarithms of the ratios are estimated on the part that chooses, so judging stays
    independent of them.

    Shapes: whole numbers `(runs, outcomes)` each, to `(runs,)` each.
    """
    kinds = int(max(np.max(present), np.max(absent))) + 1
    counts = [
        np.bincount(np.ravel(seen[: choosing_runs(len(seen))]), minlength=kinds) + 0.5
        for seen in (present, absent)
    ]
    ratios = np.log(counts[0] / counts[0].sum()) - np.log(counts[1] / counts[1].sum())
    return ratios[present].sum(axis=1), ratios[absent].sum(axis=1)


def oriented(present: Any, absent: Any) -> tuple[Floats, Floats]:
    """Scores of which nobody knows beforehand whether a higher or a lower one speaks for presence.

    The part that chooses decides it, so judging stays independent of it. Shapes: (runs,) each.
    """
    first = [np.median(seen[: choosing_runs(len(seen))]) for seen in (present, absent)]
    sign = 1.0 if first[0] >= first[1] else -1.0
    return sign * present, sign * absent


def choosing_runs(runs: int) -> int:
    """How many of so many runs, the first ones, choose what the others judge."""
    return math.ceil(CHOOSING * runs)


def _judged(
    present: npt.ArrayLike, absent: npt.ArrayLike, delta: float, confidence: float, value: Value
) -> LowerBound:
    """Choose a direction and a threshold by the first runs, and value them by the others.

    What `value` says is in the place of ε.
    """
    here, away = _checked(present), _checked(absent)
    error = (1 - confidence) / 2  # for each of the two rates
    directions: dict[Direction, tuple[Floats, Floats]] = {
        "remove": (here, away),
        "add": (-away, -here),
    }
    best: tuple[float, Direction, float] = (-math.inf, "remove", 0.0)
    for direction, (likely, rare) in directions.items():
        first = likely[: choosing_runs(len(likely))], rare[: choosing_runs(len(rare))]
        thresholds = _thresholds(np.concatenate(first))
        often, seldom = (_at_least(kind, thresholds) for kind in first)
        # More cautiously than in the end, because the best of many is the luckiest, too.
        expected = value(often, len(first[0]), seldom, len(first[1]), delta, error / CAUTION)
        place = int(np.argmax(expected))
        if expected[place] > best[0]:
            best = float(expected[place]), direction, float(thresholds[place])
    _, direction, threshold = best
    judging = [kind[choosing_runs(len(kind)) :] for kind in directions[direction]]
    often, seldom = (_at_least(kind, np.array([threshold])) for kind in judging)
    found = value(often, len(judging[0]), seldom, len(judging[1]), delta, error)
    shown = max(float(found[0]), 0.0)
    return LowerBound(shown, delta, confidence, direction, min(map(len, judging)))


def _epsilon(
    often: Floats, trials: int, seldom: Floats, others: int, delta: float, error: float
) -> Floats:
    """ln((P(S) − δ)/Q(S)) at least; −∞ where nothing is shown."""
    low, _ = proportion_bounds(often, trials, error)
    _, high = proportion_bounds(seldom, others, error)
    with np.errstate(divide="ignore"):
        made: Floats = np.log(np.maximum(low - delta, 0)) - np.log(high)
    return made


def _separation(
    often: Floats, trials: int, seldom: Floats, others: int, delta: float, error: float
) -> Floats:
    """The μ of a Gaussian trade-off through these two rates, at least."""
    del delta
    low, _ = proportion_bounds(often, trials, error)
    _, high = proportion_bounds(seldom, others, error)
    made: Floats = np.asarray(norm.ppf(low) - norm.ppf(high))
    return np.where(np.isnan(made), -np.inf, made)


def _thresholds(scores: Floats) -> Floats:
    """All scores that occur; of many, evenly spread ones and more in the tails."""
    values = np.unique(scores)
    if len(values) <= MOST_THRESHOLDS:
        return values
    share = norm.cdf(np.linspace(-4, 4, MOST_THRESHOLDS))
    return np.unique(np.quantile(scores, share, method="nearest"))


def _at_least(scores: Floats, thresholds: Floats) -> Floats:
    """How many scores reach each threshold."""
    return (len(scores) - np.searchsorted(np.sort(scores), thresholds, side="left")).astype(float)


def _checked(scores: npt.ArrayLike) -> Floats:
    found = np.asarray(scores, np.float64)
    if found.ndim != 1 or len(found) < LEAST_RUNS:
        raise QuorumError(f"there are {found.size} runs of a kind: an audit needs {LEAST_RUNS}.")
    if np.isnan(found).any():
        raise QuorumError("a score is no number: the audited runs have diverged.")
    return found
