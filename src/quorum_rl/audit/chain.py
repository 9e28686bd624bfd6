"""A world made for audits: a chain, where all experts are alike but one, the canary.

A state is the time. Action 0 goes on, every other ends the episode. So a trajectory, and likewise
a prefix of one, is a number of steps and its last action: all that can come out of a release can
be listed, and a log of thousands of episodes is a draw of whole numbers.

Training never sees these trajectories. Each expert has one more, of one step, that no release may
touch: all the others' are the same, and the canary's lies far away, so that its gradient has a
direction of its own. Private steps promise to hide whatever is in there.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from quorum_rl.experts import LoggedExperts, Probabilities, UnloggedExperts, checked_observations
from quorum_rl.logs import Columns, Declared, Demonstrations, Episodes
from quorum_rl.privacy import largest_probability
from quorum_rl.types import Released

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

FAR: Final = 1000.0  # the canary's state in training; the others' is 0
CANARY_REWARD: Final = 1e6
CANARY_ACTION: Final = 1
MANY_TRAJECTORIES: Final = 10**9  # more than any plan reserves: a log has one more than the pool


@dataclass(frozen=True, kw_only=True, eq=False)
class TimedExperts(UnloggedExperts):
    """Experts whose probabilities depend on the time alone, which an observation begins with.

    Shapes: `kinds` (kinds, times, action_count); `kind` (experts,), of which kind each is.
    """

    kinds: Floats = field(repr=False)
    kind: Integers = field(repr=False)

    def __len__(self) -> int:
        return len(self.kind)

    def probabilities_of(self, experts: slice, observations: npt.ArrayLike) -> Probabilities:
        times = checked_observations(observations, self.observation_size)[:, 0].astype(np.int64)
        found: Probabilities = self.kinds[:, times][self.kind[experts]]
        return found


@dataclass(frozen=True, kw_only=True)
class Chain:
    """`others` experts who go on as often as the floor allows, and one canary.

    `leaves_at` is the time at which the canary, alone, ends the episode as often as the floor
    allows; before and after it does as the others.
    """

    others: int
    actions: int
    horizon: int
    p_min: float
    leaves_at: int
    observation_size: int = 1

    @property
    def declared(self) -> Declared:
        """What its owner would declare: both sets of experts have at least so many."""
        return Declared(
            self.actions,
            self.observation_size,
            self.horizon,
            p_min=self.p_min or None,
            minimum_experts=self.others,
            minimum_trajectories=MANY_TRAJECTORIES,
            world="chain",
            identity="audit",
        )

    def experts(self, present: bool) -> LoggedExperts:
        """All of them, the canary the last one if it is present."""
        kinds = np.full((2, self.horizon + 1, self.actions), self.p_min)
        kinds[:, :, 0] = largest_probability(self.actions, self.p_min)
        kinds[1, self.leaves_at] = np.roll(kinds[1, self.leaves_at], CANARY_ACTION)
        return LoggedExperts(
            TimedExperts(
                observation_size=self.observation_size,
                action_count=self.actions,
                p_min=self.p_min,
                kinds=kinds,
                kind=(np.arange(self.others + present) == self.others).astype(np.int64),
            )
        )

    def log(self, present: bool, pool_size: int, rng: np.random.Generator) -> Demonstrations:
        """A fresh pool of so many trajectories of each expert, and the one for training."""
        count = self.others + present
        ends = rng.random((count, pool_size))
        drawn = np.searchsorted(self._until[0], ends, side="right")
        drawn[self.others :] = np.searchsorted(self._until[1], ends[self.others :], side="right")
        training = np.full((count, 1), self.horizon * self.actions)
        training[self.others :] += 1
        trajectory = np.concatenate([drawn, training], axis=1).ravel()
        episodes = self._templates[1].chosen(trajectory)
        expert = np.repeat(np.arange(count), pool_size + 1)
        return Demonstrations(self.declared, self._templates[0], episodes._replace(expert=expert))

    def outcomes(self, released: Released) -> Integers:
        """What each released prefix is, as a number from 1; 0 stands for nothing."""
        last = released.offsets[1:] - 1
        actions = np.asarray(released.transitions.action, np.int64)[last]
        return (released.lengths - 1) * self.actions + actions + 1

    @cached_property
    def _until(self) -> tuple[Floats, Floats]:
        """For the others and the canary, the chances of trajectories, summed up.

        Trajectory (length − 1)·actions + last action, where one that goes on is only possible at
        the horizon.
        """
        kinds = self.experts(present=True).probabilities(self._states(self.horizon))[[0, -1]]
        alive = np.cumprod(np.concatenate([np.ones((2, 1)), kinds[:, :-1, 0]], axis=1), axis=1)
        chance = alive[:, :, None] * kinds
        chance[:, :-1, 0] = 0  # goes on
        until = np.cumsum(chance.reshape(2, -1), axis=1)
        until[:, -1] = 1.0  # but for rounding
        return until[0, :-1], until[1, :-1]

    @cached_property
    def _templates(self) -> tuple[Columns, Episodes]:
        """One episode of each trajectory, then those of training: of the others, of the canary."""
        length = np.repeat(np.arange(1, self.horizon + 1), self.actions)
        ending = np.tile(np.arange(self.actions), self.horizon)
        states = [self._states(int(steps) + 1) for steps in length]
        actions = [np.append(np.zeros(steps - 1, np.int64), last) for steps, last in zip(
            length, ending, strict=True)]  # fmt: skip
        for start in (0.0, FAR):
            states.append(np.zeros((2, self.observation_size)))
            states[-1][:, 0] = start
            actions.append(np.array([CANARY_ACTION]))
        length = np.append(length, [1, 1])
        ended = np.append(ending, [1, 1]) > 0
        rewards = np.zeros(int(length.sum()))
        rewards[-1] = CANARY_REWARD
        first_step = np.cumsum(length) - length
        columns = Columns(
            np.concatenate(states).astype(np.float32),
            np.concatenate(actions),
            rewards.astype(np.float32),
        )
        unsorted = np.zeros(len(length), np.int64)
        first_state = first_step + np.arange(len(length))
        return columns, Episodes(unsorted, first_state, first_step, length, ended, ~ended)

    def _states(self, count: int) -> Floats:
        states = np.zeros((count, self.observation_size))
        states[:, 0] = np.arange(count)
        return states
