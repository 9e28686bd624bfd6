"""What happens within a step: a fast leg stops where it hits the ground, not below it.

Physics: continuous collision. Between two steps a body moves along a straight sweep. If it
would come closer to the ground than its skin allows, it is put where that happens, is pushed out
and loses its speed into the ground there, and moves on for what is left of the step. The hinges
do not take part: they pull the leg back to the hull in the next step. The ground does not move,
so each body is alone with it.
"""

from functools import partial
from typing import Final, NamedTuple

import jax
import jax.numpy as jnp

from quorum_rl.envs.lunar_lander import contacts
from quorum_rl.envs.lunar_lander.contacts import ContactImpulse
from quorum_rl.envs.lunar_lander.geometry import (
    EDGES,
    HULL,
    LEG,
    Body,
    Motion,
    Pose,
    Shape,
    Vec,
    dot,
)
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
ROUNDS: Final = 5  # of the search for the time of an impact, each a chord of the distance
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
    hits = _hits(_gaps(HULL, before.hull.pose, lander.hull.pose, ground))
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
        share = _first_hit(LEG, now.start, pose, ground)
        elapsed = now.elapsed + (1 - now.elapsed) * share
        at = _between(now.start, pose, share)
        touching, touches = contacts.found(at, ground, now.leg.contacts)
        flag = flag_after(now.leg.touches, now.leg.contacts, touching)
        at = _pushed_out(at, touches)
        motion = limited(_stopped(at, now.leg.body.motion, touches, passes))
        rest = (1 - elapsed) * TIME_STEP
        end = Pose(at.centre + rest * motion.velocity, at.angle + rest * motion.spin)
        solid = jnp.stack([touch.count > 0 for touch in touches]).any()
        again = solid & _hits(_gaps(LEG, at, end, ground)).any()
        leg = Leg(Body(end, motion, now.leg.body.resting), now.leg.hinge, touching, flag)
        after = _Sweep(at, leg, elapsed, now.impacts + 1, again)
        stays = now._replace(going=jnp.bool_(False))
        chosen: _Sweep = jax.tree.map(partial(jnp.where, solid), after, stays)
        return chosen

    going = _hits(_gaps(LEG, start, leg.body.pose, ground)).any()
    begin = _Sweep(start, leg, jnp.float32(0), jnp.int32(0), going)
    return jax.lax.while_loop(goes_on, advance, begin).leg


def _between(start: Pose, end: Pose, share: Array) -> Pose:
    centre = start.centre + share * (end.centre - start.centre)
    return Pose(centre, start.angle + share * (end.angle - start.angle))


class _Gaps(NamedTuple):
    """How far a body is from the edges it can reach, at the start and at the end of a sweep."""

    edges: Array
    start: Array
    end: Array


def _gaps(shape: Shape, start: Pose, end: Pose, ground: Array) -> _Gaps:
    first = jnp.minimum(nearest_edge(shape, start), nearest_edge(shape, end))
    edges = first + jnp.arange(NEIGHBOURS, dtype=jnp.int32)

    def at(pose: Pose) -> Array:
        return jax.vmap(lambda edge: _gap(shape, pose, *edge_ends(ground, edge)))(edges)

    return _Gaps(edges, at(start), at(end))


def _hits(gaps: _Gaps) -> Array:
    """Whether the body hits each edge; one that is in the ground already is too late."""
    near = (gaps.end < NEAREST - TOLERANCE) | (gaps.start < NEAREST + TOLERANCE)
    return (gaps.start > 0) & near & (gaps.edges < EDGES)


def _first_hit(shape: Shape, start: Pose, end: Pose, ground: Array) -> Array:
    """When the body first hits an edge, as a share of the sweep; 1 if never."""
    gaps = _gaps(shape, start, end, ground)

    def time_of(edge: Array, at_start: Array, at_end: Array) -> Array:
        left, right = edge_ends(ground, edge)

        def narrow(_: Array, bracket: tuple[Array, Array, Array, Array]) -> tuple[Array, ...]:
            early, over, late, under = bracket  # times, and how far from NEAREST it is then
            middle = early + over / jnp.maximum(over - under, 1e-9) * (late - early)
            excess = _gap(shape, _between(start, end, middle), left, right) - NEAREST
            apart = excess > 0
            # Halving the end that stays keeps the chords from creeping up from one side.
            return (
                jnp.where(apart, middle, early),
                jnp.where(apart, excess, 0.5 * over),
                jnp.where(apart, late, middle),
                jnp.where(apart, 0.5 * under, excess),
            )

        whole = (jnp.float32(0), at_start - NEAREST, jnp.float32(1), at_end - NEAREST)
        early, over, late, under = jax.lax.fori_loop(0, ROUNDS, narrow, whole)
        found = early + over / jnp.maximum(over - under, 1e-9) * (late - early)
        return jnp.where(at_start < NEAREST + TOLERANCE, 0.0, found)

    times = jax.vmap(time_of)(gaps.edges, gaps.start, gaps.end)
    return jnp.where(_hits(gaps), times, 1.0).min()


def _gap(shape: Shape, pose: Pose, left: Vec, right: Vec) -> Array:
    """The distance of a body, without its skin, from an edge; if they overlap, minus the depth."""
    corners, normals = corners_of(shape, pose)
    following = Vec(jnp.roll(corners.x, -1), jnp.roll(corners.y, -1))
    to_corners = _distances(corners, left, right).min()
    to_left = _distances(left, corners, following).min()
    to_right = _distances(right, corners, following).min()
    along = right - left
    sides = dot(Vec(-along.y, along.x), corners - left) / jnp.sqrt(dot(along, along))
    by_edge = jnp.maximum(sides.min(), -sides.max())
    by_side = jnp.minimum(dot(normals, left - corners), dot(normals, right - corners)).max()
    depth = jnp.maximum(by_edge, by_side)
    distance = jnp.minimum(to_corners, jnp.minimum(to_left, to_right))
    return jnp.where(depth < 0, depth, distance)


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

    stopped: Motion = jax.lax.fori_loop(0, passes, one_pass, (motion, nothing))[0]
    return stopped
