"""The ground holds the legs up: contact without penetration, with friction.

Physics: at each point of contact an impulse along the normal may push but not pull, and one along
the ground is at most friction times that. Where a leg stands on two points, both
normal impulses are found together (a linear complementarity problem with four cases), which keeps
it from rocking. The ground does not move, so contacts of different legs do not disturb each other.

Contacts of the hull end the episode and are not solved: nothing after them is seen.
"""

from typing import Final, NamedTuple

import jax
import jax.numpy as jnp

from quorum_rl.envs.lunar_lander.geometry import (
    EDGES,
    HULL,
    LEG,
    Motion,
    Pose,
    Vec,
    cross,
    dot,
    rotation,
    spun,
    where,
)
from quorum_rl.envs.lunar_lander.joints import LINEAR_SLOP
from quorum_rl.envs.lunar_lander.touching import BOTH_SKINS, NEIGHBOURS, Touch, nearest_edge, touch
from quorum_rl.envs.world import Array
from quorum_rl.pytree import pytree

FRICTION: Final = (0.2 * 0.1) ** 0.5  # of leg and ground, their geometric mean
LARGEST_CONDITION: Final = 1000.0  # above, two points are as good as one
SHARE_CORRECTED: Final = 0.2  # of a penetration, at one correction (Baumgarte)
LARGEST_SHIFT: Final = 0.2  # metres that one correction may make


@pytree
class ContactImpulse:
    """Sums of the impulses at both points of a contact."""

    normal: tuple[Array, Array]
    tangent: tuple[Array, Array]


@pytree
class Contact:
    """A leg and an edge of the ground, from one step to the next."""

    edge: Array
    count: Array  # of points that touch
    names: tuple[Array, Array]
    impulse: ContactImpulse


Contacts = tuple[Contact, ...]  # of one leg, with as many edges as it can touch


def no_contacts() -> Contacts:
    zero, none = jnp.float32(0), jnp.int32(0)
    impulse = ContactImpulse((zero, zero), (zero, zero))
    return tuple(Contact(none + EDGES, none, (none, none), impulse) for _ in range(NEIGHBOURS))


def hull_touches(hull: Pose, ground: Array) -> Array:
    edge = nearest_edge(HULL, hull)
    counts = jax.vmap(lambda number: touch(HULL, hull, ground, edge + number).count)(
        jnp.arange(NEIGHBOURS, dtype=jnp.int32)
    )
    return (counts > 0).any()


def found(leg: Pose, ground: Array, last: Contacts) -> tuple[Contacts, tuple[Touch, ...]]:
    """The contacts of a leg where it is now, with the impulses that its points had before."""
    edge = nearest_edge(LEG, leg)
    touches = jax.vmap(lambda number: touch(LEG, leg, ground, edge + number))(
        jnp.arange(NEIGHBOURS, dtype=jnp.int32)
    )
    each = tuple(
        jax.tree.map(lambda leaf, number=number: leaf[number], touches)
        for number in range(NEIGHBOURS)
    )
    contacts = tuple(
        Contact(edge + number, now.count, now.names, _remembered(edge + number, now, last))
        for number, now in enumerate(each)
    )
    return contacts, each


def _remembered(edge: Array, now: Touch, last: Contacts) -> ContactImpulse:
    zero = jnp.float32(0)
    normal, tangent = [zero, zero], [zero, zero]
    for point in range(2):
        known = point >= now.count
        for before in last:
            for other in range(2):
                same = (
                    (before.edge == edge)
                    & (other < before.count)
                    & (before.names[other] == now.names[point])
                    & ~known
                )
                normal[point] = jnp.where(same, before.impulse.normal[other], normal[point])
                tangent[point] = jnp.where(same, before.impulse.tangent[other], tangent[point])
                known |= same
    return ContactImpulse((normal[0], normal[1]), (tangent[0], tangent[1]))


