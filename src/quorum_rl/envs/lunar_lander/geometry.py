"""Shapes and where they are: vectors of the plane, the lander's three bodies, the ground.

Physics: a rigid body moves as its centre of mass does and turns about it, so all that matters of
a shape is its mass, its moment of inertia and where its centre lies.
"""

from typing import Final, NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from quorum_rl.envs.world import Array
from quorum_rl.pytree import pytree

PIXELS_PER_METRE: Final = 30.0
WIDTH: Final = 600 / PIXELS_PER_METRE  # metres of moon that are in view
HEIGHT: Final = 400 / PIXELS_PER_METRE

# --- vectors ---


@pytree
class Vec:
    """A vector of the plane; each part may be an array, all operations go entry by entry."""

    x: Array
    y: Array

    def __add__(self, other: "Vec") -> "Vec":
        return Vec(self.x + other.x, self.y + other.y)

    def __sub__(self, other: "Vec") -> "Vec":
        return Vec(self.x - other.x, self.y - other.y)

    def __neg__(self) -> "Vec":
        return Vec(-self.x, -self.y)

    def __rmul__(self, factor: Array | float) -> "Vec":
        return Vec(factor * self.x, factor * self.y)


def vec(x: float | Array, y: float | Array) -> Vec:
    """A vector of float32 numbers."""
    return Vec(jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32))


def dot(first: Vec, other: Vec) -> Array:
    return first.x * other.x + first.y * other.y


def cross(first: Vec, other: Vec) -> Array:
    return first.x * other.y - first.y * other.x


def spun(spin: Array, arm: Vec) -> Vec:
    """The velocity of a point at `arm` from the centre of a body that turns with `spin`."""
    return Vec(-spin * arm.y, spin * arm.x)


def where(condition: Array, first: Vec, other: Vec) -> Vec:
    return Vec(jnp.where(condition, first.x, other.x), jnp.where(condition, first.y, other.y))


@pytree
class Rotation:
    sine: Array
    cosine: Array

    def turn(self, local: Vec) -> Vec:
        """A direction fixed to the body, as the world sees it."""
        return Vec(
            self.cosine * local.x - self.sine * local.y, self.sine * local.x + self.cosine * local.y
        )

    def turn_back(self, seen: Vec) -> Vec:
        """A direction of the world, as the body sees it."""
        return Vec(
            self.cosine * seen.x + self.sine * seen.y, self.cosine * seen.y - self.sine * seen.x
        )


def rotation(angle: Array) -> Rotation:
    return Rotation(jnp.sin(angle), jnp.cos(angle))


# --- bodies ---


@pytree
class Pose:
    """Where a body is: its centre of mass and its angle."""

    centre: Vec
    angle: Array


@pytree
class Motion:
    """How it moves: the velocity of its centre of mass and how fast it turns."""

    velocity: Vec
    spin: Array

    def pushed(self, shape: "Shape", impulse: Vec, torque: Array) -> "Motion":
        """After an impulse that has `torque` about the centre of mass."""
        return Motion(
            velocity=self.velocity + shape.inverse_mass * impulse,
            spin=self.spin + shape.inverse_inertia * torque,
        )


@pytree
class Body:
    pose: Pose
    motion: Motion
    resting: Array  # seconds for which it has been almost still


class Shape(NamedTuple):
    """A convex polygon of even density; vertices, about the body's origin, go anti-clockwise."""

    vertices: NDArray[np.float32]  # (corners, 2)
    normals: NDArray[np.float32]  # (corners, 2), of the side that starts at each vertex
    centre: tuple[float, float]  # of mass, about the body's origin
    inverse_mass: float
    inverse_inertia: float  # about the centre of mass

    def origin(self, pose: Pose) -> Vec:
        """Where the body's origin is."""
        return pose.centre - rotation(pose.angle).turn(vec(*self.centre))


def polygon(corners: list[tuple[float, float]], density: float) -> Shape:
    """A shape from its corners in pixels, anti-clockwise."""
    start = np.array(corners, np.float64) / PIXELS_PER_METRE
    end = np.roll(start, -1, axis=0)
    # Sums over the triangles between the origin and each side.
    doubled = start[:, 0] * end[:, 1] - start[:, 1] * end[:, 0]
    mass = density * doubled.sum() / 2
    centre = (doubled[:, None] * (start + end)).sum(axis=0) / (3 * doubled.sum())
    squares = (start**2 + start * end + end**2).sum(axis=1)
    inertia = density * (doubled * squares).sum() / 12 - mass * (centre**2).sum()
    side = end - start
    normals = np.stack([side[:, 1], -side[:, 0]], axis=1) / np.hypot(*side.T)[:, None]
    return Shape(
        vertices=start.astype(np.float32),
        normals=normals.astype(np.float32),
        centre=(float(centre[0]), float(centre[1])),
        inverse_mass=float(1 / mass),
        inverse_inertia=float(1 / inertia),
    )


# Which corner comes first decides ties between sides, as in Box2D.
HULL: Final = polygon([(17, -10), (17, 0), (14, 17), (-14, 17), (-17, 0), (-17, -10)], density=5.0)
LEG: Final = polygon([(-2, -8), (2, -8), (2, 8), (-2, 8)], density=1.0)

# --- the ground ---

EDGES: Final = 10
EDGE_WIDTH: Final = WIDTH / EDGES
PAD_HEIGHT: Final = HEIGHT / 4  # of the flags; the ground there is a hundredth lower
FLAT: Final = range(EDGES // 2 - 2, EDGES // 2 + 3)  # heights that are level before smoothing


def terrain(heights: Array) -> Array:
    """The ground's height at the 11 corners of its edges, from 12 random ones in [0, HEIGHT/2].

    Gymnasium draws one height more than there are corners, and smooths the first corner with the
    last height drawn. It weighs each of three heights by 0.33, which puts the pad at 0.99 of the
    flags' height. Below all this lies an edge at height 0, which is left out here: the ground
    comes within reach of it in fewer than one of 10,000 episodes.
    """
    raised = heights.at[jnp.array(FLAT)].set(PAD_HEIGHT)
    before = jnp.roll(raised, 1)[: EDGES + 1]
    return 0.33 * (before + raised[: EDGES + 1] + raised[1:])
