"""Implicit Q-learning (Kostrikov et al. 2022): values of logged actions only, then imitation of
those that were better than usual.

loss = Σ_i (Q_i(s, a) − y)² + |τ − 1[A < 0]| A² + min(e^{βA}, w) ½ Σ (π(s) − a)²,
y = c r + γ V(s'),    A = min_i Q̄_i(s, a) − V(s).

The policy is a Gaussian of spread 1 about tanh π, of which only the mean is learned: a spread would
be parameters, and so more noise.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from quorum_rl.errors import POSITIVE, Rule, require
from quorum_rl.learners import defaults
from quorum_rl.learners.actor_critic import CRITICS, ActorCritic, lesser_value
from quorum_rl.learners.learner import (
    NOT_NEGATIVE,
    Array,
    Networks,
    Outputs,
    apply_network,
)
from quorum_rl.learners.losses import bootstrapped_return, scaled
from quorum_rl.types import Transition


class Goal(NamedTuple):
    """What critics and values are pulled towards."""

    critics: Array
    value: Array


@dataclass(frozen=True, kw_only=True)
class Iql(ActorCritic):
    """Policy, value and critics in one loss, so one clip does."""

    expectile: float = defaults.IQL_EXPECTILE  # τ; near 1, the value is that of the best action
    temperature: float = defaults.IQL_TEMPERATURE  # β; 0 imitates all alike
    most_weight: float = defaults.IQL_MOST_WEIGHT  # w

    name: ClassVar[str] = "iql"

    def __post_init__(self) -> None:
        super().__post_init__()
        require("expectile", self.expectile, Rule("between 0 and 1", lambda tau: 0 < tau < 1))
        require("temperature", self.temperature, NOT_NEGATIVE)
        require("most_weight", self.most_weight, POSITIVE)

    def output_sizes(self, action_count: int) -> Mapping[str, int]:
        return {**super().output_sizes(action_count), "value": 1}

    def goal(self, params: Networks, target: Networks, transition: Transition, key: Array) -> Goal:
        del key
        following = apply_network(params["value"], transition.next_observation)[0]
        reward = scaled(transition, self.reward_scale)
        return Goal(
            bootstrapped_return(reward, following, self.discount),
            lesser_value(target, transition.observation, transition.action),
        )

    def loss_from_outputs(self, outputs: Outputs, goal: Goal, transition: Transition) -> Array:
        errors = [jnp.square(outputs[name][0] - goal.critics) for name in CRITICS]
        advantage = goal.value - outputs["value"][0]
        of_value = jnp.abs(self.expectile - (advantage < 0)) * jnp.square(advantage)
        better = jnp.exp(self.temperature * jax.lax.stop_gradient(advantage))
        off = jnp.square(jnp.tanh(outputs["policy"]) - transition.action).sum() / 2
        return sum(errors) + of_value + jnp.minimum(better, self.most_weight) * off
