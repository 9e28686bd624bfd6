"""Two ways to take a step of an ordinary differential equation, one explicit, one for stiff ones.

States are pytrees with one leaf per variable, so that `vmap` gives contiguous columns.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

import jax
import jax.numpy as jnp

Array = jax.Array
State = TypeVar("State")


def wrapped(angle: Array) -> Array:
    """The same angle within [-pi, pi]."""
    turns = jnp.round(angle / (2 * math.pi))
    return angle - turns * (2 * math.pi)


def _plus(state: State, *terms: tuple[float | Array, State]) -> State:
    """`state` + Σ weight·direction, leaf by leaf."""
    for weight, direction in terms:
        state = jax.tree.map(partial(_axpy, weight), state, direction)
    return state


def _axpy(weight: float | Array, entry: Array, slope: Array) -> Array:
    return entry + weight * slope


def runge_kutta_4(derivative: Callable[[State], State], state: State, time_step: float) -> State:
    """One classical Runge-Kutta step of order four."""
    half = time_step / 2
    slope_1 = derivative(state)
    slope_2 = derivative(_plus(state, (half, slope_1)))
    slope_3 = derivative(_plus(state, (half, slope_2)))
    slope_4 = derivative(_plus(state, (time_step, slope_3)))
    change = _plus(slope_1, (2.0, slope_2), (2.0, slope_3), (1.0, slope_4))
    return _plus(state, (time_step / 6, change))


# Rodas, order 4(3), L-stable (Hairer and Wanner, "Solving ODEs II", section IV.7), in the form that
# needs no product with the Jacobian: row i of STAGES makes the point at which stage i is evaluated,
# row i of COUPLING what earlier stages add to its right-hand side.
GAMMA: Final = 0.25
STAGES: Final = (
    (),
    (1.544,),
    (0.9466785280815826, 0.2557011698983284),
    (3.314825187068521, 2.896124015972201, 0.9986419139977817),
    (1.221224509226641, 6.019134481288629, 12.53708332932087, -0.6878860361058950),
    (1.221224509226641, 6.019134481288629, 12.53708332932087, -0.6878860361058950, 1.0),
)
COUPLING: Final = (
    (),
    (-5.6688,),
    (-2.430093356833875, -0.2063599157091915),
    (-0.1073529058151375, -9.594562251023355, -20.47028614809616),
    (7.496443313967647, -10.24680431464352, -33.99990352819905, 11.70890893206160),
    (
        8.083246795921522,
        -7.981132988064893,
        -31.52159432874371,
        16.31930543123136,
        -6.058818238834054,
    ),
)


def rodas_4(
    derivative: Callable[[State], State],
    solver: Callable[[State, Array], Callable[[State], State]],
    state: State,
    time_step: Array,
) -> State:
    """One Rosenbrock step of order four for a stiff, autonomous equation.

    `solver(state, shift)` returns the function that solves (shift·I − J(state)) x = right for x,
    J the Jacobian of `derivative`; it is prepared once and used six times.
    """
    solve = solver(state, 1.0 / (GAMMA * time_step))
    inverse_step = 1.0 / time_step
    increments: list[State] = []
    for stage, coupling in zip(STAGES, COUPLING, strict=True):
        point = _plus(state, *zip(stage, increments, strict=True))
        carried = (
            (weight * inverse_step, u) for weight, u in zip(coupling, increments, strict=True)
        )
        increments.append(solve(_plus(derivative(point), *carried)))
    return _plus(point, (1.0, increments[-1]))
