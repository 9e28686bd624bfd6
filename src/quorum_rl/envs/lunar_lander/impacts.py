"""What happens within a step: a fast leg stops where it hits the ground, not below it.

Physics: continuous collision. Between two steps a body moves along a straight sweep. If it
would come closer to the ground than its skin allows, it is put where that happens, is pushed out
and loses its speed into the ground there, and moves on for what is left of the step. The hinges
do not take part: they pull the leg back to the hull in the next step. The ground does not move,
so each body is alone with it.
"""

from typing import Final, NamedTuple

import jax
import jax.numpy as jnp

from quorum_rl.envs.lunar_lander import contacts
from quorum_rl.envs.lunar_lander.contacts import ContactImpulse
from quorum_rl.envs.lunar_lander.geometry import HULL, LEG, Motion, Pose, Shape, Vec, dot
from quorum_rl.envs.lunar_lander.joints import LINEAR_SLOP, TIME_STEP
from quorum_rl.envs.lunar_lander.solver import Lander, Leg, flag_after, limited
from quorum_rl.envs.lunar_lander.touching import (
    BOTH_SKINS,
    NEIGHBOURS,
    Touch,
    corners_of,
    edge_ends,
    nearest_edge,
)
from quorum_rl.envs.world import Array

NEAREST: Final = BOTH_SKINS - 3 * LINEAR_SLOP  # metres between shapes without skin, at an impact
TOLERANCE: Final = 0.25 * LINEAR_SLOP
HALVINGS: Final = 10  # of the time in which an impact is searched: a metre's tenth in tenths of mm
MOST_IMPACTS: Final = 4  # of one leg in one step
MOST_CORRECTIONS: Final = 20
SHARE_CORRECTED: Final = 0.75  # of a penetration at one correction: more than between steps
STILL_PENETRATING: Final = -1.5 * LINEAR_SLOP


class _Sweep(NamedTuple):
    """The rest of a step: from where, to where (the leg's pose), and how much has passed."""

    start: Pose
    leg: Leg
    elapsed: Array  # from 0 to 1
    impacts: Array
    going: Array


def impacted(lander: Lander, before: Lander, ground: Array, passes: int) -> Lander:
    """The bodies after their impacts on the way from where they were `before` the step."""

    def stacked(one: Leg, other: Leg) -> Leg:
        both: Leg = jax.tree.map(lambda *pair: jnp.stack(pair), one, other)
        return both

    def one_leg(leg: Leg, start: Pose) -> Leg:
        return _leg_impacts(leg, start, ground, passes)

    legs = jax.vmap(one_leg)(stacked(*lander.legs), stacked(*before.legs).body.pose)
    first, second = (jax.tree.map(lambda leaf, at=at: leaf[at], legs) for at in range(2))
    hits = _times(HULL, before.hull.pose, lander.hull.pose, ground)[1] < 1
    return Lander(
        hull=lander.hull,
        legs=(first, second),
        crashed=lander.crashed | hits.any(),
        asleep=lander.asleep,
    )


def _leg_impacts(leg: Leg, start: Pose, ground: Array, passes: int) -> Leg:
    def goes_on(now: _Sweep) -> Array:
        return now.going & (now.impacts < MOST_IMPACTS)

    def advance(now: _Sweep) -> _Sweep:
        pose = now.leg.body.pose
        edges, times = _times(LEG, now.start, pose, ground)
        del edges
        share = times.min()
        at = _between(now.start, pose, share)
        touching, touches = contacts.found(at, ground, now.leg.contacts)
        solid = jnp.stack([touch.count > 0 for touch in touches]).any()
        hit = (share < 1) & solid
        elapsed = now.elapsed + (1 - now.elapsed) * share
        at = _pushed_out(at, touches)
        motion = limited(_stopped(at, now.leg.body.motion, touches, passes))
        rest = (1 - elapsed) * TIME_STEP
        end = Pose(at.centre + rest * motion.velocity, at.angle + rest * motion.spin)
        flag = flag_after(now.leg.touches, now.leg.contacts, touching)
        body = type(now.leg.body)(end, motion, now.leg.body.resting)
        after = _Sweep(at, Leg(body, now.leg.hinge, touching, flag), elapsed, now.impacts + 1, hit)
        chosen: _Sweep = jax.tree.map(lambda new, old: jnp.where(hit, new, old), after, now)
        return chosen._replace(going=hit)

    begin = _Sweep(start, leg, jnp.float32(0), jnp.int32(0), jnp.bool_(True))
    return jax.lax.while_loop(goes_on, advance, begin).leg


