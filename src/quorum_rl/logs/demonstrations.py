"""What the experts did: flat arrays, and episodes that point into them.

Every state is stored once. An episode of n steps has n + 1 of them: the last one, in which nobody
acted any more, is the true successor that a learner needs to bootstrap from a truncated episode.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from quorum_rl.errors import QuorumError, at_least, require
from quorum_rl.logs.declared import Declared
from quorum_rl.logs.names import check_names
from quorum_rl.types import Episode, Transition

Floats: TypeAlias = npt.NDArray[np.float32]
Integers: TypeAlias = npt.NDArray[np.integer[Any]]
Flags: TypeAlias = npt.NDArray[np.bool_]


class Columns(NamedTuple):
    """The flat arrays. Views of one log share them, so they may hold more than a view shows.

    Shapes: `observations` (states, observation_size); `actions` and `rewards` (steps,), continuous
    actions (steps, action_count).
    """

    observations: Floats
    actions: npt.NDArray[Any]
    rewards: Floats


class Episodes(NamedTuple):
    """Where each episode lies in the columns, whose it is and how it ended; all (episodes,)."""

    expert: Integers
    first_state: Integers
    first_step: Integers
    length: Integers
    terminated: Flags
    truncated: Flags

    def chosen(self, which: npt.ArrayLike) -> "Episodes":
        """Some of the episodes, by number or mask."""
        columns: Any = (column[np.asarray(which)] for column in self)
        return Episodes(*columns)


@dataclass(frozen=True, repr=False, eq=False)
class Demonstrations:
    """The logged decisions of many experts. SENSITIVE: this is what the guarantee protects.

    Episodes are sorted by expert and keep their position within the expert. Everything here except
    `declared` is private, the number of experts included; hence the `repr` shows only `declared`.
    Of the stages whose results may be published, only the release and the training may take this
    type, together with a ledger.

    Experts are addressed by position (0 … expert_count - 1), episodes and transitions by their
    number within this view. Arrays are read-only and may be backed by a file: `source`, beside
    which a release leaves its marker. Where the logs named their experts, `expert_names` has the
    names in the order of their identities 0, 1, 2, …

    Raises:
        QuorumError: if the episodes do not fit the columns, the names or what was declared.
    """

    declared: Declared
    columns: Columns
    episodes: Episodes
    source: Path | None = None
    expert_names: tuple[str, ...] = ()

    @classmethod
    def open(
        cls,
        path: str | Path,
        declared: Declared | None = None,
        columns: Mapping[str, str | Sequence[str]] | None = None,
    ) -> "Demonstrations":
        """The demonstrations in a file: Arrow that Quorum wrote, or a table (Parquet, CSV).

        A table needs `declared`, the public facts, unless Quorum exported it; `columns` says what
        its columns are called where they are not as `logs.TableColumns` has them, such as
        `{"expert": "desk", "observation": ["price", "volume"]}`. Save a table once with
        `logs.save_demonstrations`: what was released from is remembered beside that file, and a
        table that is imported again looks like another log.

        Raises:
            QuorumError: if the file cannot be read, naming what is wrong with it.
        """
        from quorum_rl.logs.columns import columns_named  # these build on this class
        from quorum_rl.logs.native import open_demonstrations
        from quorum_rl.logs.tables import read_table

        if Path(path).suffix.lower() in (".parquet", ".csv"):
            return read_table(path, declared, columns_named(columns or {}))
        if declared is not None or columns is not None:
            raise QuorumError(
                f"demonstrations {str(path)!r}: only tables (.parquet, .csv) are declared or have "
                "columns to be named: leave both out."
            )
        return open_demonstrations(path)

    def __post_init__(self) -> None:
        _check_shape(self.declared, self.columns)
        _check_episodes(self.declared, self.columns, self.episodes)
        if self.expert_names:
            check_names(self.expert_names, self.experts)
        object.__setattr__(self, "columns", Columns(*map(_read_only, self.columns)))
        object.__setattr__(self, "episodes", Episodes(*map(_read_only, self.episodes)))

    def __repr__(self) -> str:
        return f"Demonstrations(sensitive; {self.declared})"

    def __len__(self) -> int:
        """The number of episodes."""
        return len(self.episodes.expert)

    @property
    def expert_count(self) -> int:
        return len(self.experts)

    @property
    def transition_count(self) -> int:
        return int(self.transition_offsets[-1])

    @cached_property
    def experts(self) -> Integers:
        """The identities of the experts, ascending; an expert's position is its index here."""
        return np.unique(self.episodes.expert)

    @cached_property
    def transition_offsets(self) -> Integers:
        """Episode e has the transitions from offset e up to offset e + 1. Shape (episodes + 1,)."""
        return np.concatenate([[0], np.cumsum(self.episodes.length, dtype=np.int64)])

    @property
    def names(self) -> tuple[str, ...]:
        """What each expert is called, by position: its own name or number, whoever else is there.

        In the next log of the same experts they are called the same.
        """
        if self.expert_names:
            return tuple(self.expert_names[identity] for identity in self.experts)
        return tuple(map(str, self.experts.tolist()))

    @property
    def named_experts(self) -> npt.NDArray[Any]:
        """Whose each episode is: the expert's name where it has one, else its number."""
        expert = self.episodes.expert
        return np.array(self.expert_names, object)[expert] if self.expert_names else expert

    @cached_property
    def expert_episode_offsets(self) -> Integers:
        """Expert i has the episodes from offset i up to offset i + 1. Shape (experts + 1,)."""
        first = np.searchsorted(self.episodes.expert, self.experts, side="left")
        return np.append(first, len(self)).astype(np.int64)

    @cached_property
    def expert_transition_offsets(self) -> Integers:
        """Expert i has the transitions from offset i up to offset i + 1. Shape (experts + 1,)."""
        return self.transition_offsets[self.expert_episode_offsets]

    def episodes_of(self, expert: int) -> range:
        """The episodes of the expert at position `expert`, in their order."""
        return range(*self.expert_episode_offsets[[expert, expert + 1]].tolist())

    def transitions_of(self, expert: int) -> range:
        """The transitions of the expert at position `expert`."""
        return range(*self.expert_transition_offsets[[expert, expert + 1]].tolist())

    def episode(self, index: int) -> Episode:
        """One episode, without copying it."""
        where = self.episodes
        state, step, length = where.first_state[index], where.first_step[index], where.length[index]
        return Episode(
            observations=self.columns.observations[state : state + length + 1],
            actions=self.columns.actions[step : step + length],
            rewards=self.columns.rewards[step : step + length],
            terminated=bool(where.terminated[index]),
            truncated=bool(where.truncated[index]),
        )

    def __iter__(self) -> Iterator[Episode]:
        return (self.episode(index) for index in range(len(self)))

    def transitions(self, indices: npt.ArrayLike) -> Transition:
        """Gather transitions by number; an episode's end is flagged on its last one only.

        The fields are NumPy arrays (a jitted function takes them as they are).

        Shapes: `indices` of any shape; every field has that shape, observations one axis more.

        Raises:
            IndexError: if an index is not between 0 and `transition_count` - 1.
        """
        numbers = np.asarray(indices, dtype=np.int64)
        if numbers.size and not 0 <= numbers.min() <= numbers.max() < self.transition_count:
            raise IndexError("a transition index is out of range")
        episode = np.searchsorted(self.transition_offsets, numbers, side="right") - 1
        time = numbers - self.transition_offsets[episode]
        state = self.episodes.first_state[episode] + time
        step = self.episodes.first_step[episode] + time
        last = time == self.episodes.length[episode] - 1
        # Rows by `take`, which copies them whole: half the time of indexing.
        gathered: Any = (
            self.columns.observations.take(state, axis=0),
            self.columns.actions[step].astype(np.float32 if self.declared.continuous else np.int32),
            self.columns.rewards[step],
            self.columns.observations.take(state + 1, axis=0),
            last & self.episodes.terminated[episode],
            last & self.episodes.truncated[episode],
        )
        return Transition(*gathered)

    def select(self, episodes: npt.ArrayLike) -> "Demonstrations":
        """A view of some episodes, given as ascending numbers or a mask; no data is copied."""
        return replace(self, episodes=self.episodes.chosen(episodes))

    def of_at_least(
        self, minimum_experts: int | None, minimum_trajectories: int | None = None
    ) -> "Demonstrations":
        """The same, declared to be of so many experts at least, with so many trajectories each.

        What is None stays as it was declared before.

        Raises:
            QuorumError: if less was declared before, or as `check_usable`.
        """
        given = {"minimum_experts": minimum_experts, "minimum_trajectories": minimum_trajectories}
        said: dict[str, Any] = {
            name: number for name, number in given.items() if number is not None
        }
        for name, number in said.items():
            before = getattr(self.declared, name)
            if before is not None and number > before:
                raise QuorumError(
                    f"{name} is {number}, but the demonstrations declare only {before}: give at "
                    "most so many."
                )
        made = replace(self, declared=replace(self.declared, **said)) if said else self
        made.check_usable(made.declared.minimum_experts)
        return made

    def check_usable(self, least: int | None, trajectories: int = 1) -> None:
        """Refuse if fewer than `least` experts have so many trajectories; others are left out.

        Guarantee: `least` is declared, and the guarantee is one for sets with at least so many
        experts who are not left out. All of those pass, so a refusal tells nothing about them.

        Raises:
            QuorumError: before anything is charged, so it costs nothing.
        """
        usable = int((np.diff(self.expert_episode_offsets) >= trajectories).sum())
        if least is None or usable >= least:
            return
        if trajectories == 1:
            raise QuorumError(
                f"the demonstrations are of fewer experts than the {least} that are declared, so "
                "nothing would be guaranteed: declare fewer."
            )
        raise QuorumError(
            f"fewer than {least} experts have the {trajectories} trajectories that a release "
            "reserves and leaves to training, and the others are left out, so nothing would be "
            "guaranteed: declare fewer experts (minimum_experts) or fewer trajectories "
            "(minimum_trajectories); nothing was charged."
        )

    def said_of_removal(self, least: int | None, trajectories: int = 1) -> str | None:
        """What to tell the owner of the log where no more than the declared `least` experts take
        part: those with so many trajectories.

        SENSITIVE: the number of experts is private, so this stands in no file.
        """
        usable = int((np.diff(self.expert_episode_offsets) >= trajectories).sum())
        if least is None or usable > least:
            return None
        return (
            f"the log has no more than the {least} experts that are declared, so the guarantee "
            "covers one expert more and nobody's removal: declare fewer. Keep this line to yourself"
        )

    def compacted(self) -> "Demonstrations":
        """The same episodes, one after the other, in columns that hold nothing else.

        Copies unless the columns are in that order already.
        """
        first_step = self.transition_offsets[:-1]
        first_state = first_step + np.arange(len(self))
        observations, actions, rewards = self.columns
        steps = int(self.transition_offsets[-1])
        in_order = (
            len(actions) == steps
            and np.array_equal(first_step, self.episodes.first_step)
            and np.array_equal(first_state, self.episodes.first_state)
        )
        if in_order and len(observations) == steps + len(self):
            return self
        length = self.episodes.length
        step = np.repeat(self.episodes.first_step - first_step, length) + np.arange(steps)
        shift = np.repeat(self.episodes.first_state - first_state, length + 1)
        state = shift + np.arange(steps + len(self))
        return replace(
            self,
            columns=Columns(observations[state], actions[step], rewards[step]),
            episodes=self.episodes._replace(first_state=first_state, first_step=first_step),
        )


