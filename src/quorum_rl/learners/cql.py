"""Conservative Q-learning (Kumar et al. 2020), CQL(H) over double DQN for discrete actions.

loss = Huber(Q(s, a) − y) + α (log Σ_b exp Q(s, b) − Q(s, a)),    y as in double DQN.
"""

from dataclasses import dataclass
from typing import ClassVar

from quorum_rl.errors import require
from quorum_rl.learners import defaults
from quorum_rl.learners.double_dqn import DoubleDqn
from quorum_rl.learners.learner import NOT_NEGATIVE, Array, Outputs
from quorum_rl.learners.losses import negative_log_likelihood
from quorum_rl.types import Transition


@dataclass(frozen=True, kw_only=True)
class Cql(DoubleDqn):
    """Double DQN that keeps the values of actions nobody took below those of the logged ones."""

    alpha: float = defaults.CQL_ALPHA  # weight of the penalty

    name: ClassVar[str] = "cql"

    def __post_init__(self) -> None:
        super().__post_init__()
        require("alpha", self.alpha, NOT_NEGATIVE)

    def loss_from_outputs(self, outputs: Outputs, goal: Array, transition: Transition) -> Array:
        # With values for logits, the penalty is the likelihood of the logged action.
        penalty = negative_log_likelihood(outputs["action_values"], transition.action)
        return super().loss_from_outputs(outputs, goal, transition) + self.alpha * penalty
