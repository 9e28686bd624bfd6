"""What happens within a step: a fast leg stops where it hits the ground, not below it.

Physics: continuous collision. Between two steps a body moves along a straight sweep. If it
would come closer to the ground than its skin allows, it is put where that happens, is pushed out
and loses its speed into the ground there, and moves on for what is left of the step. The hinges
do not take part: they pull the leg back to the hull in the next step. The ground does not move,
so each body is alone with it.
"""

from collections.abc import Callable
from dataclasses import replace
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
    Motion,
    Pose,
    Shape,
    Vec,
    dot,
    rotation,
    vec,
    where,
)
from quorum_rl.envs.lunar_lander.joints import LINEAR_SLOP, TIME_STEP
from quorum_rl.envs.lunar_lander.kernels import in_one_kernel, repeated_while
from quorum_rl.envs.lunar_lander.solver import Lander, Leg, flag_after, limited
from quorum_rl.envs.lunar_lander.touching import (
    BOTH_SKINS,
    NEIGHBOURS,
    Touch,
    edge_ends,
    nearest_edge,
)
from quorum_rl.envs.world import Array

NEAREST: Final = BOTH_SKINS - 3 * LINEAR_SLOP  # metres between shapes without skin, at an impact
TOLERANCE: Final = 0.25 * LINEAR_SLOP
MOST_DIRECTIONS: Final = 20  # of one search for the time of an impact
MOST_CUTS: Final = 50  # of the time in which the bodies come near in one of them
MOST_IMPACTS: Final = 8  # of one leg in one step
MOST_CORRECTIONS: Final = 20
SHARE_CORRECTED: Final = 0.75  # of a penetration at one correction: more than between steps
STILL_PENETRATING: Final = -1.5 * LINEAR_SLOP


class _Falling(NamedTuple):
    """The rest of a step: from where, to where (the leg's pose), and what is hit on the way."""

    start: Pose
    leg: Leg
    share: Array  # of the rest of the step, until the leg hits the ground; 1 if it does not
    elapsed: Array  # from 0 to 1
    impacts: Array


def impacted(lander: Lander, before: Lander, ground: Array, passes: int) -> Lander:
    """The bodies after their impacts on the way from where they were `before` the step."""

    def stacked(left: Leg, other: Leg) -> Leg:
        both: Leg = jax.tree.map(lambda *pair: jnp.stack(pair), left, other)
        return both

    def one_leg(leg: Leg, start: Pose) -> Leg:
        return _leg_impacts(leg, start, ground, passes)

    legs = jax.vmap(one_leg)(stacked(*lander.legs), stacked(*before.legs).body.pose)
    first, second = (jax.tree.map(lambda leaf, at=at: leaf[at], legs) for at in range(2))
    share = first_hit(HULL, before.hull.pose, lander.hull.pose, ground)
    return replace(lander, legs=(first, second), crashed=lander.crashed | (share < 1))


def _leg_impacts(leg: Leg, start: Pose, ground: Array, passes: int) -> Leg:
    def goes_on(now: _Falling) -> Array:
        return (now.share < 1) & (now.impacts < MOST_IMPACTS)

    def advance(now: _Falling) -> _Falling:
        elapsed = now.elapsed + (1 - now.elapsed) * now.share
        at = _between(now.start, now.leg.body.pose, now.share)
        touching, touches = contacts.found(at, ground, now.leg.contacts)
        flag = flag_after(now.leg.touches, now.leg.contacts, touching)
        at = _pushed_out(at, touches)
        motion = limited(_stopped(at, now.leg.body.motion, touches, passes))
        rest = (1 - elapsed) * TIME_STEP
        end = Pose(at.centre + rest * motion.velocity, at.angle + rest * motion.spin)
        share = first_hit(LEG, at, end, ground)
        body = replace(now.leg.body, pose=end, motion=motion)
        leg = replace(now.leg, body=body, contacts=touching, touches=flag)
        after = _Falling(at, leg, share, elapsed, now.impacts + 1)
        solid = jnp.stack([touch.count > 0 for touch in touches]).any()
        unmoved = now._replace(share=jnp.ones_like(share))
        chosen: _Falling = jax.tree.map(partial(jnp.where, solid), after, unmoved)
        return chosen

    share = first_hit(LEG, start, leg.body.pose, ground)
    begin = _Falling(start, leg, share, jnp.float32(0), jnp.int32(0))
    return jax.lax.while_loop(goes_on, advance, begin).leg


class _Sweep(NamedTuple):
    start: Pose
    end: Pose
    left: Vec  # end of the edge
    right: Vec


