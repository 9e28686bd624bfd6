"""LunarLander: set a lander down on a pad between two flags, with three engines.

Physics: a hull on two hinged legs, as in Gymnasium's LunarLander-v3, whose Box2D the files beside
this one follow. Here are the engines, the wind, what is seen and what is rewarded. Gravity
is 10 by default, as there. The engines are a list of actions, or continuous as with
`continuous=True` there: the rest of the two worlds is one.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from quorum_rl.envs.lunar_lander import contacts
from quorum_rl.envs.lunar_lander.geometry import (
    EDGES,
    HEIGHT,
    HULL,
    PAD_HEIGHT,
    PIXELS_PER_METRE,
    WIDTH,
    Body,
    Motion,
    Pose,
    Vec,
    cross,
    terrain,
    vec,
)
from quorum_rl.envs.lunar_lander.impacts import impacted
from quorum_rl.envs.lunar_lander.joints import HINGES, LEG_DOWN, HingeImpulse
from quorum_rl.envs.lunar_lander.solver import NO_TOUCHES, Lander, Leg, Passes, collided, solved
from quorum_rl.envs.world import Array, Facts, Key, Spaces, Step, Units, grid
from quorum_rl.pytree import pytree

STEPS_PER_SECOND: Final = 50
MAIN_POWER: Final = 13.0
SIDE_POWER: Final = 0.6
MAIN_BELOW: Final = 4 / PIXELS_PER_METRE  # metres below the hull's origin
SIDE_AWAY: Final = 12 / PIXELS_PER_METRE
SIDE_HEIGHT: Final = 14 / PIXELS_PER_METRE
SIDE_OFFSET: Final = 17 / PIXELS_PER_METRE  # Gymnasium's; not the height above, though meant to be
FIRST_FORCE: Final = 1000.0  # newtons, at most, of the push in the first step
LATEST_WIND: Final = 9999  # the wind's clock starts anywhere within this of zero
MAIN_FUEL: Final = 0.3
SIDE_FUEL: Final = 0.03
LEAST_POWER: Final = 0.5  # of a continuous engine that is on


@pytree
class LunarLanderParams:
    gravity: float = 10.0
    wind_power: float = 0.0
    turbulence_power: float = 0.0
    time_limit: int = 1000


@pytree
class LunarLanderState:
    lander: Lander
    ground: Array  # heights at the corners of its edges
    wind_clock: Array
    turbulence_clock: Array
    shaping: Array  # the potential whose differences are rewarded
    time: Array


class Engines(NamedTuple):
    """How strongly the engines push: 0 is off, 1 is all they can."""

    main: Array
    side: Array  # below 0 the left one, above 0 the right one


@dataclass(frozen=True)
class LunarLander:
    """The world; see the module's text. Fewer passes are faster and less true."""

    velocity_passes: int = 180
    position_passes: int = 60
    impact_passes: int = 30  # of the velocities of a leg that hits the ground; 0: no impacts
    copies_at_once: ClassVar[int] = 128  # on a CPU: what the passes need stays in the cache
    name: ClassVar[str] = "LunarLander"
    spaces: ClassVar[Spaces] = Spaces(
        observation_names=(
            "x", "y", "velocity x", "velocity y", "angle", "angular velocity",
            "first leg touches", "second leg touches",
        ),
        low=(-math.inf,) * 6 + (0.0, 0.0),
        high=(math.inf,) * 6 + (1.0, 1.0),
        action_names=("nothing", "left engine", "main engine", "right engine"),
    )  # fmt: skip
    facts: ClassVar[Facts] = Facts(
        random_return=-184.8,
        random_source="measured: mean of 5,000 episodes, standard error 1.6",
        reference_return=286.1,
        reference_source="a network of (32, 32) units, the best of four agents trained for four "
        "million steps each: mean of 5,000 episodes, standard error 0.4",
        demonstration_time_limit=1000,
        evaluation_time_limit=1000,
    )
    units: ClassVar[Units] = Units(
        centre=(0.0,) * 8,
        scale=(0.5, 1.0, 0.5, 0.5, 0.5, 0.5, 1.0, 1.0),
        reward_scale=0.1,  # of landings that pay a hundred
    )

    def default_params(self) -> LunarLanderParams:
        return LunarLanderParams()

    def settings(self) -> LunarLanderParams:
        """Gravity × wind power × turbulence, ten equally spaced values each."""
        return grid(
            self.default_params(),
            gravity=np.linspace(9.0, 11.0, 10),
            wind_power=np.linspace(0.0, 5.0, 10),
            turbulence_power=np.linspace(0.0, 0.5, 10),
        )

    def reset(self, key: Key, params: LunarLanderParams) -> tuple[LunarLanderState, Array]:
        """Bodies are put near each other, and one step with a random push pulls them together."""
        for_ground, for_push, for_wind = jax.random.split(key, 3)
        heights = jax.random.uniform(for_ground, (EDGES + 2,), jnp.float32, maxval=HEIGHT / 2)
        push = jax.random.uniform(for_push, (2,), jnp.float32, -FIRST_FORCE, FIRST_FORCE)
        clocks = jax.random.randint(for_wind, (2,), -LATEST_WIND, LATEST_WIND, jnp.int32)
        before = assembled(terrain(heights), clocks)
        after = self.dropped(before, Vec(push[0], push[1]), params)
        return after, observed(after.lander)

    def step(
        self, key: Key, state: LunarLanderState, action: Array, params: LunarLanderParams
    ) -> Step[LunarLanderState]:
        dispersion = jax.random.uniform(key, (2,), jnp.float32, -1.0, 1.0)
        after: Step[LunarLanderState] = self.flown(state, action, dispersion, params)
        return after

    # Compiled also where nobody asked for it: one by one, its operations would take a minute.
    @partial(jax.jit, static_argnums=0)
    def flown(
        self, state: LunarLanderState, action: Array, dispersion: Array, params: LunarLanderParams
    ) -> Step[LunarLanderState]:
        """One step in which the engines scatter as `dispersion` says, two numbers in [-1, 1]."""
        grounded = state.lander.legs[0].touches | state.lander.legs[1].touches
        force, torque = wind(state, params)
        scatter = dispersion / PIXELS_PER_METRE
        hull = state.lander.hull
        engines = self.engines(action)
        hull = replace(hull, motion=fired(hull, engines, scatter))
        lander = replace(state.lander, hull=hull)
        before, touches = collided(lander, state.ground)
        windy = jnp.where(grounded, 0.0, 1.0)
        lander = solved(
            before, touches, windy * force, windy * torque, params.gravity, self._passes()
        )
        if self.impact_passes:
            lander = impacted(lander, before, state.ground, self.impact_passes)
        seen = observed(lander)
        shaping = potential(seen)
        lost = lander.crashed | (jnp.abs(seen[0]) >= 1.0)
        fuel = MAIN_FUEL * engines.main + SIDE_FUEL * jnp.abs(engines.side)
        reward = jnp.where(lost, -100.0, shaping - state.shaping - fuel)
        ticks = jnp.where(grounded, 0, 1)
        time = state.time + 1
        return Step(
            state=replace(
                state,
                lander=lander,
                wind_clock=state.wind_clock + ticks,
                turbulence_clock=state.turbulence_clock + ticks,
                shaping=shaping,
                time=time,
            ),
            observation=seen,
            reward=jnp.where(lander.asleep, 100.0, reward).astype(jnp.float32),
            terminated=lost | lander.asleep,
            truncated=time >= params.time_limit,
        )

    @partial(jax.jit, static_argnums=0)
    def dropped(
        self, state: LunarLanderState, push: Vec, params: LunarLanderParams
    ) -> LunarLanderState:
        """The first step, high above the ground: `push` and the wind act, no engine does."""
        force, torque = wind(state, params)
        lander = solved(
            state.lander, NO_TOUCHES, force + push, torque, params.gravity, self._passes()
        )
        return replace(
            state,
            lander=lander,
            wind_clock=state.wind_clock + 1,
            turbulence_clock=state.turbulence_clock + 1,
            shaping=potential(observed(lander)),
        )

    def engines(self, action: Array) -> Engines:
        """What an action asks of the engines."""
        one = jnp.float32(1)
        side = jnp.where(action == 1, -one, jnp.where(action == 3, one, 0))
        return Engines(jnp.where(action == 2, one, 0), side)

    def _passes(self) -> Passes:
        return Passes(self.velocity_passes, self.position_passes)


