"""A set of experts: who is protected, and what may be asked of them.

Three types say where in the flow a set stands:

- `ExpertSet`: whatever can be queried. The stages after collecting ask for no more than this.
- `UnloggedExperts`: policies that have not acted yet. They may still be smoothed to a floor.
- `LoggedExperts`: policies that generated logs. They can be queried and nothing else. Smoothing
  them now would query policies that did not act, and the guarantee of the release would be void.
"""

import hashlib
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from quorum_rl.dictionary import Bounds
from quorum_rl.errors import QuorumError, at_least, require
from quorum_rl.experts.checks import (
    Probabilities,
    checked_floor,
    checked_observations,
    distributions_or_nan,
    no_floor,
)

EXPERTS_PER_CHUNK: Final = 256
NO_ACTION: Final = -1  # the likeliest of an answer that is none

OwnPolicies: TypeAlias = Callable[[npt.NDArray[np.float32]], Probabilities]
"""What some experts do, each in states of its own.

Of continuous actions: the mean of each number, then the logarithm of its standard deviation.

Shapes: `(experts, rows, observation_size)` to `(experts, rows, action_count)`; of continuous
actions to `(experts, rows, 2 · action_count)`.
"""


OwnLikeliest: TypeAlias = Callable[[Any], Any]
"""The likeliest actions of some experts, each in states of its own, all on the devices.

NO_ACTION where an answer is no distribution. Experts are followed by as many others as make their
number a multiple of that of the devices.

Shapes: `(experts, rows, observation_size)` to `(experts, rows)`.
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

        The very numbers of `probabilities_of`, often much faster to get. NaN where an expert gives
        no valid answer: this is what a release asks, and nobody's answer may stop it.

        Shapes: `(rows, observation_size)` and `(rows,)` to `(experts in the slice, rows)`.
        """
        ...


class _Queries:
    """Queries of all experts, made of queries of some of them."""

    def probabilities(self: ExpertSet, observations: npt.ArrayLike) -> Probabilities:
        states = checked_observations(observations, self.observation_size)
        gathered = np.empty((len(self), len(states), self.action_count))
        for chunk, found in self.probabilities_in_chunks(states):
            gathered[chunk] = found
        return gathered

    def probabilities_in_chunks(
        self: ExpertSet, observations: npt.ArrayLike, experts_per_chunk: int = EXPERTS_PER_CHUNK
    ) -> Iterator[tuple[slice, Probabilities]]:
        require("experts_per_chunk", experts_per_chunk, at_least(1))
        firsts = range(0, len(self), experts_per_chunk)
        chunks = (slice(first, min(first + experts_per_chunk, len(self))) for first in firsts)
        return ((chunk, self.probabilities_of(chunk, observations)) for chunk in chunks)