class _Search(NamedTuple):
    time: Array  # from 0 to 1, before which nothing is hit
    hit: Array
    going: Array
    directions: Array


class _Direction(NamedTuple):
    """From the edge to the body, in which they are apart."""

    unit: Vec
    turns: Array  # whether it is fixed to the body, and given as the body sees it


def _between(start: Pose, end: Pose, share: Array) -> Pose:
    centre = start.centre + share * (end.centre - start.centre)
    return Pose(centre, start.angle + share * (end.angle - start.angle))


def first_hit(shape: Shape, start: Pose, end: Pose, ground: Array) -> Array:
    """When the body first hits the ground, as a share of the sweep; 1 if never.

    Conservative advancement: two convex shapes are apart as long as they are in one direction. The
    one in which they are nearest now tells a time up to which they cannot meet; there the next is
    found, until they are as near as an impact is, or are apart to the end. So a body that would
    be on the other side of the edge at the end is found too.
    """
    first = jnp.minimum(nearest_edge(shape, start), nearest_edge(shape, end))
    edges = first + jnp.arange(NEIGHBOURS, dtype=jnp.int32)

    def time_of(edge: Array) -> Array:
        sweep = _Sweep(start, end, *edge_ends(ground, edge))
        no, zero = jnp.bool_(False), jnp.zeros_like(start.angle)
        begin = _Search(zero, no, edge < EDGES, jnp.zeros_like(edge))
        found = in_one_kernel(partial(_searched, shape), sweep, begin)
        return jnp.where(found.hit, found.time, 1.0)

    return jax.vmap(time_of)(edges).min()


def _searched(shape: Shape, sweep: _Sweep, begin: _Search) -> _Search:
    def try_direction(now: _Search) -> _Search:
        pose = _between(sweep.start, sweep.end, now.time)
        gap, direction = _nearest(shape, pose, sweep)

        def excess(time: Array) -> Array:
            then = _between(sweep.start, sweep.end, time)
            return _separation(shape, then, sweep, direction) - NEAREST

        last = jnp.ones_like(now.time)
        at_last = excess(last)
        near = gap < NEAREST + TOLERANCE
        goes_on = now.going & ~near & (at_last <= -TOLERANCE)
        none = jnp.zeros_like(now.directions)
        whole = _Bracket(now.time, gap - NEAREST, last, at_last, now.time, none, goes_on)
        time = _root(excess, whole)
        return _Search(
            time=jnp.where(goes_on, time, now.time),
            hit=near & (gap > 0),  # what is in the ground already is too late
            going=goes_on,
            directions=now.directions + 1,
        )

    def unfinished(now: _Search) -> Array:
        return now.going & (now.directions < MOST_DIRECTIONS)

    return repeated_while(unfinished, try_direction, begin)


class _Bracket(NamedTuple):
    early: Array  # still apart
    over: Array  # by how much
    late: Array
    under: Array
    time: Array
    cuts: Array
    going: Array


def _root(excess: Callable[[Array], Array], whole: _Bracket) -> Array:
    """A time at which `excess` is zero, nearly enough: by halves and chords in turns."""

    def cut(now: _Bracket) -> _Bracket:
        chord = now.early + now.over / (now.over - now.under) * (now.late - now.early)
        time = jnp.where(now.cuts % 2 == 1, chord, 0.5 * (now.early + now.late))
        value = excess(time)
        apart = value > 0
        return _Bracket(
            early=jnp.where(apart, time, now.early),
            over=jnp.where(apart, value, now.over),
            late=jnp.where(apart, now.late, time),
            under=jnp.where(apart, now.under, value),
            time=time,
            cuts=now.cuts + 1,
            going=jnp.abs(value) >= TOLERANCE,
        )

    def unfinished(now: _Bracket) -> Array:
        return now.going & (now.cuts < MOST_CUTS)

    return repeated_while(unfinished, cut, whole).time


def _separation(shape: Shape, pose: Pose, edge: _Sweep, direction: _Direction) -> Array:
    """How far apart they are in one direction."""
    unit = where(direction.turns, rotation(pose.angle).turn(direction.unit), direction.unit)
    corners = [dot(unit, corner) for corner in _corners(shape, pose)]
    lowest = corners[0]
    for corner in corners[1:]:
        lowest = jnp.minimum(lowest, corner)
    return lowest - jnp.maximum(dot(unit, edge.left), dot(unit, edge.right))


