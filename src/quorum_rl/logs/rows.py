"""Demonstrations from one row per step, as tables and step arrays have them.

Rows do not say what came after an episode's last step unless they carry the next observation.
Where they do not: no learner bootstraps after a terminated step, so a copy of the last observation
takes the place of the successor. A learner would use what came after the time limit, which is
unknown. So the limit is moved forward by one step in all episodes: one that lasted to the horizon,
however it ended, is cut before its last step and counts as truncated there. Cutting only those that
did not terminate in that step would let an end depend on an action that is not shown.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from quorum_rl.errors import QuorumError, at_least, require
from quorum_rl.logs.assemble import arrange, as_actions, as_floats, check_finite, check_truncations
from quorum_rl.logs.declared import Declared
from quorum_rl.logs.demonstrations import (
    Columns,
    Demonstrations,
    Flags,
    Floats,
    Integers,
    first_true,
)
from quorum_rl.logs.names import numbered

SUCCESSOR_TOLERANCE = 1e-4  # a text file may have rounded one of the two


class Rows(NamedTuple):
    """One row per step in any order; an episode is an expert together with an episode number.

    `truncated` is None where nobody noted it: an episode then counts as truncated when it has
    `horizon` steps, as Gymnasium's time limit would say. `step` counts 0, 1, 2, … unless
    `step_orders`: then it is anything that rises within an episode, such as a time.

    Shapes: (rows,), observations (rows, observation_size), continuous actions (rows, action_count).
    """

    expert: Integers
    episode: Integers
    step: Integers
    observation: Floats
    action: npt.NDArray[Any]
    reward: Floats
    terminated: Flags
    truncated: Flags | None
    next_observation: Floats | None
    step_orders: bool = False


Place = Callable[[int], str]
"""Says where the row with this index is, for a message."""


def from_rows(rows: Rows, declared: Declared, place: Place) -> Demonstrations:
    """Check the rows (at least one), sort them into episodes and those by expert.

    Raises:
        QuorumError: naming the place of the first fault.
    """
    rows = rows._replace(
        observation=declared.prepared(rows.observation),
        action=as_actions(rows.action, declared, place),
        next_observation=None
        if rows.next_observation is None
        else declared.prepared(rows.next_observation),
    )
    check_finite(rows.observation, "the observation", place, declared.dictionary)
    check_finite(rows.reward, "the reward", place)
    if rows.next_observation is not None:
        check_finite(rows.next_observation, "the next observation", place, declared.dictionary)
    order = np.lexsort((rows.step, rows.episode, rows.expert))  # file order among equals
    if not np.array_equal(order, np.arange(len(order))):  # else no second copy of the file
        in_order: dict[str, Any] = {
            name: None if column is None else column[order]
            for name, column in zip(Rows._fields[:-1], rows[:-1], strict=True)
        }
        rows = rows._replace(**in_order)

    def sorted_place(row: int) -> str:
        return place(int(order[row]))

    changed = (np.diff(rows.expert) != 0) | (np.diff(rows.episode) != 0)
    first = np.concatenate([[0], np.flatnonzero(changed) + 1])
    length = np.diff(np.append(first, len(order)))
    _check_steps(rows, first, length, order, place)
    last = first + length - 1
    truncated = _check_ends(rows, last, length, declared, sorted_place)
    _check_successors(rows, last, sorted_place)
    return _with_last_states(rows, last, truncated, length, declared, sorted_place)


def _check_steps(
    rows: Rows, first: Integers, length: Integers, order: Integers, place: Place
) -> None:
    """Every episode has the steps 0, 1, 2, … once each and one expert; or steps that rise."""
    if rows.step_orders:
        _check_order(rows, first, order, place)
        return
    expected = np.arange(len(order)) - np.repeat(first, length)
    row = first_true(rows.step != expected)
    if row is None:
        return
    here, wanted, found = place(int(order[row])), int(expected[row]), int(rows.step[row])
    if wanted > 0 and found == rows.step[row - 1]:
        raise QuorumError(
            f"{here}: step {found} of this episode is there already, in "
            f"{place(int(order[row - 1]))}: remove one of the two."
        )
    elsewhere = (rows.episode == rows.episode[row]) & (rows.step == wanted)
    elsewhere &= rows.expert != rows.expert[row]
    before = (rows.episode == rows.episode[row]) & (rows.step == found - 1)
    before &= rows.expert != rows.expert[row]
    missing = np.flatnonzero(elsewhere if wanted else before)
    adjacent = missing[np.abs(order[missing] - order[row]) == 1]
    if len(adjacent):
        raise QuorumError(
            f"{here}: this episode belongs to two experts, see "
            f"{place(int(order[adjacent[0]]))}: give all its rows one expert."
        )
    raise QuorumError(
        f"{here}: step {wanted} of this episode is missing before step {found}: "
        "number the steps of every episode 0, 1, 2, …, leave out the whole episode or, if they are "
        "times, say so (--step-orders)."
    )


def _check_order(rows: Rows, first: Integers, order: Integers, place: Place) -> None:
    """No two rows of an episode have the same step."""
    same = np.diff(rows.step) == 0
    same[first[1:] - 1] = False  # of two episodes
    if (row := first_true(same)) is not None:
        raise QuorumError(
            f"{place(int(order[row + 1]))}: its step is that of {place(int(order[row]))} in the "
            "same episode, so nobody knows which came first: make one row of both, or give a step "
            "that tells them apart."
        )


def _check_ends(
    rows: Rows, last: Integers, length: Integers, declared: Declared, place: Place
) -> Flags:
    """Only the last step of an episode ends it, and it does; gives `truncated` per episode.

    Lengths are judged here, before the time limit may be moved forward.
    """
    if (episode := first_true(length > declared.horizon)) is not None:
        raise QuorumError(
            f"{place(int(last[episode]))}: an episode of {length[episode]} steps exceeds the "
            f"declared horizon of {declared.horizon}: declare the time limit under which the "
            "experts acted."
        )
    ended = rows.terminated if rows.truncated is None else rows.terminated | rows.truncated
    is_last = np.zeros(len(rows.step), dtype=np.bool_)
    is_last[last] = True
    if (row := first_true(ended & ~is_last)) is not None:
        raise QuorumError(
            f"{place(row + 1)}: this row follows the end of its episode, in {place(row)}: give the "
            "next episode another number or correct the flag."
        )
    reached = length == declared.horizon
    truncated: Flags = reached if rows.truncated is None else rows.truncated[last]
    if (episode := first_true(~(rows.terminated[last] | truncated))) is not None:
        raise QuorumError(
            f"{place(int(last[episode]))}: the episode stops here neither terminated nor "
            "truncated: leave out logs that were cut short, since their end would tell on the "
            "expert."
        )
    check_truncations(
        declared,
        length,
        rows.terminated[last],
        truncated,
        lambda episode: place(int(last[episode])),
    )
    return truncated


def _check_successors(rows: Rows, last: Integers, place: Place) -> None:
    """Within an episode the next observation is what the next row observed."""
    if rows.next_observation is None:
        return
    following = rows.observation[1:]
    given = rows.next_observation[:-1]
    gap = np.abs(following - given) > SUCCESSOR_TOLERANCE * (1 + np.abs(following))
    differs = gap.any(axis=1)
    differs[last[:-1]] = False
    if (row := first_true(differs)) is not None:
        raise QuorumError(
            f"{place(row)}: the next observation is not what {place(row + 1)} observed: "
            "observations and actions are shifted against each other, align them."
        )


def _with_last_states(
    rows: Rows, last: Integers, truncated: Flags, length: Integers, declared: Declared, place: Place
) -> Demonstrations:
    """Add the state after each episode's last step, as the module's text says."""
    terminated = rows.terminated[last]
    cut = np.zeros(len(last), dtype=np.bool_)
    if rows.next_observation is None:
        # A time limit can be moved forward, another end cannot.
        early = truncated & ~terminated & (length < declared.horizon)
        if (episode := first_true(early)) is not None:
            raise QuorumError(
                f"{place(int(last[episode]))}: the state after this truncated episode is unknown: "
                "add the next_observation columns."
            )
        if declared.horizon == 1:
            raise QuorumError(
                f"{place(0)}: episodes of one step are of no use without the state after it: add "
                "the next_observation columns."
            )
        cut = length == declared.horizon
        declared = replace(declared, horizon=declared.horizon - 1)
    copies = np.ones(len(rows.step), dtype=np.int64)
    copies[last[~cut]] = 2
    observations = np.repeat(rows.observation, copies, axis=0)
    if rows.next_observation is not None:
        observations[np.cumsum(length + 1) - 1] = rows.next_observation[last]
    kept = np.ones(len(rows.step), dtype=np.bool_)
    kept[last[cut]] = False
    return arrange(
        declared,
        Columns(observations, rows.action[kept], rows.reward[kept]),
        expert=rows.expert[last],
        length=length - cut,
        terminated=terminated & ~cut,
        truncated=truncated | cut,
    )


# --- step arrays, as d3rlpy has them ---


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


def with_history(arrays: StepArrays, steps: int) -> StepArrays:
    """The same with the last `steps` observations in the place of each, the oldest first.

    What came before an episode's first observation is that one again, as in Gymnasium's
    `FrameStackObservation` and in `envs.Remembering`. Declare `steps` times as many numbers.

    Guarantee: what is shown of an expert's step comes from its own episode.

    Raises:
        QuorumError: for fewer steps than one, or observations that are no rows.
    """
    require("steps", steps, at_least(1))
    seen, count = np.asarray(arrays.observations), len(arrays.actions)
    if seen.ndim != 2 or len(seen) != count:
        raise QuorumError(
            f"step arrays: observations have shape {seen.shape}: give one row per action, "
            f"({count}, observation_size)."
        )
    ended = np.asarray(arrays.terminals).reshape(-1) != 0
    ended |= np.asarray(arrays.timeouts).reshape(-1) != 0
    begins = np.append(True, ended[:-1])
    rows = np.arange(count)
    first = np.maximum.accumulate(np.where(begins, rows, 0))
    places = np.maximum(rows[:, None] - np.arange(steps - 1, -1, -1), first[:, None])
    following = arrays.next_observations
    if following is not None:
        newest = np.asarray(following)[:, None]
        following = np.concatenate([seen[places[:, 1:]], newest], axis=1).reshape(count, -1)
    return arrays._replace(
        observations=seen[places].reshape(count, -1), next_observations=following
    )


def from_step_arrays(arrays: StepArrays, declared: Declared) -> Demonstrations:
    """Demonstrations from step arrays; columns of shape (steps, 1) are flattened.

    The steps of an episode follow one another, up to one with `terminals` or `timeouts`. Experts
    may be named by integers or strings; strings are numbered in their sorted order and kept as
    `expert_names`.

    Raises:
        QuorumError: naming the row (counted from 1) of the first fault.
    """
    rewards, terminals, timeouts, experts = (
        np.asarray(column).reshape(-1) for column in arrays[2:6]
    )
    actions, count = np.asarray(arrays.actions), len(arrays.actions)
    if not declared.continuous or actions.ndim == 1:
        actions = actions.reshape(-1)
    if count == 0:
        raise QuorumError("step arrays: there is no step; give at least one episode.")
    for name, column in zip(StepArrays._fields, arrays, strict=True):
        if column is None:
            continue
        width = (declared.observation_size,) if name.endswith("observations") else ()
        values = np.asarray(column)
        if name == "actions" and actions.ndim == 2:
            width = (declared.action_count,)
        shape = values.shape if width else (values.size,)
        if shape != (count, *width):
            raise QuorumError(
                f"step arrays: {name} have shape {values.shape}, expected {(count, *width)}: "
                f"give one row per action and the declared observation_size."
            )
    identities, names = _identities(experts)
    ended = (terminals != 0) | (timeouts != 0)
    episode = np.concatenate([[0], np.cumsum(ended)[:-1]])
    first = np.flatnonzero(np.diff(episode, prepend=-1))
    changed = first_true((np.diff(identities) != 0) & (np.diff(episode) == 0))
    if changed is not None:
        raise QuorumError(
            f"{_in_arrays(changed + 1)}: this episode belongs to two experts: set timeouts or "
            "terminals where an episode ends, or give all its rows one expert."
        )
    rows = Rows(
        expert=identities,
        episode=episode,
        step=np.arange(count) - first[episode],
        observation=np.asarray(arrays.observations),
        action=actions,
        reward=as_floats(rewards),
        terminated=terminals != 0,
        truncated=timeouts != 0,
        next_observation=None
        if arrays.next_observations is None
        else np.asarray(arrays.next_observations),
    )
    return replace(from_rows(rows, declared, _in_arrays), expert_names=names)


def to_step_arrays(demonstrations: Demonstrations) -> StepArrays:
    """All transitions as step arrays, with their successors; experts by name if they have one."""
    steps = demonstrations.transitions(np.arange(demonstrations.transition_count))
    whose = demonstrations.named_experts
    whose = whose if whose.dtype.kind == "i" else whose.astype(str)
    return StepArrays(
        observations=np.asarray(steps.observation),
        actions=np.asarray(steps.action),
        rewards=np.asarray(steps.reward),
        terminals=np.asarray(steps.terminated),
        timeouts=np.asarray(steps.truncated),
        experts=np.repeat(whose, demonstrations.episodes.length),
        next_observations=np.asarray(steps.next_observation),
    )


def _identities(experts: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """A number for each, and their names in the order of these where they have any."""
    if experts.dtype.kind in "iu":
        return experts.astype(np.int64), ()
    if experts.dtype.kind in "US":
        return numbered(experts.astype(str).tolist())
    raise QuorumError(f"step arrays: experts have type {experts.dtype}: give integers or strings.")


def _in_arrays(row: int) -> str:
    return f"step arrays, row {row + 1}"
