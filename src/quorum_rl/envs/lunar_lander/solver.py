"""One step of all three bodies: Box2D's order of things, which its results depend on.

Physics: semi-implicit Euler. Forces change velocities; impulses at contacts and hinges make the
velocities keep the constraints, as far as a fixed number of passes goes; velocities change
positions; positions are corrected until no constraint is violated by much. Bodies that have been
almost still for half a second fall asleep.
"""

import math
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

import jax
import jax.numpy as jnp

from quorum_rl.envs.lunar_lander import contacts, joints
from quorum_rl.envs.lunar_lander.contacts import ContactImpulse, Contacts, PreparedContact
from quorum_rl.envs.lunar_lander.geometry import HULL, Body, Motion, Pose, Vec, dot
from quorum_rl.envs.lunar_lander.joints import HINGES, LINEAR_SLOP, TIME_STEP, HingeImpulse
from quorum_rl.envs.lunar_lander.kernels import in_one_kernel, repeated_while
from quorum_rl.envs.lunar_lander.touching import Touch
from quorum_rl.envs.world import Array
from quorum_rl.pytree import pytree

LONGEST_MOVE: Final = 2.0  # metres in one step
LONGEST_TURN: Final = 0.5 * math.pi
ALMOST_STILL: Final = 0.01  # metres a second
ALMOST_UNTURNING: Final = 2 / 180 * math.pi  # radians a second
TIME_TO_SLEEP: Final = 0.5  # seconds
ORDER: Final = (1, 0)  # of the legs: Box2D goes from the body that was made last to the first


@pytree
class Leg:
    body: Body
    hinge: HingeImpulse
    contacts: Contacts
    touches: Array  # what Gymnasium's contact listener last said


@pytree
class Lander:
    """All three bodies."""

    hull: Body
    legs: tuple[Leg, Leg]
    crashed: Array  # whether the hull has ever touched the ground
    asleep: Array


Touches = tuple[tuple[Touch, ...], tuple[Touch, ...]]  # of both legs
NO_TOUCHES: Final[Touches] = ((), ())


class Passes(NamedTuple):
    """How often velocities are solved, and positions corrected at most."""

    velocity: int
    position: int


class _Moving(NamedTuple):
    """What changes from one pass over the velocities to the next."""

    hull: Motion
    legs: tuple[Motion, Motion]
    hinges: tuple[HingeImpulse, HingeImpulse]
    pressing: tuple[tuple[ContactImpulse, ...], tuple[ContactImpulse, ...]]


class _Prepared(NamedTuple):
    """What stays the same in all passes over the velocities."""

    hinges: tuple[joints.PreparedHinge, joints.PreparedHinge]
    contacts: tuple[tuple[PreparedContact, ...], tuple[PreparedContact, ...]]


class _Placed(NamedTuple):
    """What changes from one correction of the positions to the next."""

    hull: Pose
    legs: tuple[Pose, Pose]
    fine: Array
    corrections: Array


def collided(lander: Lander, ground: Array) -> tuple[Lander, Touches]:
    """Where the bodies touch the ground now: first of all things in a step."""
    found = [contacts.found(leg.body.pose, ground, leg.contacts) for leg in lander.legs]

    def leg_after(leg: Leg, now: Contacts) -> Leg:
        return replace(leg, contacts=now, touches=flag_after(leg.touches, leg.contacts, now))

    after = replace(
        lander,
        legs=(leg_after(lander.legs[0], found[0][0]), leg_after(lander.legs[1], found[1][0])),
        crashed=lander.crashed | contacts.hull_touches(lander.hull.pose, ground),
    )
    return after, (found[0][1], found[1][1])


