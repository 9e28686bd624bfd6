"""Finite privacy loss distributions: the losses of one direction, and how they add up.

A loss ℓ with probability p under P, and the mass where Q has nothing (an infinite loss), give the
hockey-stick divergence δ(ε) = infinite + Σ p·(1 − e^(ε−ℓ))⁺. Losses of independent stages add, so
δ of two stages is the mean of one's δ at ε minus the other's loss.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from quorum_rl.privacy.laplace import ROUNDING

Floats = npt.NDArray[np.float64]

UNLIKELY: Final = 1e-20  # losses less likely than this count as infinite
MOST_LOSSES: Final = 200_000  # beyond which losses are rounded up to the grid
GRID: Final = 2.0**-14
LARGEST: Final = 700.0  # e to the power of this is a double


@dataclass(frozen=True)
class Losses:
    """Losses in ascending order, their probabilities, and the probability of an infinite one.

    `slack` is what the arithmetic that made these numbers may have taken off any δ.
    """

    loss: Floats
    probability: Floats
    infinite: float
    slack: float = 0.0

    @cached_property
    def _above(self) -> tuple[Floats, Floats]:
        """P's and Q's mass from each loss upwards; one more entry, 0, behind the last."""
        own = np.append(np.cumsum(self.probability[::-1])[::-1], 0.0)
        other = self.probability * np.exp(-np.maximum(self.loss, -LARGEST))
        return own, np.append(np.cumsum(other[::-1])[::-1], 0.0)

    def deltas(self, epsilons: npt.ArrayLike) -> Floats:
        """The hockey-stick divergence at each ε, which may be negative."""
        at = np.minimum(np.asarray(epsilons, dtype=np.float64), LARGEST)  # δ only falls beyond
        first = np.searchsorted(self.loss, at, side="right")
        own, other = self._above
        made: Floats = np.maximum(own[first] - np.exp(at) * other[first], 0.0)
        return made + self.infinite + self.slack

    def delta(self, epsilon: float) -> float:
        """The hockey-stick divergence at `epsilon`, rounded up."""
        above = self.loss > epsilon
        lost = -np.expm1(epsilon - self.loss[above]) * self.probability[above]
        return min((self.infinite + self.slack + float(lost.sum())) * ROUNDING, 1.0)


NOTHING: Final = Losses(np.zeros(1), np.ones(1), 0.0)


def joint_delta(first: Losses, second: Losses, epsilon: float) -> float:
    """δ of two stages together, in one direction; cheapest with the shorter one first."""
    parts = first.probability * second.deltas(epsilon - first.loss)
    return min((first.infinite + first.slack + float(parts.sum())) * ROUNDING, 1.0)


def combined(first: Losses, second: Losses) -> Losses:
    """The losses of two stages together; the unlikeliest count as infinite."""
    if second is NOTHING:
        return first
    if first is NOTHING:
        return second
    loss = np.add.outer(first.loss, second.loss).ravel()
    probability = np.multiply.outer(first.probability, second.probability).ravel()
    likely = probability > UNLIKELY
    infinite = first.infinite + second.infinite + float(probability[~likely].sum())
    made = _ordered(loss[likely], probability[likely])
    if len(made[0]) > MOST_LOSSES:
        made = _rounded_up(*made)
    return Losses(*made, infinite, first.slack + second.slack)


def _ordered(loss: Floats, probability: Floats) -> tuple[Floats, Floats]:
    order = np.argsort(loss, kind="stable")
    return loss[order], probability[order]


def _rounded_up(loss: Floats, probability: Floats) -> tuple[Floats, Floats]:
    point, where = np.unique(np.ceil(loss / GRID), return_inverse=True)
    mass: Floats = np.zeros(len(point))
    np.add.at(mass, where, probability)
    return point * GRID, mass


def from_library(distribution: Any, slack: float) -> tuple[Losses, Losses]:
    """The losses of a distribution of dp-accounting: with the expert against without, the reverse.

    dp-accounting answers with the larger δ of both directions; composing with a release needs each.
    """
    pmfs = distribution._pmf_remove, distribution._pmf_add
    remove, add = (_from_pmf(pmf.to_dense_pmf(), slack) for pmf in pmfs)
    return remove, add


def _from_pmf(pmf: Any, slack: float) -> Losses:
    probability = np.maximum(np.asarray(pmf._probs, dtype=np.float64), 0.0)
    loss = (np.arange(len(probability)) + pmf._lower_loss) * pmf._discretization
    likely = probability > 0
    return Losses(loss[likely], probability[likely], float(pmf._infinity_mass), slack)
