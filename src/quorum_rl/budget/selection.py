"""The second opinion on private selection: every number of it computed again, by other means.

What the accounting sums this integrates; what dp-accounting knows as one event is written out.
"""

import math
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.special import logsumexp

from quorum_rl.privacy.events import SelectionEvent

Floats = npt.NDArray[np.float64]

ORDERS: Final = np.array(sorted({*range(2, 65), *(round(2 ** (k / 8)) for k in range(49, 89))}))
POINTS: Final = 2000
LAST_DELTA: Final = 1e-18
LARGEST: Final = 300.0  # of an ε


def selection_on_grid(event: SelectionEvent, step: float) -> Any:
    """A distribution of losses on a grid of this step that dominates the selection, both ways."""
    curve = _delta_curve(event)
    last = 0.5
    while last < LARGEST and curve(np.array([last]))[0] > LAST_DELTA:
        last += 0.5
    stride = max(round(last / (POINTS * step)), 1)
    side = math.ceil(last / (stride * step))
    places = stride * np.arange(-side, side + 1)
    losses = places * step
    forth = curve(np.abs(losses))
    # H(P, Q) at −ε is 1 − e^−ε + e^−ε·H(Q, P) at ε.
    heights = np.where(losses < 0, -np.expm1(losses) + np.exp(losses) * forth, forth)
    corners = _convex([(0.0, 1.0, 0), *_rows(np.exp(losses), heights, places)])
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(corners)]
    chances = {
        int(place): (after - before) * point
        for (point, _, place), before, after in zip(
            corners[1:], slopes, [*slopes[1:], 0.0], strict=True
        )
    }
    return pld.PrivacyLossDistribution.create_from_rounded_probability(
        chances, float(corners[-1][1]), step, True, symmetric=True
    )


def _delta_curve(event: SelectionEvent) -> Any:
    """δ at ε ≥ 0 from the Rényi divergences ρ(λ) of Theorem 2 of Papernot and Steinke.

    ρ'(λ) = ρ(λ) + 2·min over λ̂ of ((1 − 1/λ̂)·ρ(λ̂) + ln(m)/λ̂) + ln(m)/(λ − 1), m the mean.
    """
    trial = event.steps * np.array([_one_step(event, int(order)) for order in ORDERS])
    mean = math.log(event.mean_trials)
    common = 2 * np.min((1 - 1 / ORDERS) * trial + mean / ORDERS)
    whole = trial + common + mean / (ORDERS - 1)
    whole = np.minimum.accumulate(whole[::-1])[::-1]  # a divergence of lower order is lower

    def curve(epsilons: Floats) -> Floats:
        exponents = (ORDERS - 1)[:, None] * (whole[:, None] - epsilons[None, :])
        logarithms = exponents - np.log(ORDERS)[:, None]
        logarithms += ((ORDERS - 1) * np.log1p(-1 / ORDERS))[:, None]
        made: Floats = np.exp(np.minimum(logarithms.min(axis=0), 0.0))
        return made

    return curve


def _one_step(event: SelectionEvent, order: int) -> float:
    """The Rényi divergence of one step: E[((1 − q) + q·e^((2x − 1)/2σ²))^λ] over x ~ N(0, σ²).

    Integrated on evenly spaced points, which is exact to rounding for such functions.
    """
    rate, noise = event.sampling_rate, event.noise_multiplier
    x = np.arange(-40 * noise, order + 40 * noise, noise / 32)
    moved = (2 * x - 1) / (2 * noise**2)
    stays = math.log1p(-rate) if rate < 1 else -math.inf
    mixed = np.logaddexp(stays, math.log(rate) + moved)
    density = -(x**2) / (2 * noise**2) - math.log(noise * math.sqrt(2 * math.pi))
    moment = float(logsumexp(order * mixed + density)) + math.log(noise / 32)
    return max(moment, 0.0) / (order - 1)


def _rows(points: Floats, heights: Floats, places: Any) -> list[tuple[float, float, int]]:
    return list(zip(points.tolist(), heights.tolist(), places.tolist(), strict=True))


def _convex(points: list[tuple[float, float, int]]) -> list[tuple[float, float, int]]:
    """The corners of the largest convex function under all points."""
    corners: list[tuple[float, float, int]] = []
    for new in points:
        while len(corners) > 1:
            (x0, y0, _), (x1, y1, _) = corners[-2:]
            if (new[1] - y1) / (new[0] - x1) > (y1 - y0) / (x1 - x0):
                break
            corners.pop()
        corners.append(new)
    return corners