@dataclass(frozen=True)
class LunarLanderContinuous(LunarLander):
    """LunarLander whose engines have throttles; two of them may burn at once."""

    name: ClassVar[str] = "LunarLanderContinuous"
    spaces: ClassVar[Spaces] = replace(
        LunarLander.spaces,
        action_names=("main engine", "side engines"),
        action_bounds=((-1.0, 1.0), (-1.0, 1.0)),
    )
    facts: ClassVar[Facts] = replace(
        LunarLander.facts,
        random_return=-212.2,
        random_source="measured: mean of 3,072 episodes, standard error 2.3",
        reference_source="the reference of LunarLander, whose engines burn with all their power: "
        "what that network was measured to earn",
    )

    def engines(self, action: Array) -> Engines:
        """Gymnasium's: the main one is on above 0, a side one beyond a half to its side."""
        main, side = jnp.clip(action.astype(jnp.float32), -1, 1)
        main_power = LEAST_POWER + (1 - LEAST_POWER) * main
        off = jnp.float32(0)
        return Engines(
            jnp.where(main > 0, main_power, off), jnp.where(jnp.abs(side) > LEAST_POWER, side, off)
        )


FULL_THROTTLE: Final = ((0.0, 0.0), (0.0, -1.0), (1.0, 0.0), (0.0, 1.0))
"""What each action of LunarLander is in LunarLanderContinuous."""


