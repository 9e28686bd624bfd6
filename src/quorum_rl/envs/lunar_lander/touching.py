"""Where a body touches an edge of the ground, and with which of its corners.

Physics: two convex shapes are apart if some side separates them. If none does, the side
that comes nearest to it is where they touch: the side of the other shape that faces it is cut
to its length, and up to two ends of what is left are the points of contact. Each has a
name, made of the corners and sides that meet there, by which its impulse is found again in the
next step.
"""

from typing import Final

import jax.numpy as jnp

from quorum_rl.envs.lunar_lander.geometry import (
    EDGE_WIDTH,
    EDGES,
    Pose,
    Shape,
    Vec,
    dot,
    rotation,
    vec,
    where,
)
from quorum_rl.envs.world import Array
from quorum_rl.pytree import pytree

SKIN: Final = 0.01  # metres around every shape that belong to it
BOTH_SKINS: Final = 2 * SKIN
NEIGHBOURS: Final = 2  # edges that a body can touch at once: it is narrower than an edge


@pytree
class Touch:
    """How a body touches an edge: the side that carries the other, and up to two points.

    If `on_ground`, the side is the ground's and the points are fixed to the body; otherwise it is
    the body's, and they are fixed to the ground. Either way the side's `normal` and a point on it
    (`origin`) are fixed to the shape that it belongs to.
    """

    count: Array  # of points: 0, 1 or 2
    on_ground: Array
    normal: Vec
    origin: Vec
    points: tuple[Vec, Vec]
    names: tuple[Array, Array]


def nearest_edge(shape: Shape, pose: Pose) -> Array:
    """The leftmost edge that the body can reach; the other is the next one."""
    leftmost = corners_of(shape, pose)[0].x.min() - BOTH_SKINS
    return jnp.clip(jnp.floor(leftmost / EDGE_WIDTH), 0, EDGES - 1).astype(jnp.int32)


def touch(shape: Shape, pose: Pose, ground: Array, edge: Array) -> Touch:
    """How the body touches the edge with number `edge`; past the last edge there is nothing."""
    corners, normals = corners_of(shape, pose)
    left, right = edge_ends(ground, edge)
    along = right - left
    along = (1 / jnp.sqrt(dot(along, along))) * along
    down = Vec(along.y, -along.x)
    below = dot(down, pose.centre - left) >= 0  # a body may come from either side
    facing = where(below, down, -down)

    by_edge = dot(facing, corners - left).min()
    gaps = -jnp.maximum(dot(normals, corners - left), dot(normals, corners - right))
    by_side = gaps.max()
    side = gaps.argmax().astype(jnp.int32)
    apart = (by_edge > BOTH_SKINS) | (by_side > BOTH_SKINS) | (edge >= EDGES)
    on_ground = by_side <= 0.98 * by_edge + 0.001  # rather the ground's, so that it does not jitter

    # The side that carries, and the two ends of the one that faces it.
    opposite = dot(facing, normals).argmin().astype(jnp.int32)
    first = jnp.where(on_ground, opposite, side)
    first_corner, second_corner = _corner(corners, first), _corner(corners, first + 1)
    ground_start, ground_end = where(below, left, right), where(below, right, left)
    carrier_start = where(on_ground, ground_start, first_corner)
    carrier_end = where(on_ground, ground_end, second_corner)
    outward = where(on_ground, facing, _corner(normals, side))
    ends = (where(on_ground, first_corner, left), where(on_ground, second_corner, right))
    last = shape.vertices.shape[0] - 1
    after_first = jnp.where(first == last, 0, first + 1)
    names = (jnp.where(on_ground, 16 * first, side), jnp.where(on_ground, 16 * after_first, side))
    start_mark = jnp.where(on_ground, jnp.where(below, 256, 257), 16 * side)
    end_mark = jnp.where(on_ground, jnp.where(below, 257, 256), 16 * after_first)

    sideways = Vec(outward.y, -outward.x)
    ends, names, whole_1 = _cut(ends, names, sideways, dot(sideways, carrier_start), start_mark)
    ends, names, whole_2 = _cut(ends, names, -sideways, -dot(sideways, carrier_end), end_mark)
    near = [dot(outward, end - carrier_start) <= BOTH_SKINS for end in ends]
    ends = (where(near[0], ends[0], ends[1]), ends[1])
    names = (jnp.where(near[0], names[0], names[1]), names[1])
    count = near[0].astype(jnp.int32) + near[1].astype(jnp.int32)

    local = rotation(pose.angle).turn_back
    start = shape.origin(pose)
    return Touch(
        count=jnp.where(apart | ~whole_1 | ~whole_2, 0, count),
        on_ground=on_ground,
        normal=where(on_ground, outward, local(outward)),
        origin=where(on_ground, carrier_start, local(carrier_start - start)),
        points=(
            where(on_ground, local(ends[0] - start), ends[0]),
            where(on_ground, local(ends[1] - start), ends[1]),
        ),
        names=names,
    )


def corners_of(shape: Shape, pose: Pose) -> tuple[Vec, Vec]:
    """Of the body in the world, and the normals of its sides; each part has shape (corners,)."""
    turned = rotation(pose.angle)
    corners = shape.origin(pose) + turned.turn(Vec(*jnp.asarray(shape.vertices).T))
    return corners, turned.turn(Vec(*jnp.asarray(shape.normals).T))


def edge_ends(ground: Array, edge: Array) -> tuple[Vec, Vec]:
    """The left and the right end of the edge with number `edge`."""
    return (
        vec(edge * EDGE_WIDTH, _picked(ground, edge)),
        vec((edge + 1) * EDGE_WIDTH, _picked(ground, edge + 1)),
    )


def _picked(values: Array, index: Array) -> Array:
    """`values[index]`, wrapping around, as a sum: short, and quicker than a gather in a batch."""
    count = values.shape[0]
    return jnp.where(jnp.arange(count) == index % count, values, 0).sum()


def _corner(corners: Vec, index: Array) -> Vec:
    return Vec(_picked(corners.x, index), _picked(corners.y, index))


def _cut(
    ends: tuple[Vec, Vec], names: tuple[Array, Array], normal: Vec, offset: Array, mark: Array
) -> tuple[tuple[Vec, Vec], tuple[Array, Array], Array]:
    """What of the segment lies behind a line; whether two ends are left.

    The end that was cut comes second; `mark` makes its name from that of the first.
    """
    out_0, out_1 = dot(normal, ends[0]) - offset, dot(normal, ends[1]) - offset
    keep_0, keep_1 = out_0 <= 0, out_1 <= 0
    crossing = out_0 * out_1 < 0
    share = jnp.where(crossing, out_0 / jnp.where(crossing, out_0 - out_1, 1.0), 0.0)
    cut = ends[0] + share * (ends[1] - ends[0])
    kept = (where(keep_0, ends[0], ends[1]), where(crossing, cut, ends[1]))
    first_name = jnp.where(keep_0, names[0], names[1])
    kept_names = (first_name, jnp.where(crossing, first_name + mark, names[1]))
    return kept, kept_names, crossing | (keep_0 & keep_1)
