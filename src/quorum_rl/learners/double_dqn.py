"""Double DQN (van Hasselt et al. 2016): the plainest way to learn action values.

loss = Huber(Q(s, a) − y),    y = c r + γ Q̄(s', argmax Q(s', ·)),    Q̄ the slow copy.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from quorum_rl.errors import POSITIVE, require
from quorum_rl.learners import defaults
from quorum_rl.learners.learner import (
    Array,
    Decision,
    DenseLearner,
    Networks,
    Outputs,
    apply_network,
)
from quorum_rl.learners.losses import bootstrapped_return, huber, of_action, scaled
from quorum_rl.types import Transition


@dataclass(frozen=True, kw_only=True)
class DoubleDqn(DenseLearner):
    """Action values; the net chooses the next action, its slow copy says what that is worth."""

    huber_threshold: float = defaults.HUBER_THRESHOLD
    reward_scale: float = 1.0  # c, a public number: what rewards are multiplied by

    name: ClassVar[str] = "double-dqn"
    target_names: ClassVar[tuple[str, ...]] = ("action_values",)

    def __post_init__(self) -> None:
        super().__post_init__()
        require("huber_threshold", self.huber_threshold, POSITIVE)
        require("reward_scale", self.reward_scale, POSITIVE)

    def output_sizes(self, action_count: int) -> Mapping[str, int]:
        return {"action_values": action_count}

    def goal(self, params: Networks, target: Networks, transition: Transition, key: Array) -> Array:
        del key
        next_action = self.greedy(params, transition.next_observation)
        next_values = apply_network(target["action_values"], transition.next_observation)
        paid = scaled(transition, self.reward_scale)
        return bootstrapped_return(paid, of_action(next_values, next_action), self.discount)

    def loss_from_outputs(self, outputs: Outputs, goal: Array, transition: Transition) -> Array:
        value = of_action(outputs["action_values"], transition.action)
        return huber(value - goal, self.huber_threshold)

    def decision(self) -> Decision:
        return Decision(highest="action_values")
