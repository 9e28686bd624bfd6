"""What private selection costs: the best of a geometric number of trainings (docs/sweeps.md).

Papernot and Steinke, "Hyperparameter tuning with Rényi differential privacy" (2022, Theorem 2),
give its Rényi divergences, which dp-accounting computes. They bound δ at every ε; the largest
convex function under that bound is the δ of a pair of distributions with finitely many losses,
which composes with whatever else a ledger holds.
"""

import math
from functools import lru_cache
from typing import Any, Final

import numpy as np
from dp_accounting import dp_event, rdp

from quorum_rl.privacy.events import SelectionEvent
from quorum_rl.privacy.losses import LARGEST, Floats, Losses

# Whole orders alone: their divergences are finite sums. Low ones serve a large ε, high a small δ.
ORDERS: Final = (*range(2, 65), *(round(2 ** (k / 8)) for k in range(49, 89)))
GEOMETRIC: Final = 1.0  # the shape of the number of trials
POINTS: Final = 1000  # of the curve of δ, on either side of ε = 0
UNLIKELY: Final = 1e-18  # the δ at which the curve ends: what is left counts as infinite loss


@lru_cache(maxsize=16)
def selection_losses(event: SelectionEvent) -> Losses:
    """Losses that dominate the selection, with an expert against without and the reverse alike."""
    divergences = _divergences(event)
    last = _last_epsilon(divergences)
    above = np.linspace(0.0, last, POINTS + 1)
    bound = _delta_bound(divergences, above)
    # Swapping the two distributions turns δ at ε into δ at −ε, and the bound holds both ways.
    below = -above[:0:-1]
    mirrored = 1 - np.exp(below) * (1 - bound[:0:-1])
    return _with_bound(np.concatenate([below, above]), np.concatenate([mirrored, bound]))


def _divergences(event: SelectionEvent) -> Floats:
    """At most the Rényi divergence of the whole at each of `ORDERS`, in both directions."""
    training = event.training
    step = dp_event.PoissonSampledDpEvent(
        training.sampling_rate, dp_event.GaussianDpEvent(training.noise_multiplier)
    )
    trial = dp_event.SelfComposedDpEvent(step, training.steps)
    whole = dp_event.RepeatAndSelectDpEvent(trial, float(event.mean_trials), GEOMETRIC)
    accountant: Any = rdp.RdpAccountant(list(ORDERS)).compose(whole)
    found: Floats = np.asarray(accountant.rdp, np.float64)
    return np.where(np.isfinite(found) & (found >= 0), found, np.inf)


def _delta_bound(divergences: Floats, epsilons: Floats) -> Floats:
    """At most δ at each ε ≥ 0 (Canonne, Kamath and Steinke 2020, Proposition 12)."""
    orders, bound = np.asarray(ORDERS), np.ones(len(epsilons))
    for order, divergence in zip(orders, divergences, strict=True):
        if math.isfinite(divergence):
            exponent = (order - 1) * (divergence - epsilons + math.log1p(-1 / order))
            bound = np.minimum(bound, np.exp(np.minimum(exponent - math.log(order), 0.0)))
    return bound


def _last_epsilon(divergences: Floats) -> float:
    """Where δ is too small to matter; an ε that a double can exponentiate at most."""
    last = 1.0
    while last < LARGEST / 2 and _delta_bound(divergences, np.array([last]))[0] > UNLIKELY:
        last *= 1.05
    return min(last, LARGEST / 2)


def _with_bound(epsilons: Floats, bound: Floats) -> Losses:
    """Losses whose δ lies nowhere below a convex function of e^ε that lies under `bound`.

    Between two of the points δ is linear in e^ε, and Q's mass beyond is minus its slope.
    """
    points = np.concatenate([[0.0], np.exp(epsilons)])
    heights = np.concatenate([[1.0], np.minimum(bound, 1.0)])
    kept = _lower_hull(points, heights)
    points, heights = points[kept], heights[kept]
    slopes = np.append(np.diff(heights) / np.diff(points), 0.0)
    other = np.maximum(np.diff(slopes), 0.0)  # Q's mass at each point but 0
    loss = np.log(points[1:])
    made = Losses(loss, other * points[1:], float(heights[-1]))
    lost = heights[1:] - made.deltas(loss)
    return Losses(loss, made.probability, made.infinite, max(float(lost.max()), 0.0))


def _lower_hull(points: Floats, heights: Floats) -> list[int]:
    """Which points carry the largest convex function that lies above none of them."""
    kept: list[int] = []
    for number in range(len(points)):
        while len(kept) > 1 and _slope(points, heights, kept[-1], number) <= _slope(
            points, heights, kept[-2], kept[-1]
        ):
            kept.pop()
        kept.append(number)
    return kept


def _slope(points: Floats, heights: Floats, first: int, second: int) -> float:
    return float((heights[second] - heights[first]) / (points[second] - points[first]))
