"""Making and checking the parameters of a world."""

from dataclasses import fields, replace
from itertools import product
from typing import Any, TypeVar

import jax
import numpy as np

from quorum_rl.envs.world import AnyWorld
from quorum_rl.errors import QuorumError, unknown_name

ParamsT = TypeVar("ParamsT")


def with_params(world: AnyWorld, **overrides: float) -> Any:
    """The default parameters of `world` with some of them changed.

    Raises:
        QuorumError: for an unknown parameter, a value that is not finite, or a time limit below 1.
    """
    params = world.default_params()
    known = [field.name for field in fields(params)]
    for name, value in overrides.items():
        if name not in known:
            raise unknown_name(f"{world.name} parameter", name, known)
        if not isinstance(value, int | float | np.number):
            raise QuorumError(f"{world.name} parameter {name!r} must be a number, not {value!r}.")
        if name == "time_limit" and value != int(value if np.isfinite(value) else 0):
            raise QuorumError(
                f"{world.name} parameter 'time_limit' is {value}: give a whole number of steps."
            )
    changed = {
        name: type(getattr(params, name))(value) if np.isfinite(value) else value
        for name, value in overrides.items()
    }
    return checked(world, replace(params, **changed))


def checked(world: AnyWorld, params: ParamsT) -> ParamsT:
    """`params` itself, or a clear error when a value is not finite or a time limit is below 1.

    Works on one set of parameters and on a stack of them; not under `jit`, where values are
    unknown.
    """
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        name = jax.tree_util.keystr(path, simple=True)
        values = np.asarray(leaf)
        if not np.isfinite(values).all():
            bad = values[~np.isfinite(values)].flat[0]
            raise QuorumError(
                f"{world.name} parameter {name!r} is {bad}: every parameter must be finite."
            )
        if name == "time_limit" and (values < 1).any():
            raise QuorumError(
                f"{world.name} parameter 'time_limit' is {values.min()}: give at least 1 step."
            )
    return params


def grid(default: ParamsT, **axes: np.ndarray) -> ParamsT:
    """Every combination of `axes`, stacked, the last axis varying fastest; the rest repeated.

    Shapes: each leaf of the result has shape `(number of combinations,)`.
    """
    combinations = np.array(list(product(*axes.values())), dtype=np.float32)
    columns = dict(zip(axes, combinations.T, strict=True))
    count = len(combinations)
    stacked = {
        field.name: columns.get(field.name, np.full(count, getattr(default, field.name)))
        for field in fields(default)  # type: ignore[arg-type]
    }
    return type(default)(
        **{
            name: column.astype(np.int32 if column.dtype.kind == "i" else np.float32)
            for name, column in stacked.items()
        }
    )
