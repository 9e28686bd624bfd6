"""A set of experts: who is protected, and what may be asked of them.

Three types say where in the flow a set stands:

- `ExpertSet`: whatever can be queried. The stages after collecting ask for no more than this.
- `UnloggedExperts`: policies that have not acted yet. They may still be smoothed to a floor.
- `LoggedExperts`: policies that generated logs. They can be queried and nothing else. Smoothing
  them now would query policies that did not act, and the guarantee of the release would be void.
"""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from quorum_rl.errors import QuorumError
from quorum_rl.experts.checks import Probabilities, checked_floor, checked_observations

EXPERTS_PER_CHUNK: Final = 256

OwnPolicies: TypeAlias = Callable[[npt.NDArray[np.float32]], Probabilities]
"""What some experts do, each in states of its own.

Shapes: `(experts, rows, observation_size)` to `(experts, rows, action_count)`.
"""


@runtime_checkable
class ExpertSet(Protocol):
    """Experts that can be asked how likely each of their actions is.

    π_i(a|s) is one number: it must not depend on which other states or experts are asked at the
    same time (`check_batch_independence` looks for offenders).

    SENSITIVE: what the guarantee protects is whether any one of them is in the set. So is their
    number, and every answer.

    A set is made from whatever the policies are: `experts.CallableExperts` (Python functions),
    `experts.OnnxExperts.from_folder` (ONNX files), `experts.load_population` (what 'quorum experts
    train' wrote); `fit` takes each of them.
    """

    @property
    def observation_size(self) -> int: ...

    @property
    def action_count(self) -> int: ...

    @property
    def p_min(self) -> float:
        """The declared floor: a promise that no probability, in any state, is below it."""
        ...

    def __len__(self) -> int: ...

    def probabilities_of(self, experts: slice, observations: npt.ArrayLike) -> Probabilities:
        """What some of the experts do, evaluated at once; the other queries are made of this.

        Shapes: `(rows, observation_size)` to `(experts in the slice, rows, action_count)`.
        """
        ...

    def probabilities(self, observations: npt.ArrayLike) -> Probabilities:
        """What every expert does.

        Shapes: `(rows, observation_size)` to `(len(self), rows, action_count)`.
        """
        ...

    def probabilities_in_chunks(
        self, observations: npt.ArrayLike, experts_per_chunk: int = EXPERTS_PER_CHUNK
    ) -> Iterator[tuple[slice, Probabilities]]:
        """What every expert does, a few experts at a time: each slice with its probabilities."""
        ...

    def taken_probabilities(
        self, experts: slice, observations: npt.ArrayLike, actions: npt.ArrayLike
    ) -> npt.NDArray[np.float64]:
        """How likely some of the experts are to take the one action given for each state.

        The very numbers of `probabilities_of`, often much faster to get.

        Shapes: `(rows, observation_size)` and `(rows,)` to `(experts in the slice, rows)`.
        """
        ...


def chunked_probabilities(
    experts: ExpertSet, observations: npt.ArrayLike, experts_per_chunk: int = EXPERTS_PER_CHUNK
) -> Iterator[tuple[slice, Probabilities]]:
    """Each slice of at most `experts_per_chunk` experts, with its probabilities.

    Shapes: each array is `(experts in the slice, rows, action_count)`.

    Raises:
        QuorumError: if `experts_per_chunk` is below 1.
    """
    if experts_per_chunk < 1:
        raise QuorumError(f"experts_per_chunk is {experts_per_chunk}: give at least 1.")
    return _chunks(experts, observations, experts_per_chunk)


def _chunks(
    experts: ExpertSet, observations: npt.ArrayLike, experts_per_chunk: int
) -> Iterator[tuple[slice, Probabilities]]:
    for start in range(0, len(experts), experts_per_chunk):
        chunk = slice(start, min(start + experts_per_chunk, len(experts)))
        yield chunk, experts.probabilities_of(chunk, observations)


def all_probabilities(experts: ExpertSet, observations: npt.ArrayLike) -> Probabilities:
    """What every expert does, gathered from chunks.

    Shapes: `(rows, observation_size)` to `(len(experts), rows, action_count)`.
    """
    states = checked_observations(observations, experts.observation_size)
    gathered = np.empty((len(experts), len(states), experts.action_count))
    for chunk, found in chunked_probabilities(experts, states):
        gathered[chunk] = found
    return gathered


