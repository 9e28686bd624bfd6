"""TD3+BC (Fujimoto and Gu 2021): a policy of high value that stays near what experts did.

loss = Σ_i (Q_i(s, a) − y)² − λ Q₁(s, π(s)) + mean (π(s) − a)²,
y = c r + γ min_i Q̄_i(s', π̄(s') + clipped noise),    λ = α / |Q₁(s, π(s))|.

Published code divides by the mean |Q₁| of a batch; a loss of one transition has its own.
No gradient flows into the critics from what they say of π(s).
"""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from quorum_rl.errors import require
from quorum_rl.learners import defaults
from quorum_rl.learners.actor_critic import CRITICS, ActorCritic, lesser_value, value_of
from quorum_rl.learners.learner import (
    NOT_NEGATIVE,
    Array,
    Networks,
    Outputs,
    apply_network,
)
from quorum_rl.learners.losses import bootstrapped_return, scaled
from quorum_rl.types import Transition

LEAST_VALUE = 1e-3  # of |Q|, by which the policy's own loss is divided


@dataclass(frozen=True, kw_only=True)
class Td3Bc(ActorCritic):
    """Actor and critics in one loss, so one clip does."""

    alpha: float = defaults.TD3_ALPHA  # weight of values beside imitation; 0 imitates
    target_noise: float = defaults.TD3_NOISE  # standard deviation of what is added to π̄(s')
    noise_clip: float = defaults.TD3_NOISE_CLIP

    name: ClassVar[str] = "td3-bc"
    target_names: ClassVar[tuple[str, ...]] = ("policy", *CRITICS)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("alpha", "target_noise", "noise_clip"):
            require(name, getattr(self, name), NOT_NEGATIVE)

    def goal(self, params: Networks, target: Networks, transition: Transition, key: Array) -> Array:
        del params
        following = jnp.tanh(apply_network(target["policy"], transition.next_observation))
        noise = self.target_noise * jax.random.normal(key, following.shape)
        noise = jnp.clip(noise, -self.noise_clip, self.noise_clip)
        action = jnp.clip(following + noise, -1, 1)
        value = lesser_value(target, transition.next_observation, action)
        return bootstrapped_return(scaled(transition, self.reward_scale), value, self.discount)

    def outputs(self, params: Networks, transition: Transition) -> Outputs:
        seen = super().outputs(params, transition)
        action, critic = jnp.tanh(seen["policy"]), jax.lax.stop_gradient(params)
        value = value_of(critic, CRITICS[0], transition.observation, action)
        return seen | {"action": action, "value": value}

    def loss_from_outputs(self, outputs: Outputs, goal: Array, transition: Transition) -> Array:
        errors = [jnp.square(outputs[name][0] - goal) for name in CRITICS]
        imitation = jnp.square(outputs["action"] - transition.action).mean()
        value = outputs["value"]
        size = jnp.maximum(jnp.abs(jax.lax.stop_gradient(value)), LEAST_VALUE)
        return sum(errors) + imitation - self.alpha * value / size