class ReleaseSplit(NamedTuple):
    """The episodes that stage 1 may release from, and those of stage 2, which never sees these.

    Both have the same experts if `per_expert` and `training_minimum` were at least 1; a part that
    was allowed to have 0 episodes of an expert may lack it. An expert keeps its identity in both:
    in collected logs that is its index in the expert set, however many experts were left out.
    """

    pool: Demonstrations
    training: Demonstrations


def split_release_pool(
    demonstrations: Demonstrations, *, per_expert: int, training_minimum: int = 1
) -> ReleaseSplit:
    """Give the first `per_expert` episodes of every expert to the pool, the rest to training.

    The two stages compose only if they use different trajectories (gap G2 of the privacy analysis).
    Which is which must not depend on what is in them: position alone decides.

    An expert with fewer than `per_expert` + `training_minimum` episodes is left out of both, before
    anything is counted or drawn. Both parts are views: nothing is copied.

    Guarantee: whether an expert is kept, and where each of its episodes goes, depends on that
    expert's own number of episodes and on the two declared numbers, on nobody else and on no value.

    Raises:
        QuorumError: if a number is negative. Never because of how many experts remain: see
            `check_usable`.
    """
    require("per_expert", per_expert, at_least(0))
    require("training_minimum", training_minimum, at_least(0))
    offsets = demonstrations.expert_episode_offsets
    counts = np.diff(offsets)
    position = np.arange(len(demonstrations)) - np.repeat(offsets[:-1], counts)
    kept = np.repeat(counts >= per_expert + training_minimum, counts)
    return ReleaseSplit(
        pool=demonstrations.select(kept & (position < per_expert)),
        training=demonstrations.select(kept & (position >= per_expert)),
    )


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same data behind a view that cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view


