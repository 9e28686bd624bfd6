"""When to evaluate during training, and what the evaluations amount to."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from quorum_rl.errors import QuorumError, at_least, require
from quorum_rl.evaluation.summary import Scores


@dataclass(frozen=True)
class Protocol:
    """Evaluate `evaluations` times, evenly spaced over the `last_steps` of training; average.

    A training shorter than twice that is evaluated over its last half.
    """

    evaluations: int
    last_steps: int

    def __post_init__(self) -> None:
        require("evaluations", self.evaluations, at_least(1))
        require("last_steps", self.last_steps, at_least(1))

    def steps(self, training_steps: int) -> tuple[int, ...]:
        """After which gradient steps, counted from one, to evaluate: always after the last.

        Fewer than `evaluations` if there are not so many steps to evaluate after.

        Raises:
            QuorumError: if there are no training steps.
        """
        require("training_steps", training_steps, at_least(1))
        window = min(self.last_steps, (training_steps + 1) // 2)
        count = min(self.evaluations, window)
        return tuple(training_steps - left * window // count for left in reversed(range(count)))

    def average(self, scores: Sequence[Scores]) -> Scores:
        """The mean score of each run over its evaluations, one item of `scores` for each.

        Shapes: `(evaluations, …) -> (…)`.

        Raises:
            QuorumError: if there are none, or more than the protocol has.
        """
        if not 1 <= len(scores) <= self.evaluations:
            raise QuorumError(
                f"there are {len(scores)} evaluations to average, and the protocol has "
                f"{self.evaluations}: evaluate after the steps that the protocol names."
            )
        averaged: Scores = np.mean(np.asarray(scores, np.float64), axis=0)
        return averaged


PROTOCOLS = {
    # "the average episodic return obtained over 10 evaluation runs spaced over the last 10000
    # steps of training"; the paper does not say where the first lies, here 1000 steps in.
    "paper": Protocol(evaluations=10, last_steps=10_000),
    "final": Protocol(evaluations=1, last_steps=1),
}
