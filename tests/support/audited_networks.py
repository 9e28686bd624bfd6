"""Trainings to audit of networks that are neither dense nor of finite actions."""

from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from quorum_rl.audit.cases import EVERYBODY, Case
from quorum_rl.audit.chain import FAR, Chain
from quorum_rl.audit.finding import ITERATES
from quorum_rl.dictionary import Bounds, Dictionary
from quorum_rl.learners import BcGaussian
from quorum_rl.logs import Declared, Demonstrations
from quorum_rl.types import Transition

SIDE: Final = 3
SEEN: Final = (FAR / 2,)  # less this and divided by it, the others' state is -1 and the canary's 1
BOUNDS: Final[Bounds] = ((-2.0, 2.0), (0.0, 8.0))
TAKEN: Final = (1.0, 2.0)


@dataclass(frozen=True)
class Convolution:
    """Values of actions by two filters of 2 × 2 pixels, which are never quite silent."""

    def init(self, key: Array, observation_size: int, action_count: int) -> dict[str, Array]:
        del observation_size
        of_filters, of_head = jax.random.split(key)
        return {
            "filters": jax.random.normal(of_filters, (2, 2, 1, 2)),
            "head": jax.random.normal(of_head, (2, action_count)),
            "bias": jnp.zeros(action_count),
        }

    def values(self, params: dict[str, Array], observations: Array) -> Array:
        pictures = observations.reshape(-1, SIDE, SIDE, 1)
        seen = jax.lax.conv_general_dilated(
            pictures, params["filters"], (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        values: Array = jax.nn.leaky_relu(seen).mean(axis=(1, 2)) @ params["head"] + params["bias"]
        return values

    def loss(self, params: Any, target: Any, transition: Transition, key: Array) -> Array:
        del target, key
        (values,) = self.values(params, transition.observation)
        return jnp.abs(values[transition.action] - transition.reward)

    def act(self, params: Any, observations: Array) -> Array:
        return self.values(params, observations).argmax(axis=-1)

    def init_target(self, params: Any) -> Any:
        """It bootstraps from nothing."""

    def update_target(self, params: Any, target: Any, step: Array) -> Any:
        """Nor has it a slow copy."""


@dataclass(frozen=True, kw_only=True)
class Doses(Chain):
    """The same chain, where all take one continuous action in training."""

    @property
    def declared(self) -> Declared:
        return replace(super().declared, p_min=None, dictionary=Dictionary(action_bounds=BOUNDS))

    def log(self, present: bool, pool_size: int, rng: np.random.Generator) -> Demonstrations:
        finite = Chain(**asdict(self)).log(present, pool_size, rng)
        taken = np.tile(np.array(TAKEN, np.float32), (len(finite.columns.actions), 1))
        columns = finite.columns._replace(actions=taken)
        return Demonstrations(self.declared, columns, finite.episodes)


def _case(name: str, learner: Any, chain: Chain, clip_norm: float = 1.0) -> Case:
    """Everybody is drawn in each of four private steps, by plain descent."""
    plan, step = EVERYBODY.plan, EVERYBODY.private
    plan = replace(plan, learner=learner, plain_steps=0, private=replace(step, clip_norm=clip_norm))
    return replace(EVERYBODY, name=f"training, {name}", plan=plan, chain=chain, threats=(ITERATES,))


CONVOLVED: Final = _case(
    "a convolution", Convolution(), replace(EVERYBODY.chain, observation_size=SIDE**2)
)
GAUSSIANS: Final = _case(
    "Gaussian policies",
    BcGaussian(
        hidden_sizes=(), observation_centre=SEEN, observation_scale=SEEN, action_bounds=BOUNDS
    ),
    Doses(**asdict(EVERYBODY.chain)),
    clip_norm=1e-3,  # so that steps are small, and nothing is squashed for good
)
