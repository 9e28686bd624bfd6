"""Behaviour cloning: do what the experts do most often. It needs no rewards.

loss = −log π(a|s),    π the softmax of the network's outputs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from quorum_rl.learners.learner import Array, Decision, DenseLearner, Outputs
from quorum_rl.learners.losses import negative_log_likelihood
from quorum_rl.types import Transition


@dataclass(frozen=True, kw_only=True)
class Bc(DenseLearner):
    """A policy fitted by maximum likelihood."""

    name: ClassVar[str] = "bc"

    def output_sizes(self, action_count: int) -> Mapping[str, int]:
        return {"policy": action_count}

    def loss_from_outputs(self, outputs: Outputs, goal: None, transition: Transition) -> Array:
        del goal
        return negative_log_likelihood(outputs["policy"], transition.action)

    def decision(self) -> Decision:
        return Decision(highest="policy")