def begun_and_ended(now: Contacts, last: Contacts) -> tuple[Array, Array]:
    """Whether any contact of the leg has just begun, and whether any has ended."""

    def missing(contact: Contact, among: Contacts) -> Array:
        there = [(other.edge == contact.edge) & (other.count > 0) for other in among]
        return (contact.count > 0) & ~jnp.stack(there).any()

    begun = jnp.stack([missing(contact, last) for contact in now]).any()
    ended = jnp.stack([missing(contact, now) for contact in last]).any()
    return begun, ended


def with_impulses(known: Contacts, impulses: tuple[ContactImpulse, ...]) -> Contacts:
    """The contacts with new impulses; those past the last impulse stay as they are."""
    changed = tuple(
        Contact(contact.edge, contact.count, contact.names, impulse)
        for contact, impulse in zip(known, impulses, strict=False)
    )
    return changed + known[len(changed) :]


class PreparedContact(NamedTuple):
    """What stays the same while velocities are solved; masses are zero where nothing touches."""

    normal: Vec  # away from the ground
    arms: tuple[Vec, Vec]  # from the leg's centre of mass to the points
    normal_mass: tuple[Array, Array]
    tangent_mass: tuple[Array, Array]
    together: Array  # whether both points are solved as one
    stiffness: tuple[Array, Array, Array]  # of both points: 11, 12, 22
    mass: tuple[Array, Array, Array]  # its inverse


def prepared(leg: Pose, now: Touch) -> PreparedContact:
    turned = rotation(leg.angle)
    normal = where(now.on_ground, now.normal, -turned.turn(now.normal))
    carrier = where(now.on_ground, now.origin, leg.centre + turned.turn(now.origin))
    arms = []
    for point in now.points:
        placed = where(now.on_ground, leg.centre + turned.turn(point), point)
        halfway = placed - 0.5 * dot(placed - carrier, normal) * normal
        arms.append(halfway - leg.centre)
    turn_1, turn_2 = cross(arms[0], normal), cross(arms[1], normal)
    k_11 = LEG.inverse_mass + LEG.inverse_inertia * turn_1 * turn_1
    k_12 = LEG.inverse_mass + LEG.inverse_inertia * turn_1 * turn_2
    k_22 = LEG.inverse_mass + LEG.inverse_inertia * turn_2 * turn_2
    determinant = k_11 * k_22 - k_12 * k_12
    together = (now.count == 2) & (k_11 * k_11 < LARGEST_CONDITION * determinant)
    determinant = jnp.where(together, determinant, 1.0)
    active = (now.count > 0, together)
    tangent = Vec(normal.y, -normal.x)
    along = [cross(arm, tangent) for arm in arms]
    k_tangent = [LEG.inverse_mass + LEG.inverse_inertia * arm * arm for arm in along]
    return PreparedContact(
        normal=normal,
        arms=(arms[0], arms[1]),
        normal_mass=(jnp.where(active[0], 1 / k_11, 0.0), jnp.where(active[1], 1 / k_22, 0.0)),
        tangent_mass=(
            jnp.where(active[0], 1 / k_tangent[0], 0.0),
            jnp.where(active[1], 1 / k_tangent[1], 0.0),
        ),
        together=together,
        stiffness=(k_11, k_12, k_22),
        mass=(k_22 / determinant, -k_12 / determinant, k_11 / determinant),
    )


def warm_started(made: PreparedContact, leg: Motion, start: ContactImpulse) -> Motion:
    """The leg's motion after the impulses of the last step."""
    tangent = Vec(made.normal.y, -made.normal.x)
    for point in range(2):
        active = made.normal_mass[point] > 0
        push = start.normal[point] * made.normal + start.tangent[point] * tangent
        push = where(active, push, 0.0 * push)
        leg = leg.pushed(LEG, push, cross(made.arms[point], push))
    return leg


