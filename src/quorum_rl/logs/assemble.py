"""Demonstrations from arrays that already have a row per state, as a roll-out makes them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from quorum_rl.dictionary import Dictionary
from quorum_rl.errors import QuorumError
from quorum_rl.logs.declared import Declared
from quorum_rl.logs.demonstrations import (
    Columns,
    Demonstrations,
    Episodes,
    Flags,
    Integers,
    first_true,
)

CHUNK = 1 << 20  # rows looked at together, so that checking 60 million of them stays small


def from_episodes(
    declared: Declared,
    *,
    expert: npt.ArrayLike,
    length: npt.ArrayLike,
    observations: npt.ArrayLike,
    actions: npt.ArrayLike,
    rewards: npt.ArrayLike,
    terminated: npt.ArrayLike,
    truncated: npt.ArrayLike,
) -> Demonstrations:
    """Check episodes that lie one after the other and sort them by expert, keeping their order.

    Shapes: `observations` (steps + episodes, observation_size), the last one of an episode being
    the state after its last step; `actions` and `rewards` (steps,); the others (episodes,).

    Raises:
        QuorumError: for a value that is not finite, an action out of range, shapes that differ, an
            episode truncated before the horizon without a declared public rule.
    """
    columns = Columns(
        declared.prepared(observations), as_actions(actions, declared, _step), as_floats(rewards)
    )
    check_finite(columns.observations, "the observation", lambda row: f"state {row}")
    check_finite(columns.rewards, "the reward", _step)
    lengths = np.asarray(length, dtype=np.int64)
    steps, states = int(lengths.sum()), int(lengths.sum()) + len(lengths)
    if (steps, states) != (len(columns.actions), len(columns.observations)):
        raise QuorumError(
            f"episodes of {steps} steps together need {states} observations and {steps} actions, "
            f"not {len(columns.observations)} and {len(columns.actions)}: "
            "give every episode the observation after its last step."
        )
    ended = np.asarray(terminated, dtype=np.bool_)
    cut = np.asarray(truncated, dtype=np.bool_)
    demonstrations = arrange(
        declared,
        columns,
        expert=np.asarray(expert, dtype=np.int64),
        length=lengths,
        terminated=ended,
        truncated=cut,
    )
    check_truncations(declared, lengths, ended, cut, lambda episode: f"episode {episode}")
    return demonstrations


def from_padded(
    declared: Declared,
    *,
    expert: npt.ArrayLike,
    length: npt.ArrayLike,
    observations: npt.ArrayLike,
    actions: npt.ArrayLike,
    rewards: npt.ArrayLike,
    terminated: npt.ArrayLike,
    truncated: npt.ArrayLike,
) -> Demonstrations:
    """As `from_episodes`, for episodes padded to one length; what lies behind an end is ignored.

    Shapes: `observations` (episodes, time + 1, observation_size); `actions` and `rewards`
    (episodes, time); the others (episodes,).
    """
    lengths = np.asarray(length, dtype=np.int64)
    acted = np.arange(np.shape(actions)[1]) < lengths[:, None]
    seen = np.arange(np.shape(observations)[1]) <= lengths[:, None]
    return from_episodes(
        declared,
        expert=expert,
        length=lengths,
        observations=np.asarray(observations)[seen],
        actions=np.asarray(actions)[acted],
        rewards=np.asarray(rewards)[acted],
        terminated=terminated,
        truncated=truncated,
    )


def arrange(
    declared: Declared,
    columns: Columns,
    *,
    expert: Integers,
    length: Integers,
    terminated: Flags,
    truncated: Flags,
) -> Demonstrations:
    """Sort checked episodes by expert; the columns stay where they are.

    Does not look at when episodes were truncated: that is checked where they are read.
    """
    first_step = np.cumsum(length) - length
    in_order = Episodes(
        expert=expert,
        first_state=first_step + np.arange(len(length)),
        first_step=first_step,
        length=length,
        terminated=terminated,
        truncated=truncated,
    )
    if any(len(array) != len(expert) for array in in_order):
        raise QuorumError("expert, length, terminated and truncated differ in length.")
    order = np.argsort(expert, kind="stable")
    return Demonstrations(declared, columns, in_order.chosen(order))


def check_truncations(
    declared: Declared,
    length: Integers,
    terminated: Flags,
    truncated: Flags,
    place: Callable[[int], str],
) -> None:
    """Find episodes that were truncated, and not terminated, before the declared horizon.

    The guarantee needs ends that follow a public rule of state, action and time. The time limit is
    one; of any other only the owner of the logs can say so. `length` is what was acted.
    Shapes: (episodes,).

    Raises:
        QuorumError: naming the place of the first one, unless such a rule is declared.
    """
    if declared.early_truncation_is_public:
        return
    early = truncated & ~terminated & (length != declared.horizon)
    if (episode := first_true(early)) is not None:
        raise QuorumError(
            f"{place(episode)}: the episode is truncated after {length[episode]} steps, but the "
            f"declared horizon is {declared.horizon}: declare the time limit under which the "
            "experts acted; if nothing follows such an end, count it as terminated; or, if a "
            "public rule of state, action and time ended it, declare early_truncation_is_public."
        )


def as_floats(values: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Values as float32; what does not fit becomes infinite and is found by `check_finite`."""
    with np.errstate(over="ignore"):
        return np.asarray(values).astype(np.float32, copy=False)


