"""What learners of continuous actions share that learn values: a policy and two critics.

Two critics see an observation and an action; targets use the lesser of their slow copies, for one
alone overrates what it has never seen (Fujimoto et al. 2018).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

import jax.numpy as jnp

from quorum_rl.errors import POSITIVE, require
from quorum_rl.learners.learner import (
    CONTINUOUS,
    Array,
    Decision,
    DenseLearner,
    Networks,
    apply_network,
)

CRITICS: Final = ("first_critic", "second_critic")


@dataclass(frozen=True, kw_only=True)
class ActorCritic(DenseLearner):
    """A policy, and two critics of what it does."""

    reward_scale: float = 1.0  # c, a public number: what rewards are multiplied by

    takes: ClassVar[tuple[str, ...]] = (CONTINUOUS,)
    see_actions: ClassVar[tuple[str, ...]] = CRITICS
    target_names: ClassVar[tuple[str, ...]] = CRITICS

    def __post_init__(self) -> None:
        super().__post_init__()
        require("reward_scale", self.reward_scale, POSITIVE)

    def output_sizes(self, action_count: int) -> Mapping[str, int]:
        return {"policy": action_count, **dict.fromkeys(CRITICS, 1)}

    def decision(self) -> Decision:
        return Decision(squashed="policy")


def value_of(critic: Networks, name: str, observation: Array, action: Array) -> Array:
    """What one critic gives an action."""
    return apply_network(critic[name], jnp.concatenate([observation, action]))[0]


def lesser_value(target: Networks, observation: Array, action: Array) -> Array:
    """What the more cautious of two critics gives it."""
    first, second = (value_of(target, name, observation, action) for name in CRITICS)
    return jnp.minimum(first, second)