def solved(
    lander: Lander,
    touches: Touches,
    force: Vec,
    torque: Array,
    gravity: Array | float,
    passes: Passes,
) -> Lander:
    """One step of `TIME_STEP`; `force` and `torque` act on the hull's centre of mass."""
    hull, legs = lander.hull, lander.legs
    fall = Vec(jnp.float32(0), -jnp.asarray(gravity, jnp.float32))
    start = _Moving(
        hull=Motion(
            hull.motion.velocity + TIME_STEP * (fall + HULL.inverse_mass * force),
            hull.motion.spin + TIME_STEP * HULL.inverse_inertia * torque,
        ),
        legs=(_fallen(legs[0].body.motion, fall), _fallen(legs[1].body.motion, fall)),
        hinges=(legs[0].hinge, legs[1].hinge),
        pressing=(_pressing(legs[0], touches[0]), _pressing(legs[1], touches[1])),
    )
    poses = (legs[0].body.pose, legs[1].body.pose)
    hinged, moving = _solved_velocities(hull.pose, poses, touches, start, passes.velocity)
    hull_motion = limited(moving.hull)
    leg_motions = (limited(moving.legs[0]), limited(moving.legs[1]))
    placed = _corrected_positions(
        _moved(hull.pose, hull_motion),
        (_moved(poses[0], leg_motions[0]), _moved(poses[1], leg_motions[1])),
        hinged,
        touches,
        passes.position,
    )
    rests = [_rest(hull.resting, hull_motion)]
    rests += [_rest(leg.body.resting, now) for leg, now in zip(legs, leg_motions, strict=True)]
    shortest = jnp.minimum(rests[0], jnp.minimum(rests[1], rests[2]))
    asleep = (shortest >= TIME_TO_SLEEP) & placed.fine

    def leg_after(number: int) -> Leg:
        body = Body(placed.legs[number], _slept(leg_motions[number], asleep), rests[1 + number])
        now = contacts.with_impulses(legs[number].contacts, moving.pressing[number])
        return Leg(body, moving.hinges[number], now, legs[number].touches)

    return Lander(
        hull=Body(placed.hull, _slept(hull_motion, asleep), rests[0]),
        legs=(leg_after(0), leg_after(1)),
        crashed=lander.crashed,
        asleep=asleep,
    )


def _pressing(leg: Leg, touches: tuple[Touch, ...]) -> tuple[ContactImpulse, ...]:
    return tuple(contact.impulse for contact in leg.contacts[: len(touches)])


def flag_after(before: Array, last: Contacts, now: Contacts) -> Array:
    """What the contact listener says: the last event counts, whatever else still touches.

    Contacts that were made later are told of their events first.
    """
    begun, ended = contacts.begun_and_ended(now, last)
    return (before | begun) & ~ended


def _fallen(motion: Motion, fall: Vec) -> Motion:
    return Motion(motion.velocity + TIME_STEP * fall, motion.spin)


def _solved_velocities(
    hull: Pose, legs: tuple[Pose, Pose], touches: Touches, start: _Moving, passes: int
) -> tuple[tuple[joints.PreparedHinge, joints.PreparedHinge], _Moving]:
    """Constraints as they are now, and the motions that keep them."""
    made: list[list[PreparedContact]] = [
        [contacts.prepared(leg, touch) for touch in mine]
        for leg, mine in zip(legs, touches, strict=True)
    ]
    motions, hull_motion = list(start.legs), start.hull
    hinges, pressing = list(start.hinges), [list(mine) for mine in start.pressing]
    for number in ORDER:
        for contact, impulse in zip(made[number], pressing[number], strict=True):
            motions[number] = contacts.warm_started(contact, motions[number], impulse)
    hinged: dict[int, joints.PreparedHinge] = {}
    for number in ORDER:
        hinged[number], hinges[number] = joints.prepared(
            HINGES[number], hull, legs[number], hinges[number]
        )
        first = hinges[number]
        hull_motion, motions[number] = joints.applied(
            hinged[number], hull_motion, motions[number], first.push, first.motor + first.stop
        )

    prepared = _Prepared((hinged[0], hinged[1]), (tuple(made[0]), tuple(made[1])))
    begin = _moving(hull_motion, motions, hinges, pressing)
    after = in_one_kernel(partial(_velocity_passes, passes), prepared, begin)
    return prepared.hinges, after


