"""Discrete batch-constrained Q-learning (Fujimoto et al. 2019, "Benchmarking Batch Deep RL").

Double DQN that chooses only among actions the logs make likely: G(b|s) / max G(·|s) > τ, where
G is the softmax of a second network's logits i, trained in the same loss:

loss = Huber(Q(s, a) − y) − log G(a|s) + w mean_b i(s, b)²,
y = r + γ Q̄(s', argmax of Q(s', ·) among likely actions),    Q̄ the slow copy.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp

from quorum_rl.errors import Rule, require
from quorum_rl.learners import defaults
from quorum_rl.learners.double_dqn import DoubleDqn
from quorum_rl.learners.learner import NOT_NEGATIVE, Array, Decision, Outputs
from quorum_rl.learners.losses import negative_log_likelihood
from quorum_rl.types import Transition


@dataclass(frozen=True, kw_only=True)
class Bcq(DoubleDqn):
    """Double DQN among likely actions; one loss trains values and likelihoods, so one clip does."""

    threshold: float = defaults.BCQ_THRESHOLD  # τ; 0 allows every action, near 1 only the likeliest
    logit_penalty: float = defaults.BCQ_LOGIT_PENALTY  # w

    name: ClassVar[str] = "bcq"

    def __post_init__(self) -> None:
        super().__post_init__()
        require("threshold", self.threshold, Rule("at least 0, below 1", lambda tau: 0 <= tau < 1))
        require("logit_penalty", self.logit_penalty, NOT_NEGATIVE)

    def output_sizes(self, action_count: int) -> Mapping[str, int]:
        return {"action_values": action_count, "imitation": action_count}

    def loss_from_outputs(self, outputs: Outputs, goal: Array, transition: Transition) -> Array:
        logits = outputs["imitation"]
        imitation = negative_log_likelihood(logits, transition.action)
        penalty = self.logit_penalty * jnp.square(logits).mean()
        return super().loss_from_outputs(outputs, goal, transition) + imitation + penalty

    def decision(self) -> Decision:
        if self.threshold == 0:  # even of actions whose likelihood is rounded to 0
            return super().decision()
        return Decision("action_values", among_likely="imitation", threshold=self.threshold)
