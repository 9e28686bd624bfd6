"""Behaviour cloning: do what the experts do most often. It needs no rewards.

loss = −log π(a|s),    π the softmax of the network's outputs;
of continuous actions the mean of (π(s) − a)² over their numbers, π squashed by tanh.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp

from quorum_rl.learners.learner import (
    CONTINUOUS,
    FINITE,
    Array,
    Decision,
    DenseLearner,
    Outputs,
)
from quorum_rl.learners.losses import negative_log_likelihood
from quorum_rl.types import Transition


@dataclass(frozen=True, kw_only=True)
class Bc(DenseLearner):
    """A policy fitted by maximum likelihood; of continuous actions, by least squares."""

    name: ClassVar[str] = "bc"
    takes: ClassVar[tuple[str, ...]] = (FINITE, CONTINUOUS)

    def output_sizes(self, action_count: int) -> Mapping[str, int]:
        return {"policy": action_count}

    def loss_from_outputs(self, outputs: Outputs, goal: None, transition: Transition) -> Array:
        del goal
        if self.action_bounds:
            return jnp.square(jnp.tanh(outputs["policy"]) - transition.action).mean()
        return negative_log_likelihood(outputs["policy"], transition.action)

    def decision(self) -> Decision:
        return Decision(squashed="policy") if self.action_bounds else Decision(highest="policy")