@dataclass(frozen=True, kw_only=True, eq=False)
class UnloggedExperts(ABC):
    """Experts that have not acted yet: the base of every set that a user makes.

    A subclass gives `__len__` and `probabilities_of`, and passes what its policies answer through
    `checked_probabilities`. `identity` is random; logs keep that of the experts who made them, and
    a saved population keeps its own. It is empty where nobody knows it.

    Raises:
        QuorumError: if there are fewer than two actions, or the declared floor is out of range.
    """

    observation_size: int
    action_count: int
    p_min: float = 0.0  # 0.0: nothing is promised
    identity: str = field(default_factory=partial(secrets.token_hex, 16), repr=False)

    def __post_init__(self) -> None:
        if self.observation_size < 1:
            raise QuorumError(f"observation_size is {self.observation_size}: give at least 1.")
        if self.action_count < 2:
            raise QuorumError(f"action_count is {self.action_count}: give at least 2.")
        if self.p_min != 0:
            checked_floor(self.p_min, self.action_count)

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def probabilities_of(self, experts: slice, observations: npt.ArrayLike) -> Probabilities:
        """What some of the experts do, evaluated at once; see `ExpertSet`."""

    def probabilities(self, observations: npt.ArrayLike) -> Probabilities:
        return all_probabilities(self, observations)

    def probabilities_in_chunks(
        self, observations: npt.ArrayLike, experts_per_chunk: int = EXPERTS_PER_CHUNK
    ) -> Iterator[tuple[slice, Probabilities]]:
        return chunked_probabilities(self, observations, experts_per_chunk)

    def taken_probabilities(
        self, experts: slice, observations: npt.ArrayLike, actions: npt.ArrayLike
    ) -> npt.NDArray[np.float64]:
        found = self.probabilities_of(experts, observations)
        made: npt.NDArray[np.float64] = found[:, np.arange(found.shape[1]), np.asarray(actions)]
        return made

    def greedy_actions(
        self, experts: slice, observations: npt.ArrayLike
    ) -> npt.NDArray[np.integer[Any]]:
        """The likeliest action of some of the experts in each state; of equals, the first.

        Shapes: `(rows, observation_size)` to `(experts in the slice, rows)`.
        """
        found = self.probabilities_of(experts, observations)
        made: npt.NDArray[np.integer[Any]] = found.argmax(axis=-1)
        return made

    def own_probabilities(self, observations: npt.NDArray[np.float32]) -> Probabilities:
        """What each expert does in states of its own: the very numbers that a query returns.

        Shapes: `(len(self), rows, observation_size)` to `(len(self), rows, action_count)`.
        """
        return self.among(slice(None))(observations)

    def among(self, experts: slice) -> OwnPolicies:
        """Some of the experts, for those who ask them again and again: `own_probabilities`."""
        numbers = range(len(self))[experts]
        return lambda observations: np.concatenate(
            [
                self.probabilities_of(slice(number, number + 1), own)
                for number, own in zip(numbers, observations, strict=True)
            ]
        )

    def smoothed(self, p_min: float) -> "UnloggedExperts":
        """Near-greedy versions of these experts; see `smoothing.smoothed`."""
        from quorum_rl.experts.smoothing import smoothed  # it builds on this class

        return smoothed(self, p_min)

    def mixed_with_uniform(self, p_min: float) -> "UnloggedExperts":
        """Softened versions of these experts; see `smoothing.mixed_with_uniform`."""
        from quorum_rl.experts.smoothing import mixed_with_uniform  # it builds on this class

        return mixed_with_uniform(self, p_min)


@dataclass(frozen=True, eq=False)
class LoggedExperts:
    """Experts that generated logs: they answer queries, and can no longer be changed.

    Collecting returns one. Making one by hand, for logs that already exist, is a promise that
    no code can check: that exactly these policies, smoothed or not, drew every logged action. A
    policy fitted to the logs afterwards does not qualify, however close it is.

    Raises:
        QuorumError: if `generated_by` is not a set of experts that may act.
    """

    generated_by: UnloggedExperts = field(repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.generated_by, UnloggedExperts):
            raise QuorumError(
                f"LoggedExperts was given a {type(self.generated_by).__name__}: give the "
                "UnloggedExperts that generated the logs."
            )

    @property
    def observation_size(self) -> int:
        return self.generated_by.observation_size

    @property
    def action_count(self) -> int:
        return self.generated_by.action_count

    @property
    def p_min(self) -> float:
        return self.generated_by.p_min

    @property
    def identity(self) -> str:
        return self.generated_by.identity

    def __len__(self) -> int:
        return len(self.generated_by)

    def probabilities_of(self, experts: slice, observations: npt.ArrayLike) -> Probabilities:
        return self.generated_by.probabilities_of(experts, observations)

    def probabilities(self, observations: npt.ArrayLike) -> Probabilities:
        return self.generated_by.probabilities(observations)

    def probabilities_in_chunks(
        self, observations: npt.ArrayLike, experts_per_chunk: int = EXPERTS_PER_CHUNK
    ) -> Iterator[tuple[slice, Probabilities]]:
        return self.generated_by.probabilities_in_chunks(observations, experts_per_chunk)

    def taken_probabilities(
        self, experts: slice, observations: npt.ArrayLike, actions: npt.ArrayLike
    ) -> npt.NDArray[np.float64]:
        return self.generated_by.taken_probabilities(experts, observations, actions)

    if not TYPE_CHECKING:
        # For a type checker these methods do not exist; at run time they explain why.

        def smoothed(self, p_min: float) -> NoReturn:
            del p_min
            raise too_late_to_smooth(self)

        def mixed_with_uniform(self, p_min: float) -> NoReturn:
            del p_min
            raise too_late_to_smooth(self)


def too_late_to_smooth(experts: object) -> QuorumError:
    """The error for smoothing anything but `UnloggedExperts`."""
    if isinstance(experts, LoggedExperts):
        return QuorumError(
            "these experts have generated logs already, and smoothing them now would query "
            "policies that did not act, which voids the guarantee: smooth first and collect then, "
            "or keep the logs and declare the floor that the policies really have."
        )
    return QuorumError(
        f"only UnloggedExperts can be smoothed, not a {type(experts).__name__}: smooth the set "
        "before collecting with it."
    )
