"""Demonstrations from one row per step, as tables and step arrays have them.

Rows do not say what came after an episode's last step unless they carry the next observation.
Where they do not: after a terminated step nothing is bootstrapped, so the last observation stands
in for the successor nobody uses. What came after the time limit would be used and is unknown, so
the limit is moved forward by one step for everybody: an episode that lasted to the horizon, however
it ended, is cut before its last step and counts as truncated there. Cutting only those that did not
terminate in that step would let an end depend on an action that is not shown.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from quorum_rl.errors import QuorumError
from quorum_rl.logs.assemble import arrange, as_actions, check_finite, check_truncations
from quorum_rl.logs.demonstrations import Columns, Declared, Demonstrations, Flags, Floats, Integers

SUCCESSOR_TOLERANCE = 1e-4  # a text file may have rounded one of the two


class Rows(NamedTuple):
    """One row per step in any order; an episode is an expert together with an episode number.

    `truncated` is None where nobody noted it: an episode then counts as truncated when it has
    `horizon` steps, as Gymnasium's time limit would say.

    Shapes: (rows,), observations (rows, observation_size).
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


Place = Callable[[int], str]
"""Says where the row with this index is, for a message."""


def from_rows(rows: Rows, declared: Declared, place: Place) -> Demonstrations:
    """Check the rows (at least one), sort them into episodes and those by expert.

    Raises:
        QuorumError: naming the place of the first fault.
    """
    actions = _checked_values(rows, declared, place)
    order = _order(rows)
    rows = _take(rows._replace(action=actions), order)

    def sorted_place(row: int) -> str:
        return place(int(order[row]))

    first = _starts(rows)
    length = np.diff(np.append(first, len(order)))
    _check_steps(rows, first, length, order, place)
    last = first + length - 1
    truncated = _check_ends(rows, last, length, declared, sorted_place)
    _check_successors(rows, last, sorted_place)
    return _with_last_states(rows, last, truncated, length, declared, sorted_place)


def _checked_values(rows: Rows, declared: Declared, place: Place) -> npt.NDArray[Any]:
    check_finite(rows.observation, "the observation", place)
    check_finite(rows.reward, "the reward", place)
    if rows.next_observation is not None:
        check_finite(rows.next_observation, "the next observation", place)
    return as_actions(rows.action, declared, place)


def _order(rows: Rows) -> Integers:
    """The permutation that sorts by expert, episode and step; file order among equals."""
    return np.lexsort((rows.step, rows.episode, rows.expert))


def _take(rows: Rows, order: Integers) -> Rows:
    if np.array_equal(order, np.arange(len(order))):
        return rows  # the usual case: no second copy of the file
    return Rows(*(None if column is None else column[order] for column in rows))  # type: ignore[arg-type]


def _starts(rows: Rows) -> Integers:
    """The row in which each episode begins."""
    changed = (np.diff(rows.expert) != 0) | (np.diff(rows.episode) != 0)
    return np.concatenate([[0], np.flatnonzero(changed) + 1])


def _check_steps(
    rows: Rows, first: Integers, length: Integers, order: Integers, place: Place
) -> None:
    """Every episode has the steps 0, 1, 2, … once each and one expert."""
    expected = np.arange(len(order)) - np.repeat(first, length)
    wrong = np.flatnonzero(rows.step != expected)
    if not len(wrong):
        return
    row = int(wrong[0])
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
        "number the steps of every episode 0, 1, 2, … or leave out the whole episode."
    )


def _check_ends(
    rows: Rows, last: Integers, length: Integers, declared: Declared, place: Place
) -> Flags:
    """Only the last step of an episode ends it, and it does; gives `truncated` per episode.

    Lengths are judged here, before the time limit may be moved forward.
    """
    too_long = np.flatnonzero(length > declared.horizon)
    if len(too_long):
        episode = int(too_long[0])
        raise QuorumError(
            f"{place(int(last[episode]))}: an episode of {length[episode]} steps exceeds the "
            f"declared horizon of {declared.horizon}: declare the time limit under which the "
            "experts acted."
        )
    ended = rows.terminated if rows.truncated is None else rows.terminated | rows.truncated
    is_last = np.zeros(len(rows.step), dtype=np.bool_)
    is_last[last] = True
    early = np.flatnonzero(ended & ~is_last)
    if len(early):
        raise QuorumError(
            f"{place(int(early[0]) + 1)}: this row follows the end of its episode, in "
            f"{place(int(early[0]))}: give the next episode another number or correct the flag."
        )
    reached = length == declared.horizon
    truncated: Flags = reached if rows.truncated is None else rows.truncated[last]
    cut = np.flatnonzero(~(rows.terminated[last] | truncated))
    if len(cut):
        raise QuorumError(
            f"{place(int(last[cut[0]]))}: the episode stops here neither terminated nor truncated: "
            "leave out logs that were cut short, since their end would tell on the expert."
        )
    check_truncations(
        declared, length, rows.terminated[last], truncated, lambda one: place(int(last[one]))
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
    wrong = np.flatnonzero(differs)
    if len(wrong):
        raise QuorumError(
            f"{place(int(wrong[0]))}: the next observation is not what {place(int(wrong[0]) + 1)} "
            "observed: observations and actions are shifted against each other, align them."
        )


def _with_last_states(
    rows: Rows,
    last: Integers,
    truncated: Flags,
    length: Integers,
    declared: Declared,
    place: Place,
) -> Demonstrations:
    """Add the state after each episode's last step, as the module's text says."""
    terminated = rows.terminated[last]
    cut = np.zeros(len(last), dtype=np.bool_)
    if rows.next_observation is None:
        _check_can_be_cut(declared, last, length, truncated & ~terminated, place)
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


def _check_can_be_cut(
    declared: Declared, last: Integers, length: Integers, truncated: Flags, place: Place
) -> None:
    """Without next observations a time limit can be moved forward, another end cannot."""
    early = np.flatnonzero(truncated & (length < declared.horizon))
    if len(early):
        raise QuorumError(
            f"{place(int(last[early[0]]))}: the state after this truncated episode is unknown: "
            "add the next_observation columns."
        )
    if declared.horizon == 1:
        raise QuorumError(
            f"{place(0)}: episodes of one step are of no use without the state after it: add the "
            "next_observation columns."
        )
