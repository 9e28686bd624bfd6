"""Raising every probability to a floor, before the experts act and never after.

The release is private only for policies with a floor p_min > 0 under every action's probability.
Two ways to reach it; both change the policy, so both come before collecting.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from quorum_rl.errors import QuorumError
from quorum_rl.experts.checks import Probabilities, checked_floor, no_floor
from quorum_rl.experts.expert_set import (
    NO_ACTION,
    OwnPolicies,
    UnloggedExperts,
    too_late_to_smooth,
)

Rule = Literal["greedy", "uniform mixture"]
ArrayT = TypeVar("ArrayT", bound=Any)  # a NumPy or a JAX array


def greedy_probability(action_count: int, p_min: float) -> float:
    """What a near-greedy policy gives to its likeliest action: 1 − (|A|−1)·p_min."""
    # At p_min = 1/|A| rounding could leave it a hair below the floor.
    return max(1 - (action_count - 1) * p_min, p_min)


def near_greedy(probabilities: ArrayT, p_min: float) -> ArrayT:
    """1 − (|A|−1)·p_min for the likeliest action (of equals, the first), p_min for the others.

    Shapes: `(..., actions)`. Works on NumPy and JAX arrays, and under `jit`.
    """
    arrays = probabilities.__array_namespace__()
    action_count = probabilities.shape[-1]
    greedy = arrays.argmax(probabilities, axis=-1)[..., None] == arrays.arange(action_count)
    made: ArrayT = arrays.where(
        greedy,
        arrays.asarray(greedy_probability(action_count, p_min), dtype=probabilities.dtype),
        arrays.asarray(p_min, dtype=probabilities.dtype),
    )
    return made


def uniform_mixture(probabilities: ArrayT, p_min: float) -> ArrayT:
    """(1 − |A|·p_min)·π + p_min: the policy itself, or with probability |A|·p_min a uniform draw.

    Shapes: `(..., actions)`. Works on NumPy and JAX arrays, and under `jit`.
    """
    made: ArrayT = (1 - probabilities.shape[-1] * p_min) * probabilities + p_min
    return made


RULES: Final = {"greedy": near_greedy, "uniform mixture": uniform_mixture}


@dataclass(frozen=True, kw_only=True, eq=False)
class SmoothedExperts(UnloggedExperts):
    """Experts made from `original` ones by a rule that reaches the floor exactly."""

    original: UnloggedExperts = field(repr=False)
    rule: Rule

    def __len__(self) -> int:
        return len(self.original)

    def contents(self) -> Iterator[Any]:
        return self.original.contents()

    def probabilities_of(self, experts: slice, observations: npt.ArrayLike) -> Probabilities:
        found = self.original.probabilities_of(experts, observations)
        return RULES[self.rule](found, self.p_min)

    def taken_probabilities(
        self, experts: slice, observations: npt.ArrayLike, actions: npt.ArrayLike
    ) -> npt.NDArray[np.float64]:
        if self.rule == "greedy":
            likeliest = greedy_probability(self.action_count, self.p_min)
            greedy = self.original.greedy_actions(experts, observations)
            # Comparing like with like is fast; no set of actions is as large as these types.
            as_likely = greedy == np.asarray(actions).astype(greedy.dtype)
            made = np.where(as_likely, likeliest, self.p_min)
            made[greedy == NO_ACTION] = np.nan
            return made
        taken = self.original.taken_probabilities(experts, observations, actions)
        return (1 - self.action_count * self.p_min) * taken + self.p_min

    def among(self, experts: slice) -> OwnPolicies:
        original = self.original.among(experts)
        return lambda observations: RULES[self.rule](original(observations), self.p_min)


def smoothed_by(rule: Rule, experts: UnloggedExperts, p_min: float) -> SmoothedExperts:
    """Experts smoothed by the rule of that name: once, as logs name one rule and one floor.

    Raises:
        QuorumError: if `p_min` is outside (0, 1/|A|], or the experts have generated logs already or
            are smoothed already.
    """
    if not isinstance(experts, UnloggedExperts):
        raise too_late_to_smooth(experts)
    if experts.action_bounds:
        raise no_floor()
    if isinstance(experts, SmoothedExperts):
        raise QuorumError(
            f"these experts are smoothed already (to p_min = {experts.p_min:g}): smooth the "
            "originals once, to the floor that you want."
        )
    return SmoothedExperts(
        original=experts,
        rule=rule,
        observation_size=experts.observation_size,
        action_count=experts.action_count,
        p_min=checked_floor(p_min, experts.action_count),
        identity=experts.identity,
    )
