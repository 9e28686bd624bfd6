"""What the judges are asked, and how loud each part of their answer is: declared numbers alone.

A judge tells one vector, made of blocks. No block is longer than 1, and each is multiplied by the
root of its share, so that the whole is not longer than 1 either: all that a judge tells is one
contribution, whose sum gets noise once. What is asked of several policies shares its block's part.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Final, NamedTuple

from quorum_rl.dictionary import Bounds
from quorum_rl.errors import FRACTION, QuorumError, require
from quorum_rl.judging.values import STEPS, ValueUnits
from quorum_rl.logs import Declared
from quorum_rl.privacy import Event, TrainingEvent, noise_multiplier_for

# Of the squared length of what a judge tells. The mean return comes first: it has most.
SHARES: Final = {
    "judges": 0.23,
    "mean_return": 0.38,
    "spread_of_returns": 0.12,
    "agreement": 0.1,
    "spread_of_agreement": 0.03,
    "actions": 0.14,
}
OF_RETURNS: Final = ("mean_return", "spread_of_returns")
WITH_VALUES: Final = {
    "judges": 0.18,
    "mean_return": 0.23,
    "spread_of_returns": 0.07,
    "value": 0.24,
    "spread_of_value": 0.07,
    "spread_of_gain": 0.06,
    "agreement": 0.1,
    "spread_of_agreement": 0.02,
    "actions": 0.03,
}
OF_EXPERTS: Final = ("judges", *OF_RETURNS)  # whatever the policies are
OF_TRAINING: Final = 0.17  # of what training may spend (1/σ²), for fitting values
TELLS: Final = 0.25  # an interval as wide as this part of all that is possible tells something
LENGTH: Final = 1 - 2.0**-10  # so that rounding to the lattice shortens nobody


class Block(NamedTuple):
    """Some numbers of the vector: where they stand, and what they are multiplied by.

    They are `copies` parts of which none is longer than 1: one for each policy, or one for all.
    """

    name: str
    first: int
    size: int
    copies: int
    weight: float

    @property
    def place(self) -> slice:
        return slice(self.first, self.first + self.size)

    @property
    def share(self) -> float:
        """Of the squared length of what a judge tells."""
        return self.copies * (self.weight / LENGTH) ** 2


@dataclass(frozen=True, kw_only=True)
class Judges:
    """Which share of the experts judges, and between which numbers their mean returns lie.

    Without `return_bounds` they are not asked what they earn.

    Raises:
        QuorumError: for a share that is none, or bounds that are not two ascending numbers.
    """

    share: float
    return_bounds: Sequence[float] | None = None

    def __post_init__(self) -> None:
        require("judges", self.share, FRACTION)
        if self.return_bounds is None:
            return
        try:
            low, high = map(float, self.return_bounds)
            sound = -math.inf < low < high < math.inf
        except (TypeError, ValueError):
            sound = False
        if not sound:
            raise QuorumError(
                f"return_bounds is {self.return_bounds!r}: give two numbers, the lower one first, "
                "between which the experts' mean returns lie."
            )
        object.__setattr__(self, "return_bounds", (low, high))


@dataclass(frozen=True, kw_only=True)
class ValuePlan:
    """How the values of so many `policies` are fitted on those who do not judge.

    Guarantee: a function of declared numbers; `event` is what that costs.
    """

    horizon: int
    return_bounds: tuple[float, float]
    noise_multiplier: float
    expected: float
    action_count: int
    action_bounds: Bounds = ()
    policies: int = 1

    def units(self, centre: Sequence[float], scale: Sequence[float], size: int) -> ValueUnits:
        """What values are measured by, where observations of this size are standardised so, or
        not at all."""
        low, high = self.return_bounds
        width = high - low
        return ValueUnits(
            tuple(centre) or (0.0,) * size,
            tuple(scale) or (1.0,) * size,
            self.horizon,
            width,
            (min(low, 0.0) / width, max(high, 0.0) / width),
            self.action_count,
            self.action_bounds,
        )

    @property
    def event(self) -> TrainingEvent:
        """All private steps of all fits."""
        return TrainingEvent(
            sampling_rate=1.0,
            noise_multiplier=self.noise_multiplier,
            steps=self.policies * STEPS,
            part="training",
        )


@dataclass(frozen=True, kw_only=True)
class JudgingPlan:
    """What the judges are asked of so many `policies`, with how much noise. `expected` judges are
    declared, not counted. With `values` they also say what the policies are worth.

    Guarantee: a function of declared numbers; `event` is what asking costs.
    """

    judges: Judges
    action_count: int
    expected: float
    noise_multiplier: float
    policies: int = 1
    values: ValuePlan | None = None
    action_bounds: Bounds = ()  # of continuous actions

    @property
    def event(self) -> TrainingEvent:
        """One sum over all judges, of vectors no longer than 1."""
        return TrainingEvent(
            sampling_rate=1.0, noise_multiplier=self.noise_multiplier, steps=1, part="judging"
        )

    @property
    def blocks(self) -> dict[str, Block]:
        """The blocks of the vector, by name."""
        shares = dict(SHARES if self.values is None else WITH_VALUES)
        if self.judges.return_bounds is None:
            shares = {name: share for name, share in shares.items() if name not in OF_RETURNS}
        whole = math.fsum(shares.values())
        made, first = {}, 0
        for name, share in shares.items():
            copies = 1 if name in OF_EXPERTS else self.policies
            size = copies * (2 * self.action_count if name == "actions" else 1)
            weight = LENGTH * math.sqrt(share / whole / copies)
            made[name] = Block(name, first, size, copies, weight)
            first += size
        return made

    @property
    def size(self) -> int:
        """How many numbers a judge tells."""
        return sum(block.size for block in self.blocks.values())

    def deviation(self, name: str) -> float:
        """The noise's standard deviation in the sum of a block's numbers."""
        return self.noise_multiplier / self.blocks[name].weight

    def left_by_noise(self, name: str) -> float:
        """Half the width of a 95% interval of a block's mean, as a part of what is possible: what
        the noise alone leaves of it in the middle, if there are as many judges as expected."""
        every = self.policies if name == "value" else 1  # intervals hold for all at once
        deviations = NormalDist().inv_cdf(1 - 0.025 / every)
        return min(deviations * self.deviation(name) / self.expected / 2, 1.0)

    @property
    def _outlook(self) -> str:
        """What can be hoped for, in a line."""
        words = {"mean_return": "what the experts earn to ±{:.1%} of the bounds",
                 "agreement": "agreement to ±{:.1%}"}  # fmt: skip
        if self.policies > 1:
            words["value"] = "what each policy earns to ±{:.1%}"
        left = {name: self.left_by_noise(name) for name in words if name in self.blocks}
        known = ", ".join(words[name].format(half) for name, half in left.items())
        most = TELLS / 2
        few = max(left.values()) > most
        return (
            f"noise alone lets judges know {known}; beyond ±{most:.1%} they cannot tell"
            f"{': let more of them judge, or spend more' if few else ''}"
        )

    def describe(self) -> str:
        """The plan in a few lines."""
        shares = ", ".join(
            f"{name.replace('_', ' ')} {block.share:.0%}" for name, block in self.blocks.items()
        )
        said = (
            f"judges: each expert with probability {self.judges.share:g}, about "
            f"{self.expected:.0f} of those declared; one sum, noise multiplier "
            f"{self.noise_multiplier:.4g}, split into {shares}\n{self._outlook}"
        )
        if self.values is None:
            return said
        whose = "each" if self.policies > 1 else "the"
        return (
            f"values of {whose} policy, for the judges: {self.values.event.steps} private steps on "
            f"the others, noise multiplier {self.values.noise_multiplier:.4g}, {OF_TRAINING:.0%} "
            f"of what training spends\n{said}"
        )

    def to_json(self) -> dict[str, Any]:
        """The facts that decide what is asked."""
        bounds = self.judges.return_bounds
        kind = {"continuous": True} if self.action_bounds else {}
        return kind | {
            "share": self.judges.share,
            "return_bounds": None if bounds is None else list(bounds),
            "noise_multiplier": self.noise_multiplier,
            "values": None if self.values is None else self.values.noise_multiplier,
        }


def plan_judging(
    declared: Declared,
    judges: Judges,
    *,
    epsilon: float,
    delta: float,
    beside: Sequence[Event] = (),
    values: ValuePlan | None = None,
) -> JudgingPlan:
    """The least noise with which the judges can be asked, beside events on everybody.

    Raises:
        TooLittleBudgetError: if those alone spend the budget.
    """
    assert declared.minimum_experts is not None  # planning has checked
    multiplier = noise_multiplier_for(
        steps=1, sampling_rate=1.0, epsilon=epsilon, delta=delta, beside=beside
    )
    return JudgingPlan(
        judges=judges,
        action_count=declared.action_count,
        expected=judges.share * declared.minimum_experts,
        noise_multiplier=multiplier,
        policies=1 if values is None else values.policies,
        values=values,
        action_bounds=declared.action_bounds,
    )


def plan_values(
    declared: Declared,
    bounds: Sequence[float],
    *,
    epsilon: float,
    delta: float,
    beside: Sequence[Event] = (),
    policies: int = 1,
) -> ValuePlan:
    """Fitting values with their part of what training may spend, beside events on everybody.

    `declared` is of those whom is learned from.

    Raises:
        TooLittleBudgetError: if the events beside it alone spend the budget.
    """
    assert declared.minimum_experts is not None  # planning has checked
    once = noise_multiplier_for(
        steps=1, sampling_rate=1.0, epsilon=epsilon, delta=delta, beside=beside
    )
    low, high = bounds
    return ValuePlan(
        horizon=declared.horizon,
        return_bounds=(low, high),
        noise_multiplier=once * math.sqrt(policies * STEPS / OF_TRAINING),
        expected=float(declared.minimum_experts),
        action_count=declared.action_count,
        action_bounds=declared.action_bounds,
        policies=policies,
    )
