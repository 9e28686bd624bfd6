"""A world of continuous actions whose best policy is known: aim at what is shown."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from quorum_rl.envs import Facts, Spaces, Step, grid
from quorum_rl.envs.world import Array, Key
from quorum_rl.pytree import pytree


@pytree
class AimParams:
    far: float = 1.0  # how far away targets are, of what the bounds allow
    time_limit: int = 5


@pytree
class AimState:
    target: Array
    time: Array


@dataclass(frozen=True)
class Aim:
    """Two numbers between −1 and 1 are shown. The first, times five and plus five, is where the
    first number of an action should be, between 0 and 10; the second is shown as it should be.
    """

    name: ClassVar[str] = "Aim"
    spaces: ClassVar[Spaces] = Spaces(
        ("first", "second"),
        (-1.0, -1.0),
        (1.0, 1.0),
        ("wide", "narrow"),
        ((0.0, 10.0), (-1.0, 1.0)),
    )
    facts: ClassVar[Facts] = Facts(-10.0, "guessed", 0.0, "no miss", 5, 5)

    def default_params(self) -> AimParams:
        return AimParams()

    def settings(self) -> AimParams:
        return grid(self.default_params(), far=np.linspace(0.7, 1.0, 4))

    def reset(self, key: Key, params: AimParams) -> tuple[AimState, Array]:
        target = params.far * jax.random.uniform(key, (2,), jnp.float32, -1, 1)
        return AimState(target, jnp.int32(0)), target

    def step(self, key: Key, state: AimState, action: Array, params: AimParams) -> Step[AimState]:
        aimed = jnp.stack([(action[0] - 5) / 5, action[1]])
        following, observation = self.reset(key, params)
        after = AimState(following.target, state.time + 1)
        return Step(
            state=after,
            observation=observation,
            reward=-jnp.square(aimed - state.target).sum(),
            terminated=jnp.bool_(False),
            truncated=after.time >= params.time_limit,
        )
