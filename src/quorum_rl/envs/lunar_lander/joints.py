"""The two hinges that hold the legs to the hull, each with a motor and a range of angles.

Physics: a hinge is a constraint on velocities (the two anchors move together; the motor
wants a relative spin, at most with its torque; at the end of its range the leg may only turn
back), kept by impulses that are found one hinge after the other, again and again. The impulses of
the last step are where the next one starts. What drifts nevertheless is put right in the
positions.
"""

import math
from typing import Final, NamedTuple

import jax.numpy as jnp

from quorum_rl.envs.lunar_lander.geometry import (
    HULL,
    LEG,
    PIXELS_PER_METRE,
    Motion,
    Pose,
    Vec,
    cross,
    rotation,
    spun,
    vec,
    where,
)
from quorum_rl.envs.world import Array
from quorum_rl.pytree import pytree

TIME_STEP: Final = 1 / 50  # seconds
LINEAR_SLOP: Final = 0.005  # metres by which a constraint may be violated in peace
ANGULAR_SLOP: Final = 2 / 180 * math.pi
LARGEST_TURN: Final = 8 / 180 * math.pi  # that one correction of a position may make
MOTOR_TORQUE: Final = 40.0
LEG_AWAY: Final = 20 / PIXELS_PER_METRE
LEG_DOWN: Final = 18 / PIXELS_PER_METRE

MASSES: Final = HULL.inverse_mass + LEG.inverse_mass
INERTIAS: Final = HULL.inverse_inertia + LEG.inverse_inertia


class Hinge(NamedTuple):
    """Where a leg is attached and how far it may turn.

    The anchor on the hull is the hull's origin, not its centre of mass.
    """

    anchor: tuple[float, float]  # on the leg
    reference_angle: float  # of the leg to the hull that counts as zero
    lowest: float
    highest: float
    motor_spin: float


# In Gymnasium's order; its first leg is the one on the right.
HINGES: Final = (
    Hinge((-LEG_AWAY, LEG_DOWN), -0.05, lowest=0.4, highest=0.9, motor_spin=-0.3),
    Hinge((+LEG_AWAY, LEG_DOWN), +0.05, lowest=-0.9, highest=-0.4, motor_spin=+0.3),
)


@pytree
class HingeImpulse:
    """What a hinge has done in a step: the sums of its impulses."""

    push: Vec  # on the leg, and the opposite on the hull
    stop: Array  # angular, of the end of the range: not negative at the lowest, not positive at the
    # highest angle, zero between them
    motor: Array  # angular


class PreparedHinge(NamedTuple):
    """What stays the same while velocities are solved."""

    arm_hull: Vec  # from the centre of mass to the anchor
    arm_leg: Vec
    at_lowest: Array
    at_highest: Array
    turn_push: Vec  # how a spin of the leg against the hull moves the anchors apart
    inverse_2: tuple[Array, Array, Array]  # xx, xy, yy of the effective mass of the anchor alone
    inverse_3: tuple[Array, Array, Array, Array, Array, Array]  # xx, xy, xz, yy, yz, zz: with angle


def _arms(hinge: Hinge, hull: Pose, leg: Pose) -> tuple[Vec, Vec]:
    arm_hull = rotation(hull.angle).turn(vec(-HULL.centre[0], -HULL.centre[1]))
    return arm_hull, rotation(leg.angle).turn(vec(*hinge.anchor))


def _stiffness(arm_hull: Vec, arm_leg: Vec) -> tuple[Array, Array, Array]:
    """xx, xy, yy of how fast the anchors part when pushed apart by a unit impulse."""
    i_hull, i_leg = HULL.inverse_inertia, LEG.inverse_inertia
    xx = MASSES + i_hull * arm_hull.y * arm_hull.y + i_leg * arm_leg.y * arm_leg.y
    xy = -i_hull * arm_hull.x * arm_hull.y - i_leg * arm_leg.x * arm_leg.y
    yy = MASSES + i_hull * arm_hull.x * arm_hull.x + i_leg * arm_leg.x * arm_leg.x
    return xx, xy, yy


def _inverse(xx: Array, xy: Array, yy: Array) -> tuple[Array, Array, Array]:
    determinant = xx * yy - xy * xy
    return yy / determinant, -xy / determinant, xx / determinant


