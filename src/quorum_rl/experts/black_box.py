"""Experts given as Python functions, whatever is inside them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from quorum_rl.errors import QuorumError
from quorum_rl.experts.checks import (
    Observations,
    Probabilities,
    checked_observations,
    checked_probabilities,
)
from quorum_rl.experts.expert_set import UnloggedExperts

Policy = Callable[[Observations], npt.ArrayLike]


@dataclass(frozen=True, eq=False)
class CallableExperts(UnloggedExperts):
    """One Python function per expert: observations in, probabilities (not logits) out.

    A function must be deterministic and must not remember earlier calls. With `row_by_row`, the
    default, it is called with one state at a time, so that an answer cannot depend on the batch.
    Without, it is called once with all rows: faster, but then that independence is the
    function's own property (see `check_batch_independence`).

    Shapes: a policy maps `(rows, observation_size)`, float32, to `(rows, action_count)`.

    Raises:
        QuorumError: without policies; on a query, for answers that are not distributions, naming
            the expert's index.
    """

    policies: Sequence[Policy] = field(repr=False)
    row_by_row: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.policies:
            raise QuorumError("there are no policies: give at least one callable.")

    def __len__(self) -> int:
        return len(self.policies)

    def probabilities_of(self, experts: slice, observations: npt.ArrayLike) -> Probabilities:
        states = checked_observations(observations, self.observation_size)
        indices = range(len(self))[experts]
        answers = np.empty((len(indices), len(states), self.action_count))
        for position, index in enumerate(indices):
            answers[position] = self._answer(index, states)
        return checked_probabilities(
            answers,
            indices,
            rows=len(states),
            action_count=self.action_count,
        )

    def _answer(self, index: int, states: Observations) -> npt.NDArray[np.float64]:
        policy = self.policies[index]
        if not self.row_by_row:
            return self._checked_shape(index, policy(states), len(states))
        answers = np.empty((len(states), self.action_count))
        for row in range(len(states)):
            answers[row] = self._checked_shape(index, policy(states[row : row + 1]), 1)
        return answers

    def _checked_shape(
        self, index: int, answer: npt.ArrayLike, rows: int
    ) -> npt.NDArray[np.float64]:
        made = np.asarray(answer, dtype=np.float64)
        if made.shape != (rows, self.action_count):
            raise QuorumError(
                f"expert {index} answered {rows} state(s) with shape {made.shape}: it must return "
                f"probabilities of shape {(rows, self.action_count)}."
            )
        return made