def _check_shape(declared: Declared, columns: Columns) -> None:
    observations, actions, rewards = columns
    if observations.ndim != 2 or observations.shape[1] != declared.observation_size:
        raise QuorumError(
            f"observations have shape {observations.shape}, but {declared.observation_size} "
            "numbers per observation were declared: correct observation_size or the observations."
        )
    wide = (declared.action_count,) if declared.continuous else ()
    if rewards.ndim != 1 or actions.shape != (*rewards.shape, *wide):
        raise QuorumError(
            f"actions have shape {actions.shape} and rewards {rewards.shape}: "
            "give one action and one reward per step."
        )


def _check_episodes(declared: Declared, columns: Columns, episodes: Episodes) -> None:
    count = len(episodes.expert)
    if any(array.shape != (count,) for array in episodes):
        raise QuorumError("the columns that describe episodes differ in length: give one per each.")
    if count == 0:
        return
    if (np.diff(episodes.expert) < 0).any():
        raise QuorumError("episodes are not sorted by expert: sort them, keeping each one's order.")
    length = episodes.length
    if (bad := first_true(length < 1)) is not None:
        raise QuorumError(f"episode {bad} has no step: leave it out.")
    if (bad := first_true(length > declared.horizon)) is not None:
        raise QuorumError(
            f"episode {bad} has {length[bad]} steps, more than the declared horizon of "
            f"{declared.horizon}: declare the time limit under which the experts acted."
        )
    if (bad := first_true(~(episodes.terminated | episodes.truncated))) is not None:
        raise QuorumError(
            f"episode {bad} ends neither terminated nor truncated: leave out logs cut short."
        )
    within = (episodes.first_step >= 0) & (episodes.first_state >= 0)
    within &= episodes.first_step + length <= len(columns.actions)
    within &= episodes.first_state + length < len(columns.observations)
    if (bad := first_true(~within)) is not None:
        raise QuorumError(
            f"episode {bad} reaches beyond the data: an episode of n steps has n actions, "
            "n rewards and n + 1 observations."
        )


def first_true(bad: Flags) -> int | None:
    """The index of the first True, if there is one."""
    found = np.flatnonzero(bad)
    return int(found[0]) if len(found) else None
