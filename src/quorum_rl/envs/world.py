"""What a world is: a handful of pure functions over frozen pytrees.

A world knows its physics and nothing else. Whatever may differ between two copies of it
(gravity, masses, the time limit) is in `params`, so `vmap` over params runs a thousand
different copies at once. Randomness comes in as a key; nothing is remembered outside `state`.
"""

from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

import jax
import numpy as np

from quorum_rl.dictionary import Bounds
from quorum_rl.errors import QuorumError, unknown_name

Key: TypeAlias = jax.Array
Array: TypeAlias = jax.Array

StateT = TypeVar("StateT")
ParamsT = TypeVar("ParamsT")


class Step(NamedTuple, Generic[StateT]):
    """What one step of a world gives.

    `terminated` is an end that belongs to the world (the pole fell); `truncated` says that the
    time limit was reached. Both can be true at once, as in Gymnasium.
    """

    state: StateT
    observation: Array  # float32, (observation_size,)
    reward: Array  # float32, ()
    terminated: Array  # bool, ()
    truncated: Array  # bool, ()


@dataclass(frozen=True)
class Spaces:
    """What can be seen and what can be done: `low` and `high` bound the observation.

    Actions are a finite list, or, with `action_bounds`, continuous: then `action_names` name the
    numbers of one action, and `action_bounds` say between what each of them lies.
    """

    observation_names: tuple[str, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    action_names: tuple[str, ...]
    action_bounds: Bounds = ()

    @property
    def observation_size(self) -> int:
        return len(self.observation_names)

    @property
    def action_count(self) -> int:
        """How many actions there are; of continuous ones, how many numbers an action has."""
        return len(self.action_names)

    @property
    def continuous(self) -> bool:
        return bool(self.action_bounds)


@dataclass(frozen=True)
class Facts:
    """What is known about a world, so that returns can be put on a common scale.

    `random_return` and `reference_return` are undiscounted means over the default world with
    `evaluation_time_limit`. The reference is what the paper calls "optimal" and leaves unstated;
    `reference_source` says how ours was found.
    """

    random_return: float
    random_source: str
    reference_return: float
    reference_source: str
    demonstration_time_limit: int
    evaluation_time_limit: int

    def normalised(self, mean_return: float) -> float:
        """A mean return on the scale 0 (random policy) to 1 (reference)."""
        span = self.reference_return - self.random_return
        return (mean_return - self.random_return) / span


@dataclass(frozen=True)
class Units:
    """What brings a world's numbers to about zero and size one, known without anybody's log.

    A learner then sees (observation − centre) / scale, and rewards times `reward_scale`.
    """

    centre: tuple[float, ...]
    scale: tuple[float, ...]
    reward_scale: float = 1.0


@runtime_checkable
class World(Protocol[StateT, ParamsT]):
    """The protocol. `step` and `reset` must be pure: they are traced by `jit`, `vmap` and `scan`.

    `params` is a frozen pytree of numbers with a field `time_limit`; the state counts the steps
    of its episode so that `step` can tell when that limit is reached. Neither holds typed random
    keys, which no file can keep.

    A world may have an attribute `copies_at_once`: on a CPU, roll-outs step no more copies than
    that at a time, which is faster where more would not stay in the processor's cache. And it may
    have `units`: learners by name use those of the worlds that come with Quorum, unless they are
    told otherwise; the units of other worlds have to be given to them.
    """

    def __hash__(self) -> int:
        """Worlds are looked up when a compiled program is reused.

        Equal worlds share compiled programs, so worlds that differ must not compare equal: in a
        dataclass, no field may have `compare=False`.
        """

    @property
    def name(self) -> str: ...

    @property
    def spaces(self) -> Spaces: ...

    @property
    def facts(self) -> Facts: ...

    def default_params(self) -> ParamsT:
        """The default world, on which experts demonstrate and policies are judged."""

    def settings(self) -> ParamsT:
        """The variations experts are trained on: every leaf has a leading axis, one per setting."""

    def reset(self, key: Key, params: ParamsT) -> tuple[StateT, Array]:
        """A fresh episode: its first state and observation."""

    def step(self, key: Key, state: StateT, action: Array, params: ParamsT) -> Step[StateT]:
        """One step. A state whose episode has ended is stepped like any other."""


AnyWorld: TypeAlias = World[Any, Any]


# --- parameters ---


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
