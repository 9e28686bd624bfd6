"""Units of what experts see and earn, from one noisy sum: where the middle is, and how wide.

Every expert tells, of each number that is asked about, which share of its own steps lies in which
of BINS bins. The bins are declared: equal ones within a range, and otherwise bins on a logarithmic
scale from 1e-6 to 1e9, of either sign. How many experts see less than an edge is a sum over the
bins below, whose noise would grow with the root of their number. So the shares h are told as R h,
where R R adds up what is below each edge: what comes out of R (R h + noise) has little noise
everywhere, and R h is short, for h is a mean of unit vectors.

Of rewards an expert tells one number, the root of their mean square.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.linalg import toeplitz
from scipy.optimize import isotonic_regression
from scipy.special import binom, ndtri

from quorum_rl.logs import Demonstrations
from quorum_rl.privacy import EVERYBODY, Part, TrainingEvent
from quorum_rl.training.mechanism import MOST_PARAMETERS
from quorum_rl.training.one_sum import noisy_sum, sum_step

Floats: TypeAlias = npt.NDArray[np.float64]

_POWERS: Final = 2.0 ** np.arange(-20, 30.5, 0.5)  # about 1e-6 to 1e9
LOGARITHMIC: Final = np.concatenate([-_POWERS[::-1], _POWERS])
BINS: Final = len(LOGARITHMIC) - 1
NOTHING: Final = BINS // 2  # the bin of zero
LEAST_SHARE: Final = 0.05  # of the budget, which is one over the squared noise multiplier
MOST_SHARE: Final = 0.3  # by itself; all steps then have 1.2 times the noise
INSISTED_SHARE: Final = 0.6  # where somebody insists: 1.6 times
MOST_ERROR: Final = 0.1  # of the experts, in how many see less than an edge
FARTHEST_TAIL, NEAREST_TAIL = 0.1, 0.25  # of what is seen, beyond the quantiles that say how wide
LENGTH: Final = 1 - 2.0**-10  # so that rounding to the lattice shortens nobody


class Asked(NamedTuple):
    """A number of an observation, by its place, and its declared range; rewards have no place."""

    place: int | None
    range: tuple[float, float] | None = None

    @property
    def edges(self) -> Floats:
        """Of the bins. Shapes: (BINS + 1,)."""
        return LOGARITHMIC if self.range is None else np.linspace(*self.range, BINS + 1)


class Unit(NamedTuple):
    """What a number is measured from, and by."""

    centre: float
    scale: float


@dataclass(frozen=True, kw_only=True)
class UnitsPlan:
    """What is asked, of how many experts as declared, with how much noise.

    `share` is the part of the budget that this takes.

    Guarantee: a function of declared numbers; `event` is what asking costs.
    """

    asked: tuple[Asked, ...]
    expected: float
    noise_multiplier: float
    share: float
    part: Part = EVERYBODY

    @property
    def event(self) -> TrainingEvent:
        """One sum over all who are learned from, of rows no longer than 1."""
        return TrainingEvent(
            sampling_rate=1.0, noise_multiplier=self.noise_multiplier, steps=1, part=self.part
        )

    @property
    def weight(self) -> float:
        """What R h is multiplied by, so that all that is told together is no longer than 1."""
        return LENGTH / _SIZE / math.sqrt(len(self.asked))

    @property
    def has_room(self) -> bool:
        """Whether a row of so many numbers can be counted, and is more than its rounding."""
        count = len(self.asked) * BINS
        units = sum_step(self.noise_multiplier, self.expected).units
        return count <= MOST_PARAMETERS and math.sqrt(count) < units / 8

    @property
    def error(self) -> float:
        """The standard deviation of the share of experts who see less than an edge, at most."""
        return error_of(self.noise_multiplier, len(self.asked), self.expected)

    @property
    def tail(self) -> float:
        """The part of what is seen that lies beyond either quantile, so far out that noise allows.

        Four deviations from none at all.
        """
        return float(np.clip(4 * self.error, FARTHEST_TAIL, NEAREST_TAIL))

    def describe(self) -> str:
        """The plan in a line."""
        seen = sum(unit.place is not None for unit in self.asked)
        some = f"{seen} number{'' if seen == 1 else 's'}"
        what = [f"middle and spread of {some} of an observation"] * (seen > 0)
        what += ["size of the rewards"] * (seen < len(self.asked))
        return (
            f"private units: {' and '.join(what)}, from one sum that takes {self.share:.0%} of the "
            f"budget; noise multiplier {self.noise_multiplier:.4g}, shares of experts known to "
            f"±{self.error:.1%}"
        )

    def to_json(self) -> dict[str, Any]:
        """The facts that decide what is asked."""
        return {
            "asked": [
                {"place": unit.place, "range": None if unit.range is None else list(unit.range)}
                for unit in self.asked
            ],
            "noise_multiplier": self.noise_multiplier,
            "share": self.share,
        }


def plan_units(
    asked: Sequence[Asked],
    *,
    alone: float,
    expected: float,
    most: float = MOST_SHARE,
    part: Part = EVERYBODY,
) -> UnitsPlan | None:
    """As much noise as there may be; None where that takes more than the share `most` of a budget.

    `alone` is the noise multiplier of a sum that has all of the budget.
    """
    needed = (error_of(alone, len(asked), expected) / MOST_ERROR) ** 2
    if needed > most:
        return None
    share = max(needed, LEAST_SHARE)
    return UnitsPlan(
        asked=tuple(asked),
        expected=expected,
        noise_multiplier=alone / math.sqrt(share),
        share=share,
        part=part,
    )


def experts_needed(asked: int, alone: float, most: float = MOST_SHARE) -> int:
    """How many experts must be declared for a plan of so many numbers."""
    return math.ceil(error_of(alone, asked, 1.0) / MOST_ERROR / math.sqrt(most))


def error_of(noise_multiplier: float, asked: int, expected: float) -> float:
    """The standard deviation of the noise in a share of the experts."""
    return noise_multiplier * math.sqrt(asked) * _SIZE**2 / LENGTH / expected


# --- what is told ---


def told_units(experts: Demonstrations, plan: UnitsPlan) -> Floats:
    """What every expert tells. SENSITIVE.

    Guarantee: a row is a function of that expert's log and the plan, and its norm is at most 1,
    whatever is in the log.

    Shapes: (experts, asked · BINS).
    """
    shares = [_shares(experts, position, plan) for position in range(experts.expert_count)]
    rows = [plan.weight * (each @ _ROOT.T).ravel() for each in shares]
    return np.array(rows).reshape(len(rows), len(plan.asked) * BINS)


def _shares(experts: Demonstrations, position: int, plan: UnitsPlan) -> Floats:
    """Which share of an expert's steps lies in which bin. Shapes: (asked, BINS)."""
    steps = experts.transitions(np.array(experts.transitions_of(position)))
    seen = np.asarray(steps.observation, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        size = np.sqrt(np.mean(np.asarray(steps.reward, np.float64) ** 2))
    return np.stack(
        [
            binned(np.array([size]) if asked.place is None else seen[:, asked.place], asked.edges)
            for asked in plan.asked
        ]
    )


def binned(values: Floats, edges: Floats) -> Floats:
    """The share of values in each bin; what lies outside, or is no number, is in an outer one.

    Shapes: (values,) and (bins + 1,); (bins,), which add up to 1.
    """
    place = np.searchsorted(edges[1:-1], values, side="right")
    return np.bincount(place, minlength=len(edges) - 1) / max(len(values), 1)


def _root() -> Floats:
    """R, whose square adds up: a triangle of the coefficients of 1/√(1 − x)."""
    number = np.arange(BINS)
    made: Floats = toeplitz(binom(2 * number, number) / 4.0**number, np.zeros(BINS))
    return made


_ROOT: Final = _root()
_SIZE: Final = float(np.linalg.norm(_ROOT[:, 0]))  # of its longest column, and of its longest row


# --- what is found ---


def ask_units(
    told: Floats, plan: UnitsPlan, noise_key: npt.NDArray[np.uint32]
) -> list[Unit | None]:
    """A unit of each number that is asked about, None where none can be told.

    Guarantee: with a fresh secret key it is as private as `plan.event` says, for experts of whom
    one takes part or not: a row that is longer than 1 is clipped.

    Shapes: `told` (experts, asked · BINS), `noise_key` (2,), words.
    """
    below = noisy_below(told, plan, noise_key)
    everybody = max(float(below[:, -1].mean()), plan.expected / 2)
    return [_unit(one, own / everybody, plan) for one, own in zip(plan.asked, below, strict=True)]


def noisy_below(told: Floats, plan: UnitsPlan, noise_key: npt.NDArray[np.uint32]) -> Floats:
    """About how many experts are below each edge but the first; as private as `ask_units`.

    Shapes: (asked, BINS).
    """
    sums = noisy_sum(
        told,
        noise_multiplier=plan.noise_multiplier,
        expected=plan.expected,
        noise_key=noise_key,
    )
    made: Floats = sums.reshape(len(plan.asked), BINS) @ _ROOT.T / plan.weight
    return made


def _unit(asked: Asked, below: Floats, plan: UnitsPlan) -> Unit | None:
    """From the noisy share below each edge but the first."""
    shares, edges, tail = rising(below), asked.edges, plan.tail
    low, middle, high = (quantile(shares, edges, at) for at in (tail, 0.5, 1 - tail))
    first, median, last = np.searchsorted(shares, (tail, 0.5, 1 - tail))
    if asked.range is None and (first == 0 or last >= BINS - 1):
        return None  # so far out that it is noise, or beyond the bins
    # What may be a single number says nothing of a width, and noise decides on quantiles beside it.
    narrow = NOTHING if asked.range is None else min(int(median), BINS - 1)
    beside = max(shares[narrow - 1] if narrow else 0.0, 1 - shares[narrow])
    if beside < tail + 2 * plan.error:
        return None
    centre, scale = middle, (high - low) / (2 * float(ndtri(1 - tail)))
    if asked.place is None:
        centre, scale = 0.0, middle
    return _rounded(centre, scale) if scale > 0 else None


def rising(below: Floats) -> Floats:
    """The shares that rise, and are nearest. Shapes: (bins,), both."""
    found: Floats = np.asarray(isotonic_regression(below).x).clip(0, 1)
    return found


def quantile(shares: Floats, edges: Floats, at: float) -> float:
    """Where the share `at` is reached, straight within a bin.

    Shapes: `shares` (bins,), rising, below all edges but the first; `edges` (bins + 1,).
    """
    place = min(int(np.searchsorted(shares, at)), len(shares) - 1)
    before = 0.0 if place == 0 else float(shares[place - 1])
    within = (at - before) / max(float(shares[place]) - before, 1e-12)
    left, right = edges[place], edges[place + 1]
    return float(left + min(within, 1.0) * (right - left))


def _rounded(centre: float, scale: float) -> Unit:
    """To two digits of the scale: more are not known, and these are read by people."""
    digits = 1 - math.floor(math.log10(scale))
    return Unit(round(centre, digits) + 0.0, round(scale, digits))  # and no -0
