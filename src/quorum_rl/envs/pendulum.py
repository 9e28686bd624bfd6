"""Pendulum: swing a hanging rod up and hold it there, with a torque too weak to lift it at once.

Physics: one semi-implicit Euler step of 0.05 s, as in Gymnasium's Pendulum-v1. Actions are
continuous: the torque, cut to ±2 N m. An episode ends at the time limit alone.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Final

import jax
import jax.numpy as jnp
import numpy as np

from quorum_rl.envs.integrators import wrapped
from quorum_rl.envs.world import Array, Facts, Key, Spaces, Step, Units, grid
from quorum_rl.pytree import pytree

TIME_STEP: Final = 0.05  # seconds
TORQUE_LIMIT: Final = 2.0  # newton metres to either side
SPEED_LIMIT: Final = 8.0  # radians per second
START_SPEED: Final = 1.0  # at most, to either side; the start angle is any


@pytree
class PendulumParams:
    gravity: float = 10.0
    mass: float = 1.0
    length: float = 1.0
    time_limit: int = 200


@pytree
class PendulumState:
    angle: Array  # 0 is upright, within [-pi, pi]
    velocity: Array
    time: Array


@dataclass(frozen=True)
class Pendulum:
    """The world; see the module's text."""

    name: ClassVar[str] = "Pendulum"
    spaces: ClassVar[Spaces] = Spaces(
        observation_names=("cos angle", "sin angle", "velocity"),
        low=(-1.0, -1.0, -SPEED_LIMIT),
        high=(1.0, 1.0, SPEED_LIMIT),
        action_names=("torque",),
        action_bounds=((-TORQUE_LIMIT, TORQUE_LIMIT),),
    )
    facts: ClassVar[Facts] = Facts(
        random_return=-1226.8,
        random_source="measured: mean of 10,000 episodes, standard error 2.9",
        reference_return=-151.8,
        reference_source="a network of (32, 32) units, the best of four agents trained for 800,000 "
        "steps each: mean of 10,000 episodes, standard error 0.9",
        demonstration_time_limit=200,
        evaluation_time_limit=200,
    )
    units: ClassVar[Units] = Units(
        centre=(0.24, 0.0, 0.0), scale=(0.82, 0.52, 2.72), reward_scale=0.1
    )

    def default_params(self) -> PendulumParams:
        return PendulumParams()

    def settings(self) -> PendulumParams:
        """Gravity × mass × length, ten equally spaced values each."""
        return grid(
            self.default_params(),
            gravity=np.linspace(9.0, 11.0, 10),
            mass=np.linspace(0.9, 1.1, 10),
            length=np.linspace(0.9, 1.1, 10),
        )

    def reset(self, key: Key, params: PendulumParams) -> tuple[PendulumState, Array]:
        del params
        widest = jnp.array([math.pi, START_SPEED], jnp.float32)
        start = jax.random.uniform(key, (2,), jnp.float32, -widest, widest)
        state = PendulumState(start[0], start[1], time=jnp.int32(0))
        return state, _observe(state)

    def step(
        self, key: Key, state: PendulumState, action: Array, params: PendulumParams
    ) -> Step[PendulumState]:
        del key
        torque = jnp.clip(action[0].astype(jnp.float32), -TORQUE_LIMIT, TORQUE_LIMIT)
        cost = state.angle**2 + 0.1 * state.velocity**2 + 0.001 * torque**2
        pull = 3 * params.gravity / (2 * params.length) * jnp.sin(state.angle)
        push = 3 / (params.mass * params.length**2) * torque
        velocity = state.velocity + (pull + push) * TIME_STEP
        velocity = jnp.clip(velocity, -SPEED_LIMIT, SPEED_LIMIT)
        after = PendulumState(
            angle=wrapped(state.angle + velocity * TIME_STEP),
            velocity=velocity,
            time=state.time + 1,
        )
        return Step(
            state=after,
            observation=_observe(after),
            reward=-cost,
            terminated=jnp.bool_(False),
            truncated=after.time >= params.time_limit,
        )


def _observe(state: PendulumState) -> Array:
    return jnp.stack([jnp.cos(state.angle), jnp.sin(state.angle), state.velocity])
