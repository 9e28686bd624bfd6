"""What the judges are asked, and how loud each part of their answer is: declared numbers alone.

A judge tells one vector, made of blocks. No block is longer than 1, and each is multiplied by the
root of its share, so that the whole is not longer than 1 either: all that a judge tells is one
contribution, whose sum gets noise once.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from quorum_rl.errors import FRACTION, QuorumError, require
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
LENGTH: Final = 1 - 2.0**-10  # so that rounding to the lattice shortens nobody


class Block(NamedTuple):
    """Some numbers of the vector: where they stand, and what they are multiplied by."""

    name: str
    first: int
    size: int
    weight: float

    @property
    def place(self) -> slice:
        return slice(self.first, self.first + self.size)


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
class JudgingPlan:
    """What the judges are asked, with how much noise. `expected` judges are declared, not counted.

    Guarantee: a function of declared numbers; `event` is what asking costs.
    """

    judges: Judges
    action_count: int
    expected: float
    noise_multiplier: float

    @property
    def event(self) -> TrainingEvent:
        """One sum over all judges, of vectors no longer than 1."""
        return TrainingEvent(
            sampling_rate=1.0, noise_multiplier=self.noise_multiplier, steps=1, part="judging"
        )

    @property
    def blocks(self) -> dict[str, Block]:
        """The blocks of the vector, by name."""
        asked = [
            name
            for name in SHARES
            if self.judges.return_bounds is not None or name not in OF_RETURNS
        ]
        whole = math.fsum(SHARES[name] for name in asked)
        made, first = {}, 0
        for name in asked:
            size = 2 * self.action_count if name == "actions" else 1
            made[name] = Block(name, first, size, LENGTH * math.sqrt(SHARES[name] / whole))
            first += size
        return made

    @property
    def size(self) -> int:
        """How many numbers a judge tells."""
        return sum(block.size for block in self.blocks.values())

    def deviation(self, name: str) -> float:
        """The noise's standard deviation in the sum of a block's numbers."""
        return self.noise_multiplier / self.blocks[name].weight

    def describe(self) -> str:
        """The plan in a line."""
        shares = ", ".join(
            f"{name.replace('_', ' ')} {(block.weight / LENGTH) ** 2:.0%}"
            for name, block in self.blocks.items()
        )
        return (
            f"judges: each expert with probability {self.judges.share:g}, about "
            f"{self.expected:.0f} of those declared; one sum, noise multiplier "
            f"{self.noise_multiplier:.4g}, split into {shares}"
        )

    def to_json(self) -> dict[str, Any]:
        """The facts that decide what is asked."""
        bounds = self.judges.return_bounds
        return {
            "share": self.judges.share,
            "return_bounds": None if bounds is None else list(bounds),
            "noise_multiplier": self.noise_multiplier,
        }


def plan_judging(
    declared: Declared,
    judges: Judges,
    *,
    epsilon: float,
    delta: float,
    beside: Sequence[Event] = (),
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
    )
