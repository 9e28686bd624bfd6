"""The trials of a sweep: what each would do and cost, and which of them are one program."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from quorum_rl.errors import QuorumError
from quorum_rl.learners import DenseLearner
from quorum_rl.logs import Declared
from quorum_rl.pipeline import (
    Cost,
    FitPlan,
    FitSettings,
    Named,
    acts_by_data,
    asked_learner,
    plan_fit,
    private_step,
    togetherness,
)
from quorum_rl.policy import learner_name
from quorum_rl.sweep.space import Choices, named_settings

# What a training does and not what it costs: plans that differ in nothing else share a calibration.
FREE: Final = (
    "clip_norm",
    "normalised",
    "learning_rate",
    "private_learning_rate",
    "falling_rates",
    "batch_size",
    "optimiser",
    "averaging",
    "transitions_per_expert",
    "local_rate",
)


@dataclass(frozen=True)
class Common:
    """What all trials share but for their choices. `epsilon` is the cost of a trial by itself."""

    epsilon: float
    delta: float
    settings: FitSettings = field(default_factory=FitSettings)
    learner: Named = "auto"
    hidden_sizes: tuple[int, ...] | None = None
    reward_scale: float | None = None
    observation_centre: tuple[float, ...] | None = None
    observation_scale: tuple[float, ...] | None = None
    can_query: bool = True
    whole_epsilon: float | None = None  # about what all trials cost together, where they do

    def learner_of(
        self, choices: Choices, declared: Declared, settings: FitSettings, cost: Cost
    ) -> DenseLearner:
        given = {
            "hidden_sizes": self.hidden_sizes,
            "reward_scale": choices.get("reward_scale", self.reward_scale),
            "observation_centre": self.observation_centre,
            "observation_scale": self.observation_scale,
        }
        asked = {name: value for name, value in given.items() if value is not None}
        # A file's choices name learners of ours only; the user's own comes from the user.
        name = str(choices["learner"]) if "learner" in choices else self.learner
        learner = asked_learner(declared, settings, cost, name, asked)
        if acts_by_data(learner):
            return learner
        raise QuorumError(
            f"{learner_name(learner)} acts by code, and a sweep is for learners of dense networks "
            "that say how they decide: fit it by itself."
        )

    def usual_learner(self, declared: Declared) -> DenseLearner:
        """The learner of a trial that chooses nothing."""
        return self.learner_of({}, declared, self.settings, (self.epsilon, self.delta))

    def plan(self, choices: Choices, declared: Declared) -> FitPlan:
        """What a trial would do and spend.

        Raises:
            QuorumError: if it cannot be planned.
        """
        settings = replace(self.settings, **named_settings(choices))
        usual = FitSettings(method=settings.method)
        calibrated = replace(settings, **{name: getattr(usual, name) for name in FREE})
        cost = float(choices.get("epsilon", self.epsilon)), self.delta
        learner = self.learner_of(choices, declared, settings, cost)
        learner.check_observation_size(declared.observation_size)
        made = self._calibrated(declared, learner, cost, calibrated)
        private, filled = made.private, settings.filled()
        if private is not None:
            private = private_step(filled, declared, private.noise_multiplier)
        return replace(made, settings=filled, private=private)

    def _calibrated(
        self, declared: Declared, learner: DenseLearner, cost: Cost, settings: FitSettings
    ) -> FitPlan:
        """A plan, or why there is none, from a cache: both take seconds to find."""
        key = repr((declared, learner, cost, self.whole_epsilon, settings, self.can_query))
        if key not in _CALIBRATED:
            try:
                _CALIBRATED[key] = plan_fit(
                    declared,
                    learner,
                    epsilon=cost[0],
                    delta=cost[1],
                    settings=settings,
                    can_query=self.can_query,
                    whole_epsilon=self.whole_epsilon,
                )
            except QuorumError as error:
                _CALIBRATED[key] = str(error)
        found = _CALIBRATED[key]
        if isinstance(found, str):
            raise QuorumError(found)
        return found


_CALIBRATED: Final[dict[str, FitPlan | str]] = {}


@dataclass(frozen=True)
class Trial:
    """One thing to try. Without a plan it is infeasible, and `reason` says why."""

    number: int
    choices: Choices
    plan: FitPlan | None
    reason: str = ""

    @property
    def feasible(self) -> FitPlan:
        """The plan, of a trial that has one."""
        assert self.plan is not None
        return self.plan


def planned(every: Sequence[Choices], common: Common, declared: Declared) -> list[Trial]:
    """All trials in order, those that cannot be planned included."""
    trials = []
    for number, choices in enumerate(every):
        try:
            trials.append(Trial(number, choices, common.plan(choices, declared)))
        except QuorumError as error:
            trials.append(Trial(number, choices, None, str(error)))
    return trials


@dataclass(frozen=True)
class Program:
    """Trials of one static shape, which are trained together."""

    number: int
    trials: tuple[Trial, ...]


def programs_of(trials: Sequence[Trial], together: int) -> list[Program]:
    """All feasible trials, those of one shape in one program of at most `together`."""
    shapes: dict[Hashable, list[Trial]] = {}
    for trial in trials:
        if trial.plan is not None:
            shape = trial.plan.learner, togetherness(trial.plan)
            shapes.setdefault(shape, []).append(trial)
    parts = [part for some in shapes.values() for part in _evenly(some, together)]
    return [Program(number, part) for number, part in enumerate(parts)]


def _evenly(trials: Sequence[Trial], most: int) -> list[tuple[Trial, ...]]:
    """As few parts as possible, of equal size where that can be: one size is compiled once."""
    size = math.ceil(len(trials) / math.ceil(len(trials) / most))
    return [tuple(trials[first : first + size]) for first in range(0, len(trials), size)]
