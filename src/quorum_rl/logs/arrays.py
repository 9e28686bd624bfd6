"""Step arrays as d3rlpy has them: one row per step, episodes told apart by their ends."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from quorum_rl.errors import QuorumError
from quorum_rl.logs.assemble import as_floats
from quorum_rl.logs.demonstrations import Declared, Demonstrations
from quorum_rl.logs.rows import Rows, from_rows


class StepArrays(NamedTuple):
    """The first five are what d3rlpy's `MDPDataset` takes; `experts` says who acted.

    Without `next_observations` the time limit moves forward by one step, for what came after it is
    unknown. Shapes: (steps,); observations (steps, observation_size).
    """

    observations: npt.NDArray[Any]
    actions: npt.NDArray[Any]
    rewards: npt.NDArray[Any]
    terminals: npt.NDArray[Any]
    timeouts: npt.NDArray[Any]
    experts: npt.NDArray[Any]
    next_observations: npt.NDArray[Any] | None = None


def from_step_arrays(arrays: StepArrays, declared: Declared) -> Demonstrations:
    """Demonstrations from step arrays; columns of shape (steps, 1) are flattened.

    Experts may be named by integers or strings; strings are numbered in their sorted order.

    Raises:
        QuorumError: naming the row (counted from 1) of the first fault.
    """
    actions, rewards, terminals, timeouts, experts = (
        np.asarray(column).reshape(-1) for column in arrays[1:6]
    )
    count = len(actions)
    if count == 0:
        raise QuorumError("step arrays: there is no step; give at least one episode.")
    for name, column in zip(StepArrays._fields, arrays, strict=True):
        if column is None:
            continue
        width = (declared.observation_size,) if name.endswith("observations") else ()
        values = np.asarray(column)
        shape = values.shape if width else (values.size,)
        if shape != (count, *width):
            raise QuorumError(
                f"step arrays: {name} have shape {values.shape}, expected {(count, *width)}: "
                f"give one row per action and the declared observation_size."
            )
    identities = _identities(experts)
    ended = (terminals != 0) | (timeouts != 0)
    episode = np.concatenate([[0], np.cumsum(ended)[:-1]])
    first = np.flatnonzero(np.diff(episode, prepend=-1))
    changed = np.flatnonzero((np.diff(identities) != 0) & (np.diff(episode) == 0))
    if len(changed):
        raise QuorumError(
            f"{_place(int(changed[0]) + 1)}: this episode belongs to two experts: set timeouts or "
            "terminals where an episode ends, or give all its rows one expert."
        )
    rows = Rows(
        expert=identities,
        episode=episode,
        step=np.arange(count) - first[episode],
        observation=as_floats(arrays.observations),
        action=actions,
        reward=as_floats(rewards),
        terminated=terminals != 0,
        truncated=timeouts != 0,
        next_observation=None
        if arrays.next_observations is None
        else as_floats(arrays.next_observations),
    )
    return from_rows(rows, declared, _place)


def to_step_arrays(demonstrations: Demonstrations) -> StepArrays:
    """All transitions as step arrays, with their successors."""
    steps = demonstrations.transitions(np.arange(demonstrations.transition_count))
    return StepArrays(
        observations=np.asarray(steps.observation),
        actions=np.asarray(steps.action),
        rewards=np.asarray(steps.reward),
        terminals=np.asarray(steps.terminated),
        timeouts=np.asarray(steps.truncated),
        experts=np.repeat(demonstrations.episodes.expert, demonstrations.episodes.length),
        next_observations=np.asarray(steps.next_observation),
    )


def _identities(experts: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    if experts.dtype.kind in "iu":
        return experts.astype(np.int64)
    if experts.dtype.kind in "US":
        return np.unique(experts, return_inverse=True)[1].astype(np.int64)
    raise QuorumError(f"step arrays: experts have type {experts.dtype}: give integers or strings.")


def _place(row: int) -> str:
    return f"step arrays, row {row + 1}"