def as_actions(
    values: npt.ArrayLike, declared: Declared, place: Callable[[int], str]
) -> npt.NDArray[Any]:
    """Actions in the smallest type that holds them; continuous ones as float32.

    Raises:
        QuorumError: naming the place of the first that is not a whole number within range, or that
            is not within its bounds.
    """
    actions = np.asarray(values)
    if declared.continuous:
        return _as_continuous(actions, declared, place)
    if actions.dtype.kind not in "biuf":
        raise QuorumError(
            f"{place(0)}: the actions are of type {actions.dtype}, but actions are the whole "
            f"numbers 0 to {declared.action_count - 1}: give those."
        )
    for start in range(0, len(actions), CHUNK):
        part = actions[start : start + CHUNK]
        bad = ~((part >= 0) & (part < declared.action_count))
        if part.dtype.kind == "f":
            whole = part == np.floor(part)
            if (row := first_true(np.isfinite(part) & ~whole)) is not None:
                raise continuous_actions(place(start + row), f"the action is {part[row]}")
            bad |= ~whole
        if (row := first_true(bad)) is not None:
            raise QuorumError(
                f"{place(start + row)}: the action is {part[row]}, but actions are the whole "
                f"numbers 0 to {declared.action_count - 1}: correct the action or the declared "
                "action_count."
            )
    return actions.astype(np.min_scalar_type(declared.action_count - 1))


def continuous_actions(where: str, found: str) -> QuorumError:
    """The error for actions that are measured, whatever they came in."""
    return QuorumError(
        f"{where}: {found}, but a finite list of actions was declared: declare the bounds of "
        "continuous ones (--action-bounds), or a number or label for each (--action-labels)."
    )


def _as_continuous(
    actions: npt.NDArray[Any], declared: Declared, place: Callable[[int], str]
) -> npt.NDArray[np.float32]:
    """Continuous actions within their bounds. Shapes: (steps, action_count), or (steps,) of one."""
    bounds = declared.action_bounds
    if actions.dtype.kind not in "biuf":
        raise QuorumError(
            f"{place(0)}: the actions are of type {actions.dtype}, but {len(bounds)} numbers each "
            "were declared: give those."
        )
    made = as_floats(actions[:, None] if actions.ndim == 1 else actions)
    if made.ndim != 2 or made.shape[1] != len(bounds):
        raise QuorumError(
            f"the actions have shape {actions.shape}, but action_bounds of {len(bounds)} numbers "
            "were declared: give so many for each step."
        )
    low, high = np.asarray(bounds, np.float32).T
    for start in range(0, len(made), CHUNK):
        part = made[start : start + CHUNK]
        bad = ~((part >= low) & (part <= high))  # NaN is not
        if (row := first_true(bad.any(axis=1))) is not None:
            number = int(np.flatnonzero(bad[row])[0])
            raise QuorumError(
                f"{place(start + row)}: number {number} of the action is {part[row, number]:g}, "
                f"but its bounds are {bounds[number][0]:g} and {bounds[number][1]:g}: correct the "
                "action or the declared action_bounds."
            )
    return made


def check_finite(
    values: npt.NDArray[Any],
    what: str,
    place: Callable[[int], str],
    named: Dictionary | None = None,
) -> None:
    """Find NaN and infinite values, in observations by the name of their column.

    Raises:
        QuorumError: naming the place of the first one.
    """
    for start in range(0, len(values), CHUNK):
        part = values[start : start + CHUNK]
        bad = ~np.isfinite(part)
        if (row := first_true(bad.any(axis=1) if bad.ndim == 2 else bad)) is not None:
            name = None if named is None else named.name_at(int(np.flatnonzero(bad[row])[0]))
            said = what if name is None else f"{name!r} of {what}"
            raise QuorumError(
                f"{place(start + row)}: {said} has a value that is missing, NaN, infinite or too "
                "large for float32: correct it, declare what stands for it (--fill) or leave out "
                "the whole episode."
            )


def _step(row: int) -> str:
    return f"step {row}"