def _velocity_passes(passes: int, made: _Prepared, begin: _Moving) -> _Moving:
    def one_pass(_: Array, now: _Moving) -> _Moving:
        hull_motion, motions, sums = now.hull, list(now.legs), list(now.hinges)
        pressing = [list(mine) for mine in now.pressing]
        for number in ORDER:
            hull_motion, motions[number], sums[number] = joints.solved(
                HINGES[number], made.hinges[number], hull_motion, motions[number], sums[number]
            )
        for number in ORDER:
            for place, contact in enumerate(made.contacts[number]):
                motions[number], pressing[number][place] = contacts.solved(
                    contact, motions[number], pressing[number][place]
                )
        return _moving(hull_motion, motions, sums, pressing)

    after: _Moving = jax.lax.fori_loop(0, passes, one_pass, begin)
    return after


def _moving(
    hull: Motion,
    legs: list[Motion],
    hinges: list[HingeImpulse],
    pressing: list[list[ContactImpulse]],
) -> _Moving:
    return _Moving(
        hull, (legs[0], legs[1]), (hinges[0], hinges[1]), (tuple(pressing[0]), tuple(pressing[1]))
    )


def _corrected_positions(
    hull: Pose,
    legs: tuple[Pose, Pose],
    hinged: tuple[joints.PreparedHinge, joints.PreparedHinge],
    touches: Touches,
    most: int,
) -> _Placed:
    """Correct until all constraints hold well enough, or `most` times."""
    begin = _Placed(hull, legs, jnp.zeros_like(hull.angle, bool), jnp.zeros_like(hull.angle, int))
    return in_one_kernel(partial(_corrections, most), (hinged, touches), begin)


def _corrections(
    most: int,
    held: tuple[tuple[joints.PreparedHinge, joints.PreparedHinge], Touches],
    begin: _Placed,
) -> _Placed:
    hinged, touches = held

    def correct(now: _Placed) -> _Placed:
        hull, poses = now.hull, list(now.legs)
        fine = jnp.ones_like(now.fine)
        for number in ORDER:
            for touch in touches[number]:
                poses[number], deepest = contacts.lifted(touch, poses[number])
                fine &= deepest >= -3 * LINEAR_SLOP
        for number in ORDER:
            hull, poses[number], straight = joints.straightened(
                HINGES[number], hinged[number], hull, poses[number]
            )
            fine &= straight
        return _Placed(hull, (poses[0], poses[1]), fine, now.corrections + 1)

    def unfinished(now: _Placed) -> Array:
        return ~now.fine & (now.corrections < most)

    return repeated_while(unfinished, correct, begin)


def limited(motion: Motion) -> Motion:
    """No faster than a step may move or turn a body."""
    move = TIME_STEP * jnp.sqrt(dot(motion.velocity, motion.velocity))
    turn = TIME_STEP * jnp.abs(motion.spin)
    return Motion(
        jnp.where(move > LONGEST_MOVE, LONGEST_MOVE / jnp.maximum(move, LONGEST_MOVE), 1.0)
        * motion.velocity,
        jnp.where(turn > LONGEST_TURN, LONGEST_TURN / jnp.maximum(turn, LONGEST_TURN), 1.0)
        * motion.spin,
    )


def _moved(pose: Pose, motion: Motion) -> Pose:
    return Pose(pose.centre + TIME_STEP * motion.velocity, pose.angle + TIME_STEP * motion.spin)


def _rest(resting: Array, motion: Motion) -> Array:
    fast = dot(motion.velocity, motion.velocity) > ALMOST_STILL**2
    turning = motion.spin * motion.spin > ALMOST_UNTURNING**2
    return jnp.where(fast | turning, 0.0, resting + jnp.float32(TIME_STEP))


def _slept(motion: Motion, asleep: Array) -> Motion:
    awake = jnp.where(asleep, jnp.float32(0), jnp.float32(1))
    return Motion(awake * motion.velocity, awake * motion.spin)