def _between(start: Pose, end: Pose, share: Array) -> Pose:
    centre = start.centre + share * (end.centre - start.centre)
    return Pose(centre, start.angle + share * (end.angle - start.angle))


def _times(shape: Shape, start: Pose, end: Pose, ground: Array) -> tuple[Array, Array]:
    """The edges that a body can reach, and when it hits each: a share of the sweep, 1 if never."""
    first = jnp.minimum(nearest_edge(shape, start), nearest_edge(shape, end))
    edges = first + jnp.arange(NEIGHBOURS)

    def time_of(edge: Array) -> Array:
        left, right = edge_ends(ground, edge)

        def gap(share: Array) -> Array:
            return _gap(shape, _between(start, end, share), left, right)

        at_start, at_end = gap(jnp.float32(0)), gap(jnp.float32(1))

        def halve(_: Array, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
            early, late = bracket
            middle = 0.5 * (early + late)
            apart = gap(middle) > NEAREST
            return jnp.where(apart, middle, early), jnp.where(apart, late, middle)

        whole = (jnp.float32(0), jnp.float32(1))
        early, _ = jax.lax.fori_loop(0, HALVINGS, halve, whole)
        hits = at_end < NEAREST - TOLERANCE
        time = jnp.where(hits, early, 1.0)
        time = jnp.where(at_start < NEAREST + TOLERANCE, 0.0, time)
        return jnp.where(at_start <= 0, 1.0, time)  # too late for a body that is in the ground

    return edges, jax.vmap(time_of)(edges)


def _gap(shape: Shape, pose: Pose, left: Vec, right: Vec) -> Array:
    """The distance of a body, without its skin, from an edge; negative if they overlap."""
    corners, normals = corners_of(shape, pose)
    following = Vec(jnp.roll(corners.x, -1), jnp.roll(corners.y, -1))
    to_corners = _distances(corners, left, right).min()
    to_left = _distances(left, corners, following).min()
    to_right = _distances(right, corners, following).min()
    along = right - left
    sides = dot(Vec(-along.y, along.x), corners - left)
    crossed = (sides.min() < 0) & (sides.max() > 0)
    beyond = jnp.minimum(dot(normals, left - corners), dot(normals, right - corners)).max() > 0
    distance = jnp.minimum(to_corners, jnp.minimum(to_left, to_right))
    return jnp.where(crossed & ~beyond, -1.0, distance)


def _distances(point: Vec, start: Vec, end: Vec) -> Array:
    """Of points from segments; either may be many."""
    along = end - start
    share = jnp.clip(dot(point - start, along) / dot(along, along), 0.0, 1.0)
    away = point - start - share * along
    return jnp.sqrt(dot(away, away))


def _pushed_out(pose: Pose, touches: tuple[Touch, ...]) -> Pose:
    def goes_on(now: tuple[Pose, Array, Array]) -> Array:
        return (now[1] < STILL_PENETRATING) & (now[2] < MOST_CORRECTIONS)

    def correct(now: tuple[Pose, Array, Array]) -> tuple[Pose, Array, Array]:
        pose, worst = now[0], jnp.float32(0)
        for touch in touches:
            pose, deepest = contacts.lifted(touch, pose, SHARE_CORRECTED)
            worst = jnp.minimum(worst, deepest)
        return pose, worst, now[2] + 1

    return jax.lax.while_loop(goes_on, correct, (pose, jnp.float32(-1), jnp.int32(0)))[0]


def _stopped(pose: Pose, motion: Motion, touches: tuple[Touch, ...], passes: int) -> Motion:
    """The motion of a leg alone after the ground has taken its speed."""
    made = [contacts.prepared(pose, touch) for touch in touches]
    zero = jnp.float32(0)
    nothing = tuple(ContactImpulse((zero, zero), (zero, zero)) for _ in touches)

    def one_pass(
        _: Array, now: tuple[Motion, tuple[ContactImpulse, ...]]
    ) -> tuple[Motion, tuple[ContactImpulse, ...]]:
        motion, sums = now[0], list(now[1])
        for place, contact in enumerate(made):
            motion, sums[place] = contacts.solved(contact, motion, sums[place])
        return motion, tuple(sums)

    return jax.lax.fori_loop(0, passes, one_pass, (motion, nothing))[0]