def _nearest(shape: Shape, pose: Pose, edge: _Sweep) -> tuple[Array, _Direction]:
    """The distance of body and edge, not positive if they overlap, and its direction.

    Numbers stay scalars here, corner by corner: a kernel has no small arrays.
    """
    corners = _corners(shape, pose)
    turned = rotation(pose.angle)
    along = edge.right - edge.left
    length = jnp.sqrt(dot(along, along))
    upwards = (1 / length) * Vec(-along.y, along.x)
    facing = where(dot(upwards, pose.centre - edge.left) >= 0, upwards, -upwards)
    square = jnp.full_like(pose.angle, jnp.inf)
    unit, turns = facing, jnp.zeros_like(square, bool)
    lowest, highest = square, -square
    by_side = -square
    for number, corner in enumerate(corners):
        away, within = _from_segment(corner, edge.left, edge.right)
        size = dot(away, away)
        straight = where(within, facing, (1 / jnp.sqrt(jnp.maximum(size, 1e-30))) * away)
        closer = size < square
        square, unit = jnp.where(closer, size, square), where(closer, straight, unit)
        turns &= ~closer
        height = dot(facing, corner - edge.left)
        lowest, highest = jnp.minimum(lowest, height), jnp.maximum(highest, height)
        # The side that starts at this corner may have an end of the edge before it.
        normal = Vec(*(jnp.full_like(square, float(part)) for part in shape.normals[number]))
        outward = turned.turn(normal)
        following = corners[(number + 1) % len(corners)]
        outside = []
        for end in (edge.left, edge.right):
            away, within = _from_segment(end, corner, following)
            size = dot(away, away)
            closer = within & (size < square)
            square, unit = jnp.where(closer, size, square), where(closer, -normal, unit)
            turns |= closer
            outside.append(dot(outward, end - corner))
        by_side = jnp.maximum(by_side, jnp.minimum(outside[0], outside[1]))
    depth = jnp.maximum(jnp.maximum(lowest, -highest), by_side)
    return jnp.where(depth < 0, depth, jnp.sqrt(square)), _Direction(unit, turns)


def _corners(shape: Shape, pose: Pose) -> list[Vec]:
    origin, turned = shape.origin(pose), rotation(pose.angle)
    return [origin + turned.turn(vec(float(x), float(y))) for x, y in shape.vertices]


def _from_segment(point: Vec, start: Vec, end: Vec) -> tuple[Vec, Array]:
    """The way to a point from the nearest of a segment; whether that is none of its ends."""
    along = end - start
    share = dot(point - start, along) / dot(along, along)
    away = point - start - jnp.clip(share, 0.0, 1.0) * along
    return away, (share > 0) & (share < 1)


class _PushedOut(NamedTuple):
    pose: Pose
    deepest: Array  # penetration that the last correction found
    corrections: Array


def _pushed_out(pose: Pose, touches: tuple[Touch, ...]) -> Pose:
    flat = jnp.zeros_like(pose.angle)
    begin = _PushedOut(pose, flat - 1, flat.astype(jnp.int32))
    return in_one_kernel(_corrections, touches, begin).pose


def _corrections(touches: tuple[Touch, ...], begin: _PushedOut) -> _PushedOut:
    def correct(now: _PushedOut) -> _PushedOut:
        pose, worst = now.pose, jnp.zeros_like(now.deepest)
        for touch in touches:
            pose, deepest = contacts.lifted(touch, pose, SHARE_CORRECTED)
            worst = jnp.minimum(worst, deepest)
        return _PushedOut(pose, worst, now.corrections + 1)

    def unfinished(now: _PushedOut) -> Array:
        return (now.deepest < STILL_PENETRATING) & (now.corrections < MOST_CORRECTIONS)

    return repeated_while(unfinished, correct, begin)


class _Stopping(NamedTuple):
    motion: Motion
    sums: tuple[ContactImpulse, ...]


def _stopped(pose: Pose, motion: Motion, touches: tuple[Touch, ...], passes: int) -> Motion:
    """The motion of a leg alone after the ground has taken its speed."""
    made = tuple(contacts.prepared(pose, touch) for touch in touches)
    zero = jnp.zeros_like(motion.spin)
    nothing = tuple(ContactImpulse((zero, zero), (zero, zero)) for _ in touches)
    begin = _Stopping(motion, nothing)
    return in_one_kernel(partial(_stopping_passes, passes), made, begin).motion


def _stopping_passes(
    passes: int, made: tuple[contacts.PreparedContact, ...], begin: _Stopping
) -> _Stopping:
    def one_pass(_: Array, now: _Stopping) -> _Stopping:
        motion, sums = now.motion, list(now.sums)
        for place, contact in enumerate(made):
            motion, sums[place] = contacts.solved(contact, motion, sums[place])
        return _Stopping(motion, tuple(sums))

    after: _Stopping = jax.lax.fori_loop(0, passes, one_pass, begin)
    return after