def assembled(ground: Array, clocks: Array) -> LunarLanderState:
    """Before the first step: the legs beside the hull, not yet where the hinges want them."""
    zero = jnp.float32(0)
    still = Motion(Vec(zero, zero), zero)
    middle = WIDTH / 2
    centre = vec(middle + HULL.centre[0], HEIGHT + HULL.centre[1])

    def leg(number: int) -> Leg:
        hinge = HINGES[number]
        centre = vec(middle - hinge.anchor[0], HEIGHT)
        pose = Pose(centre, jnp.float32(hinge.reference_angle))
        at_rest = HingeImpulse(Vec(zero, zero), zero, zero)
        return Leg(Body(pose, still, zero), at_rest, contacts.no_contacts(), jnp.bool_(False))

    return LunarLanderState(
        lander=Lander(
            hull=Body(Pose(centre, zero), still, zero),
            legs=(leg(0), leg(1)),
            crashed=jnp.bool_(False),
            asleep=jnp.bool_(False),
        ),
        ground=ground,
        wind_clock=clocks[0],
        turbulence_clock=clocks[1],
        shaping=zero,
        time=jnp.int32(0),
    )


def gust(clock: Array) -> Array:
    """Between -1 and 1, and never the same again: the sum of two waves of unrelated lengths."""
    # The second wave repeats after 200 ticks: taking those off first keeps its phase exact.
    slow = jnp.sin(0.02 * clock.astype(jnp.float32))
    return jnp.tanh(slow + jnp.sin(math.pi * 0.01 * (clock % 200).astype(jnp.float32)))


def wind(state: LunarLanderState, params: LunarLanderParams) -> tuple[Vec, Array]:
    """The wind's force and the turbulence's torque on the hull, were no leg on the ground."""
    force = vec(params.wind_power * gust(state.wind_clock), 0.0)
    return force, params.turbulence_power * gust(state.turbulence_clock)


def fired(hull: Body, engines: Engines, dispersion: Array) -> Motion:
    """The hull's motion after its engines burned, scattered by `dispersion` metres."""
    sine, cosine = jnp.sin(hull.pose.angle), jnp.cos(hull.pose.angle)
    direction = jnp.sign(engines.side)

    def offset(down: Array, aside: Array) -> Vec:
        return Vec(sine * down - cosine * aside, -cosine * down - sine * aside)

    main = offset(MAIN_BELOW + 2 * dispersion[0], dispersion[1])
    side = offset(dispersion[0], 3 * dispersion[1] + direction * SIDE_AWAY)
    mount = Vec(-sine * SIDE_OFFSET, cosine * SIDE_HEIGHT)
    main_push = -MAIN_POWER * engines.main * main
    side_push = -SIDE_POWER * jnp.abs(engines.side) * side
    origin_arm = HULL.origin(hull.pose) - hull.pose.centre
    main_torque = cross(origin_arm + main, main_push)
    side_torque = cross(origin_arm + side + mount, side_push)
    return hull.motion.pushed(HULL, main_push + side_push, main_torque + side_torque)


def observed(lander: Lander) -> Array:
    """What is seen: of the hull's origin the place, but of its centre of mass the velocity."""
    hull, legs = lander.hull, lander.legs
    origin = HULL.origin(hull.pose)
    return jnp.stack(
        [
            (origin.x - WIDTH / 2) / (WIDTH / 2),
            (origin.y - (PAD_HEIGHT + LEG_DOWN)) / (HEIGHT / 2),
            hull.motion.velocity.x * (WIDTH / 2) / STEPS_PER_SECOND,
            hull.motion.velocity.y * (HEIGHT / 2) / STEPS_PER_SECOND,
            hull.pose.angle,
            20.0 * hull.motion.spin / STEPS_PER_SECOND,
            legs[0].touches.astype(jnp.float32),
            legs[1].touches.astype(jnp.float32),
        ]
    )


def potential(seen: Array) -> Array:
    """High near the pad, slow, upright and with legs on the ground."""
    distance = jnp.sqrt(seen[0] ** 2 + seen[1] ** 2)
    speed = jnp.sqrt(seen[2] ** 2 + seen[3] ** 2)
    return -100 * distance - 100 * speed - 100 * jnp.abs(seen[4]) + 10 * seen[6] + 10 * seen[7]
