"""A contribution of your own: what every expert hands to a private step, before it is clipped.

One frozen dataclass: how many transitions of an expert it is given, and what it makes of them.
It says in which direction the parameters should not go. This one is a vote: experts contribute
only the signs of their mean gradient, so nobody's long gradient outweighs another's.

Run this file to see 100 made-up experts teach a policy to push a cart to the middle, at ε = 1.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from quorum_rl import Demonstrations, fit
from quorum_rl.learners import Learner
from quorum_rl.logs import Declared, StepArrays, from_step_arrays
from quorum_rl.pipeline import FitSettings
from quorum_rl.training import TrainsEverything, mean_gradient
from quorum_rl.types import Transition


@dataclass(frozen=True)
class Vote(TrainsEverything):
    """The sign of the mean gradient in every parameter. Where it is exactly 0, no vote."""

    transitions: int = 200

    def __call__(
        self, learner: Learner, params: Any, target: Any, transitions: Transition, key: Array
    ) -> Any:
        return jax.tree.map(jnp.sign, mean_gradient(learner, params, target, transitions, key))


def logs(experts: int, each: int) -> Demonstrations:
    """Carts are left (negative) or right of the middle; experts push them there, nine in ten times.

    Every push is an episode of one step.
    """
    rng = np.random.default_rng(0)
    places = rng.uniform(-1, 1, (experts * each, 1))
    pushes = np.where(rng.random(len(places)) < 0.1, places[:, 0] > 0, places[:, 0] < 0)
    ones, who = np.ones(len(places)), np.repeat(np.arange(experts), each)
    arrays = StepArrays(places, pushes.astype(int), ones, ones, 0 * ones, who, places)
    return from_step_arrays(arrays, Declared(2, 1, horizon=1, minimum_experts=int(0.95 * experts)))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        made = fit(
            logs(experts=100, each=50),
            epsilon=1,
            delta=1e-4,
            settings=FitSettings(contribution=Vote()),  # all other numbers as for method local
            accepted=["one-expert-each"],
            folder=Path(folder) / "run",
        )
    places = np.linspace(-1, 1, 200)[:, None]
    right = float((made.act(places) == (places[:, 0] < 0)).mean())
    print(f"It pushes {right:.0%} of carts to the middle; guessing is about 50%.")