def solved(
    made: PreparedContact, leg: Motion, sums: ContactImpulse
) -> tuple[Motion, ContactImpulse]:
    """One pass over the constraint on velocities: friction first, then the normal impulses."""
    tangent = Vec(made.normal.y, -made.normal.x)
    rubbed = []
    for point, arm in enumerate(made.arms):
        sliding = dot(leg.velocity + spun(leg.spin, arm), tangent)
        most = FRICTION * sums.normal[point]
        wanted = sums.tangent[point] - made.tangent_mass[point] * sliding
        held = jnp.clip(wanted, -most, most)
        held = jnp.where(made.tangent_mass[point] > 0, held, sums.tangent[point])
        push = (held - sums.tangent[point]) * tangent
        leg = leg.pushed(LEG, push, cross(arm, push))
        rubbed.append(held)
    pressed = _normal_impulses(made, leg, sums.normal)
    more = (pressed[0] - sums.normal[0], pressed[1] - sums.normal[1])
    torque = more[0] * cross(made.arms[0], made.normal) + more[1] * cross(made.arms[1], made.normal)
    leg = leg.pushed(LEG, (more[0] + more[1]) * made.normal, torque)
    return leg, ContactImpulse(pressed, (rubbed[0], rubbed[1]))


def _normal_impulses(
    made: PreparedContact, leg: Motion, sums: tuple[Array, Array]
) -> tuple[Array, Array]:
    """The sums that stop the leg at its points; of both together, the first case that fits."""
    a_1, a_2 = sums
    k_11, k_12, k_22 = made.stiffness
    speeds = [dot(leg.velocity + spun(leg.spin, arm), made.normal) for arm in made.arms]
    alone = jnp.where(
        made.normal_mass[0] > 0, jnp.maximum(a_1 - made.normal_mass[0] * speeds[0], 0.0), a_1
    )
    # The speeds that the points would have without any of these impulses.
    b_1 = speeds[0] - (k_11 * a_1 + k_12 * a_2)
    b_2 = speeds[1] - (k_12 * a_1 + k_22 * a_2)
    m_11, m_12, m_22 = made.mass
    both_1, both_2 = -(m_11 * b_1 + m_12 * b_2), -(m_12 * b_1 + m_22 * b_2)
    only_1, only_2 = -made.normal_mass[0] * b_1, -made.normal_mass[1] * b_2
    both = (both_1 >= 0) & (both_2 >= 0)
    first = ~both & (only_1 >= 0) & (k_12 * only_1 + b_2 >= 0)
    second = ~both & ~first & (only_2 >= 0) & (k_12 * only_2 + b_1 >= 0)
    neither = (b_1 >= 0) & (b_2 >= 0)
    left = neither | first | second  # otherwise no case fits, and the sums stay what they were
    x_1 = jnp.where(both, both_1, jnp.where(first, only_1, jnp.where(left, 0.0, a_1)))
    x_2 = jnp.where(both, both_2, jnp.where(second, only_2, jnp.where(left, 0.0, a_2)))
    return jnp.where(made.together, x_1, alone), jnp.where(made.together, x_2, a_2)


def lifted(now: Touch, leg: Pose, share: float = SHARE_CORRECTED) -> tuple[Pose, Array]:
    """One correction of a leg's position by a `share` of what is wrong, at most.

    Also the deepest penetration it found, which is negative.
    """
    deepest = jnp.float32(0)
    for number, point in enumerate(now.points):
        touches = number < now.count
        turned = rotation(leg.angle)
        normal = where(now.on_ground, now.normal, turned.turn(now.normal))
        placed = where(now.on_ground, leg.centre + turned.turn(point), point)
        carrier = where(now.on_ground, now.origin, leg.centre + turned.turn(now.origin))
        gap = dot(placed - carrier, normal) - BOTH_SKINS
        normal = where(now.on_ground, normal, -normal)
        arm = placed - leg.centre
        shift = jnp.clip(share * (gap + LINEAR_SLOP), -LARGEST_SHIFT, 0.0)
        across = cross(arm, normal)
        push = -shift / (LEG.inverse_mass + LEG.inverse_inertia * across * across)
        push = jnp.where(touches, push, 0.0)
        deepest = jnp.where(touches, jnp.minimum(deepest, gap), deepest)
        leg = Pose(
            leg.centre + (LEG.inverse_mass * push) * normal,
            leg.angle + LEG.inverse_inertia * push * across,
        )
    return leg, deepest
