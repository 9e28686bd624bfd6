"""Acrobot: swing two hanging links, driven only at the joint between them, above a bar.

Physics: the equations of Sutton and Barto's book, one Runge-Kutta step of 0.2 s, as in Gymnasium's
Acrobot-v1. Changing a link's length there changes neither its centre of mass (0.5 m) nor its
moment of inertia (1), and the second link's length enters no equation; the bar stays where it
is. We do the same, so that the variations mean what they mean in Gymnasium;
`centre_of_mass_at_half_length=True` moves the centres with the lengths instead.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import jax
import jax.numpy as jnp
import numpy as np

from quorum_rl.envs.integrators import runge_kutta_4, wrapped
from quorum_rl.envs.world import Array, Facts, Key, Spaces, Step, Units, grid
from quorum_rl.pytree import pytree

GRAVITY: Final = 9.8
TIME_STEP: Final = 0.2  # seconds
VELOCITY_LIMIT_1: Final = 4 * math.pi
VELOCITY_LIMIT_2: Final = 9 * math.pi
MOMENT_OF_INERTIA: Final = 1.0  # of either link
CENTRE_OF_MASS: Final = 0.5  # metres along either link
BAR_HEIGHT: Final = 1.0  # of links of length 1, whatever their lengths are
START_RANGE: Final = 0.1

Four = tuple[Array, Array, Array, Array]


@pytree
class AcrobotParams:
    link_length_1: float = 1.0
    link_length_2: float = 1.0
    link_mass_1: float = 1.0
    link_mass_2: float = 1.0
    time_limit: int = 200


@pytree
class AcrobotState:
    angle_1: Array  # of the first link, 0 hanging down
    angle_2: Array  # of the second link, relative to the first
    velocity_1: Array
    velocity_2: Array
    time: Array


@dataclass(frozen=True)
class Acrobot:
    """The world; see the module's text."""

    centre_of_mass_at_half_length: bool = False
    name: ClassVar[str] = "Acrobot"
    spaces: ClassVar[Spaces] = Spaces(
        observation_names=(
            "cos angle 1", "sin angle 1", "cos angle 2", "sin angle 2", "velocity 1", "velocity 2",
        ),
        low=(-1.0, -1.0, -1.0, -1.0, -VELOCITY_LIMIT_1, -VELOCITY_LIMIT_2),
        high=(1.0, 1.0, 1.0, 1.0, VELOCITY_LIMIT_1, VELOCITY_LIMIT_2),
        action_names=("torque -1", "torque 0", "torque +1"),
    )  # fmt: skip
    facts: ClassVar[Facts] = Facts(
        random_return=-200.0,
        random_source="measured: none of 10,000 episodes reached the bar in 200 steps",
        reference_return=-75.30,
        reference_source="closed-loop network of 16 tanh units, the best of five searches by the "
        "cross-entropy method: mean of 10,000 fresh episodes, standard error 0.13",
        demonstration_time_limit=200,
        evaluation_time_limit=200,
    )
    units: ClassVar[Units] = Units(
        centre=(0.78, 0.0, 0.56, 0.0, 0.0, 0.0), scale=(0.38, 0.50, 0.58, 0.60, 1.63, 2.46)
    )

    def default_params(self) -> AcrobotParams:
        return AcrobotParams()

    def settings(self) -> AcrobotParams:
        """Length of both links × mass of the first × mass of the second, ten values each."""
        made = grid(
            self.default_params(),
            link_length_1=np.linspace(0.8, 1.2, 10),
            link_mass_1=np.linspace(0.9, 1.1, 10),
            link_mass_2=np.linspace(0.9, 1.1, 10),
        )
        return replace(made, link_length_2=made.link_length_1)

    def reset(self, key: Key, params: AcrobotParams) -> tuple[AcrobotState, Array]:
        del params
        start = jax.random.uniform(key, (4,), jnp.float32, -START_RANGE, START_RANGE)
        state = AcrobotState(start[0], start[1], start[2], start[3], time=jnp.int32(0))
        return state, _observe(state)

    def step(
        self, key: Key, state: AcrobotState, action: Array, params: AcrobotParams
    ) -> Step[AcrobotState]:
        del key
        torque = jnp.asarray(action, jnp.float32) - 1.0

        def derivative(now: Four) -> Four:
            return self._derivative(now, torque, params)

        before = (state.angle_1, state.angle_2, state.velocity_1, state.velocity_2)
        angle_1, angle_2, velocity_1, velocity_2 = runge_kutta_4(derivative, before, TIME_STEP)
        after = AcrobotState(
            angle_1=wrapped(angle_1),
            angle_2=wrapped(angle_2),
            velocity_1=jnp.clip(velocity_1, -VELOCITY_LIMIT_1, VELOCITY_LIMIT_1),
            velocity_2=jnp.clip(velocity_2, -VELOCITY_LIMIT_2, VELOCITY_LIMIT_2),
            time=state.time + 1,
        )
        observation = _observe(after)
        cosine_1, sine_1, cosine_2, sine_2 = observation[:4]
        height = -cosine_1 - (cosine_1 * cosine_2 - sine_1 * sine_2)
        above = height > BAR_HEIGHT
        return Step(
            state=after,
            observation=observation,
            reward=jnp.where(above, 0.0, -1.0).astype(jnp.float32),
            terminated=above,
            truncated=after.time >= params.time_limit,
        )

    def _derivative(self, now: Four, torque: Array, params: AcrobotParams) -> Four:
        """The book's equations; `pull` are its φ, `inertia` its d."""
        angle_1, angle_2, velocity_1, velocity_2 = now
        length, mass_1, mass_2 = params.link_length_1, params.link_mass_1, params.link_mass_2
        centre_1: float | Array = CENTRE_OF_MASS
        centre_2: float | Array = CENTRE_OF_MASS
        if self.centre_of_mass_at_half_length:
            centre_1, centre_2 = length / 2, params.link_length_2 / 2
        sine_2, cosine_2 = jnp.sin(angle_2), jnp.cos(angle_2)
        coupling = mass_2 * length * centre_2
        own_2 = mass_2 * centre_2**2 + MOMENT_OF_INERTIA
        inertia_2 = own_2 + coupling * cosine_2
        inertia_1 = (
            mass_1 * centre_1**2
            + MOMENT_OF_INERTIA
            + mass_2 * length**2
            + own_2
            + 2 * coupling * cosine_2
        )
        # cos(x - pi/2) in the book is sin(x) here.
        pull_2 = mass_2 * centre_2 * GRAVITY * jnp.sin(angle_1 + angle_2)
        pull_1 = (
            -coupling * sine_2 * velocity_2 * (velocity_2 + 2 * velocity_1)
            + (mass_1 * centre_1 + mass_2 * length) * GRAVITY * jnp.sin(angle_1)
            + pull_2
        )
        ratio = inertia_2 / inertia_1
        acceleration_2 = (torque + ratio * pull_1 - coupling * velocity_1**2 * sine_2 - pull_2) / (
            own_2 - ratio * inertia_2
        )
        acceleration_1 = -(inertia_2 * acceleration_2 + pull_1) / inertia_1
        return velocity_1, velocity_2, acceleration_1, acceleration_2


def _observe(state: AcrobotState) -> Array:
    return jnp.stack(
        [
            jnp.cos(state.angle_1),
            jnp.sin(state.angle_1),
            jnp.cos(state.angle_2),
            jnp.sin(state.angle_2),
            state.velocity_1,
            state.velocity_2,
        ]
    )
