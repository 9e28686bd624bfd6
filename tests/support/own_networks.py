"""Learners whose networks are not dense, as small as they can be."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from quorum_rl.learners import negative_log_likelihood
from quorum_rl.types import Transition

BIASES = 1  # how many a head has, so that a test can change what `init` makes


class Imitating(ABC):
    """Imitation by whatever `outputs` are; it bootstraps from nothing."""

    @abstractmethod
    def outputs(self, params: Any, observations: Array) -> Array: ...

    def loss(self, params: Any, target: Any, transition: Transition, key: Array) -> Array:
        del target, key
        outputs = self.outputs(params, transition.observation)
        return negative_log_likelihood(outputs, transition.action)

    def act(self, params: Any, observations: Array) -> Array:
        return self.outputs(params, observations).argmax(axis=-1)

    def init_target(self, params: Any) -> Any:
        """There is none."""
        del params

    def update_target(self, params: Any, target: Any, step: Array) -> Any:
        """Nor a slow copy."""
        del params, target, step


@dataclass(frozen=True)
class Alike(Imitating):
    """Imitation by filters that see each number of an observation alike; the largest counts."""

    filters: int = 3

    def init(self, key: Array, observation_size: int, action_count: int) -> dict[str, Any]:
        del observation_size
        of_filters, of_head = jax.random.split(key)
        return {
            "filters": [jax.random.normal(of_filters, (2, self.filters))],
            "head": {
                "weight": jax.random.normal(of_head, (self.filters, action_count)),
                "bias": jnp.zeros((BIASES, action_count)),
            },
        }

    def outputs(self, params: dict[str, Any], observations: Array) -> Array:
        weight, bias = params["filters"][0]
        seen: Array = jax.nn.relu(observations[..., None] * weight + bias).max(axis=-2)
        outputs: Array = seen @ params["head"]["weight"] + params["head"]["bias"].sum(axis=0)
        return outputs


@dataclass(frozen=True)
class Steering(Alike):
    """The same for continuous actions, by squares."""

    def loss(self, params: Any, target: Any, transition: Transition, key: Array) -> Array:
        del target, key
        outputs = self.outputs(params, transition.observation)
        return jnp.square(outputs - transition.action).mean()

    def act(self, params: Any, observations: Array) -> Array:
        return self.outputs(params, observations)