@dataclass(frozen=True, kw_only=True, eq=False)
class UnloggedExperts(_Queries, ABC):
    """Experts that have not acted yet: the base of every set that a user makes.

    A subclass gives `__len__` and `probabilities_of`, and passes what its policies answer through
    `checked_probabilities`. With `action_bounds` actions are continuous, of `action_count` numbers:
    they have densities, so a subclass gives `among` instead. `identity` is random; logs keep that
    of the experts who made them, and a saved population keeps its own. It is empty where nobody
    knows it.

    Raises:
        QuorumError: if there are fewer than two actions, or the declared floor is out of range.
    """

    observation_size: int
    action_count: int
    p_min: float = 0.0  # 0.0: nothing is promised
    action_bounds: Bounds = ()
    identity: str = field(default_factory=partial(secrets.token_hex, 16), repr=False)

    def __post_init__(self) -> None:
        require("observation_size", self.observation_size, at_least(1))
        require("action_count", self.action_count, at_least(1 if self.action_bounds else 2))
        if self.p_min != 0:
            if self.action_bounds:
                raise no_floor()
            checked_floor(self.p_min, self.action_count)

    def _check_finite(self) -> None:
        """Fail where actions are continuous."""
        if self.action_bounds:
            raise QuorumError(
                "these experts' actions are continuous: they have densities, and what counts the "
                "probabilities of actions (a release, an agreement) needs a finite list of them."
            )

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def probabilities_of(self, experts: slice, observations: npt.ArrayLike) -> Probabilities:
        """What some of the experts do, evaluated at once; see `ExpertSet`."""

    def contents(self) -> Iterator[Any]:
        """What decides their answers; nothing where nobody can tell, as of functions."""
        return iter(())

    def taken_probabilities(
        self, experts: slice, observations: npt.ArrayLike, actions: npt.ArrayLike
    ) -> npt.NDArray[np.float64]:
        found = self._answers_or_nan(experts, observations)
        made: npt.NDArray[np.float64] = found[:, np.arange(found.shape[1]), np.asarray(actions)]
        return made

    def _answers_or_nan(self, experts: slice, observations: npt.ArrayLike) -> Probabilities:
        """As `probabilities_of`, with NaN where an answer is no distribution or goes below p_min.

        Where a query fails, its halves are asked, down to one expert in one state: an answer must
        not depend on what else is asked, so everybody else answers as before.
        """
        states = checked_observations(observations, self.observation_size)
        numbers = range(len(self))[experts]
        shape = len(numbers), len(states), self.action_count
        try:
            found = np.asarray(self.probabilities_of(experts, states), np.float64)
            if found.shape == shape:
                return distributions_or_nan(found, self.p_min)
        except KeyboardInterrupt:  # ours
            raise
        except BaseException:  # somebody else's code, which may do anything
            pass
        if len(numbers) > 1:
            middle = len(numbers) // 2
            parts = [_as_slice(part) for part in (numbers[:middle], numbers[middle:])]
            return np.concatenate([self._answers_or_nan(part, states) for part in parts])
        if len(states) > 1:
            rows = np.array_split(states, 2)
            return np.concatenate([self._answers_or_nan(experts, part) for part in rows], axis=1)
        return np.full(shape, np.nan)

    def greedy_actions(
        self, experts: slice, observations: npt.ArrayLike
    ) -> npt.NDArray[np.integer[Any]]:
        """The likeliest action of some of the experts in each state; of equals, the first.

        NO_ACTION where an expert gives no valid answer.

        Shapes: `(rows, observation_size)` to `(experts in the slice, rows)`.
        """
        found = self._answers_or_nan(experts, observations)
        return np.where(np.isnan(found[..., 0]), NO_ACTION, found.argmax(axis=-1))

    def among(self, experts: slice) -> OwnPolicies:
        """What some of the experts do, each in states of its own: the very numbers of a query.

        For those who ask again and again.
        """
        numbers = range(len(self))[experts]
        return lambda observations: np.concatenate(
            [
                self.probabilities_of(slice(number, number + 1), own)
                for number, own in zip(numbers, observations, strict=True)
            ]
        )

    def likeliest_among(self, experts: slice) -> OwnLikeliest | None:
        """As `among`, their likeliest actions, where policies and states are on the devices."""
        del experts  # nobody's policies are there, as far as this class knows
        return None

    def smoothed(self, p_min: float) -> "UnloggedExperts":
        """Experts that nearly always take their likeliest action (of equals, the first).

        It has probability 1 − (|A|−1)·p_min, every other p_min, as in the paper.

        Raises:
            QuorumError: if `p_min` is outside (0, 1/|A|], or the experts are smoothed already.
        """
        from quorum_rl.experts.smoothing import smoothed_by  # it builds on this class

        return smoothed_by("greedy", self, p_min)

    def mixed_with_uniform(self, p_min: float) -> "UnloggedExperts":
        """Experts that keep their own randomness: (1 − |A|·p_min)·π + p_min; as `smoothed`."""
        from quorum_rl.experts.smoothing import smoothed_by  # it builds on this class

        return smoothed_by("uniform mixture", self, p_min)


def _as_slice(numbers: range) -> slice:
    return slice(numbers.start, numbers.stop if numbers.stop >= 0 else None, numbers.step)


@dataclass(frozen=True, eq=False)
class LoggedExperts(_Queries):
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

    def digest(self) -> str:
        """A hash of what decides what they answer, as far as that is known. SENSITIVE."""
        digest = hashlib.sha256()
        for part in self.generated_by.contents():
            digest.update(part)
        return digest.hexdigest()

    def __len__(self) -> int:
        return len(self.generated_by)

    def probabilities_of(self, experts: slice, observations: npt.ArrayLike) -> Probabilities:
        return self.generated_by.probabilities_of(experts, observations)

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
