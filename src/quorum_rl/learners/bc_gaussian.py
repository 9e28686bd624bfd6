"""Behaviour cloning of continuous actions as a Gaussian: what experts do, and how surely.

loss = −mean σ log N(a; tanh μ(s), σ) / 5,    σ = e^{ρ(s)}, the mean over the numbers of an action.

Where experts do the same, it counts for more. The σ before the logarithm, through which no gradient
flows, keeps a small spread from making steps large (Seitzer et al. 2022, β = ½); so does the fifth,
with which the usual local rate suits it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from quorum_rl.learners.learner import CONTINUOUS, Array, Decision, DenseLearner, Outputs
from quorum_rl.types import Transition

LEAST_LOG, MOST_LOG = -2.0, 1.0  # of a spread; actions lie between -1 and 1
FLATTER = 0.2


@dataclass(frozen=True, kw_only=True)
class BcGaussian(DenseLearner):
    """A Gaussian policy fitted by maximum likelihood; it acts by its mean."""

    name: ClassVar[str] = "bc-gaussian"
    takes: ClassVar[tuple[str, ...]] = (CONTINUOUS,)

    def output_sizes(self, action_count: int) -> Mapping[str, int]:
        return {"policy": action_count, "log_spread": action_count}

    def loss_from_outputs(self, outputs: Outputs, goal: None, transition: Transition) -> Array:
        del goal
        log_spread = jnp.clip(outputs["log_spread"], LEAST_LOG, MOST_LOG)
        spread = jnp.exp(log_spread)
        error = (transition.action - jnp.tanh(outputs["policy"])) / spread
        surprise = jnp.square(error) / 2 + log_spread + math.log(2 * math.pi) / 2
        return FLATTER * (jax.lax.stop_gradient(spread) * surprise).mean()

    def decision(self) -> Decision:
        return Decision(squashed="policy")