def prepared(
    hinge: Hinge, hull: Pose, leg: Pose, last: HingeImpulse
) -> tuple[PreparedHinge, HingeImpulse]:
    """The constraint in the present position, and the impulse to start from."""
    arm_hull, arm_leg = _arms(hinge, hull, leg)
    xx, xy, yy = _stiffness(arm_hull, arm_leg)
    xz = -HULL.inverse_inertia * arm_hull.y - LEG.inverse_inertia * arm_leg.y
    yz = HULL.inverse_inertia * arm_hull.x + LEG.inverse_inertia * arm_leg.x
    minor_x = yy * INERTIAS - yz * yz
    minor_y = xz * yz - xy * INERTIAS
    minor_z = xy * yz - yy * xz
    determinant = xx * minor_x + xy * minor_y + xz * minor_z
    angle = leg.angle - hull.angle - hinge.reference_angle
    at_lowest = angle <= hinge.lowest
    at_highest = angle >= hinge.highest
    stop = jnp.where(at_lowest, jnp.maximum(last.stop, 0.0), jnp.minimum(last.stop, 0.0))
    made = PreparedHinge(
        arm_hull=arm_hull,
        arm_leg=arm_leg,
        at_lowest=at_lowest,
        at_highest=at_highest,
        turn_push=Vec(xz, yz),
        inverse_2=_inverse(xx, xy, yy),
        inverse_3=(
            minor_x / determinant,
            minor_y / determinant,
            minor_z / determinant,
            (xx * INERTIAS - xz * xz) / determinant,
            (xy * xz - xx * yz) / determinant,
            (xx * yy - xy * xy) / determinant,
        ),
    )
    start = HingeImpulse(last.push, jnp.where(at_lowest | at_highest, stop, 0.0), last.motor)
    return made, start


def applied(
    made: PreparedHinge, hull: Motion, leg: Motion, push: Vec, torque: Array
) -> tuple[Motion, Motion]:
    """The motions after an impulse between the anchors and a torque between the bodies."""
    return (
        hull.pushed(HULL, -push, -(cross(made.arm_hull, push) + torque)),
        leg.pushed(LEG, push, cross(made.arm_leg, push) + torque),
    )


def solved(
    hinge: Hinge, made: PreparedHinge, hull: Motion, leg: Motion, sum_so_far: HingeImpulse
) -> tuple[Motion, Motion, HingeImpulse]:
    """One pass over the constraint on velocities: the motor first, then anchor and range."""
    strongest = TIME_STEP * MOTOR_TORQUE
    wanted = sum_so_far.motor - (leg.spin - hull.spin - hinge.motor_spin) / INERTIAS
    motor = jnp.clip(wanted, -strongest, strongest)
    twist = motor - sum_so_far.motor
    hull_spin = hull.spin - HULL.inverse_inertia * twist
    leg_spin = leg.spin + LEG.inverse_inertia * twist

    hull, leg = Motion(hull.velocity, hull_spin), Motion(leg.velocity, leg_spin)
    parting = (
        leg.velocity + spun(leg.spin, made.arm_leg) - hull.velocity - spun(hull.spin, made.arm_hull)
    )
    turning = leg.spin - hull.spin
    # Anchor and angle together; if the end of the range would have to pull, the anchor alone.
    xx, xy, xz, yy, yz, zz = made.inverse_3
    both = -Vec(
        xx * parting.x + xy * parting.y + xz * turning,
        xy * parting.x + yy * parting.y + yz * turning,
    )
    stop = sum_so_far.stop - (xz * parting.x + yz * parting.y + zz * turning)
    stopped = (made.at_lowest & (stop >= 0)) | (made.at_highest & (stop <= 0))
    right = sum_so_far.stop * made.turn_push - parting
    xx, xy, yy = made.inverse_2
    alone = Vec(xx * right.x + xy * right.y, xy * right.x + yy * right.y)
    push = where(stopped, both, alone)
    stop = jnp.where(stopped, stop, 0.0)
    hull, leg = applied(made, hull, leg, push, stop - sum_so_far.stop)
    return hull, leg, HingeImpulse(sum_so_far.push + push, stop, motor)


def straightened(
    hinge: Hinge, made: PreparedHinge, hull: Pose, leg: Pose
) -> tuple[Pose, Pose, Array]:
    """One correction of the positions; the last value says that none was needed."""
    angle = leg.angle - hull.angle - hinge.reference_angle
    below, above = angle - hinge.lowest, angle - hinge.highest
    turn_up = jnp.clip(below + ANGULAR_SLOP, -LARGEST_TURN, 0.0)
    turn_down = jnp.clip(above - ANGULAR_SLOP, 0.0, LARGEST_TURN)
    excess = jnp.where(made.at_lowest, turn_up, jnp.where(made.at_highest, turn_down, 0.0))
    angular_error = jnp.where(made.at_lowest, -below, jnp.where(made.at_highest, above, 0.0))
    twist = -excess / INERTIAS
    hull = Pose(hull.centre, hull.angle - HULL.inverse_inertia * twist)
    leg = Pose(leg.centre, leg.angle + LEG.inverse_inertia * twist)

    arm_hull, arm_leg = _arms(hinge, hull, leg)
    gap = leg.centre + arm_leg - hull.centre - arm_hull
    xx, xy, yy = _inverse(*_stiffness(arm_hull, arm_leg))
    push = -Vec(xx * gap.x + xy * gap.y, xy * gap.x + yy * gap.y)
    moved_hull = Pose(
        hull.centre - HULL.inverse_mass * push,
        hull.angle - HULL.inverse_inertia * cross(arm_hull, push),
    )
    moved_leg = Pose(
        leg.centre + LEG.inverse_mass * push,
        leg.angle + LEG.inverse_inertia * cross(arm_leg, push),
    )
    small_gap = gap.x * gap.x + gap.y * gap.y <= LINEAR_SLOP * LINEAR_SLOP
    return moved_hull, moved_leg, small_gap & (angular_error <= ANGULAR_SLOP)
