"""A network of your own: a small convolution, which local updates train like any other learner.

Made-up experts say whether a bar in a noisy picture stands or lies, wherever it is. A convolution
says so with 90 parameters, and the fewer there are, the less noise a fit adds. Nothing in the
library has to change; a log of such pictures in a file is fitted by

    quorum fit pictures.arrow --learner examples/own_network.py:Convolution --epsilon 1 ...
"""

import tempfile
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from quorum_rl import Demonstrations, Policy, fit
from quorum_rl.learners import negative_log_likelihood
from quorum_rl.logs import Declared, StepArrays, from_step_arrays
from quorum_rl.pipeline import FitSettings
from quorum_rl.types import Transition

SIDE = 6  # of a picture, in pixels


@dataclass(frozen=True)
class Convolution:
    """Imitation by filters of 3 × 3 pixels, the largest answer of each, and a linear layer."""

    filters: int = 8

    def init(self, key: Array, observation_size: int, action_count: int) -> dict[str, Array]:
        del observation_size
        of_filters, of_head = jax.random.split(key)
        return {
            "filters": jax.random.normal(of_filters, (9, self.filters)) / 3,
            "head": jax.random.normal(of_head, (self.filters, action_count)) / self.filters,
            "bias": jnp.zeros(action_count),
        }

    def logits(self, params: dict[str, Array], observations: Array) -> Array:
        pixels = observations.reshape(*observations.shape[:-1], SIDE, SIDE)
        end = SIDE - 2
        seen = [pixels[..., i : i + end, j : j + end] for i in range(3) for j in range(3)]
        answers = jax.nn.relu(jnp.stack(seen, axis=-1) @ params["filters"]).max(axis=(-3, -2))
        return answers @ params["head"] + params["bias"]

    def loss(self, params: Any, target: Any, transition: Transition, key: Array) -> Array:
        del target, key
        return negative_log_likelihood(
            self.logits(params, transition.observation), transition.action
        )

    def act(self, params: Any, observations: Array) -> Array:
        return self.logits(params, observations).argmax(axis=-1)

    def init_target(self, params: Any) -> Any:
        """Imitation bootstraps from nothing."""

    def update_target(self, params: Any, target: Any, step: Array) -> Any:
        """Nor has it a slow copy."""


def pictures(rng: np.random.Generator, count: int) -> tuple[Any, Any]:
    """Noisy pictures of a bar three pixels long, and whether it lies (1) or stands (0)."""
    drawn = rng.normal(0, 0.2, (count, SIDE, SIDE))
    lies = rng.integers(0, 2, count)
    for picture, lying, (row, column) in zip(
        drawn, lies, rng.integers(0, SIDE - 2, (count, 2)), strict=True
    ):
        picture[row : row + (1 if lying else 3), column : column + (3 if lying else 1)] += 1
    return drawn.reshape(count, -1).astype(np.float32), lies


def logs(experts: int, each: int) -> Demonstrations:
    """What experts said who err once in ten times: every picture is an episode of one step."""
    rng = np.random.default_rng(0)
    seen, lies = pictures(rng, experts * each)
    said = np.where(rng.random(len(lies)) < 0.1, 1 - lies, lies)
    ones, who = np.ones(len(lies)), np.repeat(np.arange(experts), each)
    arrays = StepArrays(seen, said, ones, ones, 0 * ones, who, next_observations=seen)
    return from_step_arrays(
        arrays, Declared(2, SIDE * SIDE, horizon=1, minimum_experts=int(0.95 * experts))
    )


if __name__ == "__main__":
    learner = Convolution()
    with tempfile.TemporaryDirectory() as folder:
        fitted = fit(
            logs(experts=100, each=50),
            epsilon=1,
            delta=1e-4,
            learner=learner,
            settings=FitSettings(local_steps=10, private_steps=30),  # fewer than usual, to be quick
            folder=folder,
            accepted=["one-expert-each"],
        )
        policy = Policy.load(fitted.folder / "policy.safetensors", learner=learner)
    seen, lies = pictures(np.random.default_rng(1), 2000)
    right = float((policy.act(seen) == lies).mean())
    print(f"It is right about {right:.0%} of new pictures; guessing is about 50%.")
