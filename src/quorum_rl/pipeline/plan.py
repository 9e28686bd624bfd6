"""What a fit will do and spend, as data: decided before any data is touched."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from quorum_rl.errors import QuorumError
from quorum_rl.judging import TELLS, JudgingPlan
from quorum_rl.learners import DenseLearner, Learner
from quorum_rl.pipeline.settings import FitSettings
from quorum_rl.policy import learner_name
from quorum_rl.privacy import Event, ReleasePlan, TrainingEvent, total_epsilon
from quorum_rl.training import (
    Contribution,
    Gradient,
    Local,
    PrivateStep,
    Recipe,
    Solve,
    UnitsPlan,
    optimiser_of,
)

# Times the largest contribution, beyond which private steps do not pay (docs/few-experts.md).
USEFUL_NOISE: Final = {"local": 1.0, "solve": 1.0, "dp-sgd": 2.2, "selective": 2.2}
RATE_OF_NOISE: Final = 16.0
PAPER_DELTA_SHARE: Final = 0.9  # of δ, for the release
MOST_SHOWN: Final = 16  # numbers of an observation

Cost: TypeAlias = tuple[float, float]
"""An ε and a δ."""

Stage: TypeAlias = Literal["release", "units", "steps", "values", "judges"]


@dataclass(frozen=True, kw_only=True)
class FitPlan:
    """Everything that a fit will spend and do.

    `private` and `release` are None where that stage does not take place; `notes` say where the
    plan departs from what was asked for, and why. With `judging`, private steps are on those alone
    who do not judge, and `units` are asked of those. With `others`, each of the `candidates` takes
    as many steps, and the judges choose one of them. `noise` is the usual size of the noise in the
    mean of all private steps of one, where an expert's largest contribution is 1.

    Guarantee: a function of declared numbers. `events` cost at most (epsilon, delta) together
    (mode `tight`).

    Raises:
        QuorumError: for a number out of its range, before anything is spent.
    """

    settings: FitSettings
    learner: Learner
    epsilon: float
    delta: float
    release: ReleasePlan | None = None
    private: PrivateStep | None = None
    private_steps: int = 0
    plain_steps: int = 0
    notes: tuple[str, ...] = ()
    noise: float = 0.0
    judging: JudgingPlan | None = None
    units: UnitsPlan | None = None
    others: tuple[Learner, ...] = ()

    def __post_init__(self) -> None:
        # Refuses what training would refuse when the release is paid for.
        _ = self.recipe, self.private_learning_rate

    @property
    def stages(self) -> dict[Stage, Event]:
        """What each look at the logs costs, in the order of the looks."""
        found: dict[Stage, Event] = {}
        if self.release is not None:
            found["release"] = self.release.event
        if self.units is not None:
            found["units"] = self.units.event
        if self.private is not None:
            found["steps"] = self.training_event
        if self.judging is not None:
            if self.judging.values is not None:
                found["values"] = self.judging.values.event
            found["judges"] = self.judging.event
        return found

    @property
    def events(self) -> tuple[Event, ...]:
        """What the ledger will be charged for."""
        return tuple(self.stages.values())

    @property
    def candidates(self) -> tuple[Learner, ...]:
        """All learners that are trained."""
        return (self.learner, *self.others)

    @property
    def training_event(self) -> TrainingEvent:
        """All private steps of all candidates, on those whom is learned from."""
        assert self.private is not None  # asked for that
        event = self.private.event(len(self.candidates) * self.private_steps)
        return event if self.judging is None else replace(event, part="training")

    @property
    def trajectories_needed(self) -> int:
        """How many trajectories an expert must have to take part: for the pool and for training."""
        if self.release is None or self.release.event.mode == "paper":
            return 1
        return self.release.event.pool_size + 1

    @property
    def mostly_noise(self) -> str | None:
        """Why the private steps would not pay, or nothing."""
        if self.private is None or self.noise <= self.most_noise:
            return None
        return (
            f"private steps would be mostly noise ({self.noise:.1f} times the largest "
            "contribution, in the mean of all)"
        )

    @property
    def most_noise(self) -> float:
        """The most noise with which private steps pay."""
        return USEFUL_NOISE["local" if self.settings.is_local else self.settings.method]

    @property
    def recipe(self) -> Recipe:
        chosen = self.settings
        return Recipe(
            learner=self.learner,
            private_shape=None if self.private is None else self.private.shape,
            batch_size=chosen.batch_size,
            optimiser=optimiser_of(chosen.optimiser or "adam"),
            shared_optimiser=chosen.mode == "paper",
            averaging=chosen.averaging or 0.0,
        )

    @property
    def private_learning_rate(self) -> float:
        """As asked for; otherwise what suits the noise, and in mode `paper` that of all steps.

        Raises:
            QuorumError: if an optimiser other than Adam was not given one.
        """
        asked = self.settings.private_learning_rate
        if asked is not None:
            return asked
        if self.private is None or self.settings.mode == "paper":
            return self.settings.learning_rate
        if self.recipe.optimiser.name != "adam":
            raise QuorumError(
                f"private_learning_rate is open, and the optimiser {self.recipe.optimiser.name!r}: "
                "give a rate, which is chosen for adam only."
            )
        return rate_for(self.private, self.private_steps)

    def rates_end(self, steps: int) -> float:
        """When the learning rates of a training of so many steps reach zero."""
        falling = self.settings.falling_rates and self.settings.mode != "paper"
        return steps if falling else math.inf

    def average_from(self, steps: int) -> float:
        """After which step of so many the average of parameters begins."""
        return steps // 2 if self.settings.averaging == 1 else 0

    def describe(self) -> str:
        """The plan in a few lines."""
        spent = total_epsilon(self.events, self.delta) if self.events else 0.0
        lines = [
            f"{self.settings.method}: epsilon = {self.epsilon:g} at delta = {self.delta:g}, of "
            f"which the stages together spend {spent:.4g}"
        ]
        if self.release is not None:
            event = self.release.event
            lines.append(
                f"release: {event.iterations} trajectories, threshold {event.threshold:.1f} of at "
                f"least {event.experts} experts, {event.pool_size} trajectories of each reserved; "
                f"about {self.release.expected_transitions:.0f} transitions expected"
            )
        lines += [learner_in_words(learner) for learner in self.candidates]
        if self.others:
            lines.append(self._choice_in_words())
        if self.units is not None:
            lines.append(self.units.describe())
        if self.private is not None:
            lines += self._private_in_words()
        if self.plain_steps:
            lines.append(f"steps without noise: {self.plain_steps}")
        if self.judging is not None:
            lines.append(self.judging.describe())
        return "\n".join([*lines, *units_in_words(*self.candidates), *self.notes])

    def _choice_in_words(self) -> str:
        count = len(self.candidates)
        said = (
            f"the judges choose one of {count}: each is trained and paid for, so its steps have "
            f"about {math.sqrt(count):.2g} times the noise of one alone"
        )
        if self.judging is not None and self.judging.left_by_noise("value") > TELLS / 2:
            return f"{said}; with so few judges noise would choose: name one learner"
        return said

    def _private_in_words(self) -> list[str]:
        step = self.private
        assert step is not None  # asked for that
        who = (
            "every expert in each"
            if step.sampling_rate == 1
            else f"each expert drawn with probability {step.sampling_rate:.4g}"
        )
        return [
            f"private steps: {self.private_steps}, {who}, {in_words(step.contribution)}, clipped "
            f"to {step.clip_norm:g}, noise multiplier {step.noise_multiplier:.4g}, learning rate "
            f"{self.private_learning_rate:.2g}",
            f"noise over signal: {self.noise:.2g} (at most {self.most_noise:g} is useful)",
        ]


def noise_of_mean(step: PrivateStep, steps: int) -> float:
    """The noise of each parameter in the mean of all steps, an expert's largest share being 1.

    More steps at the same cost leave it as it is: it is what the budget buys.
    """
    return step.noise_multiplier / (step.expected_batch * math.sqrt(steps))


def rate_for(step: PrivateStep, steps: int) -> float:
    """The learning rate for Adam that suits the noise.

    Where noise fills Adam's second moments, each parameter is shaken by rate·√steps in all, and
    carried by rate·√steps over the noise of the mean: the rate falls with the root of the steps,
    and weak signals need to be carried further. The root of the noise is what fitted CartPole and
    LunarLander over a tenfold range of it (docs/reproduction.md).
    """
    return RATE_OF_NOISE * math.sqrt(noise_of_mean(step, steps) / steps)


def published_budget(plan: FitPlan) -> Cost:
    """What mode paper claims for the training of a plan: the release's part taken off."""
    if plan.release is None:
        return plan.epsilon, plan.delta
    return (
        (1 - plan.settings.release_share) * plan.epsilon,
        (1 - PAPER_DELTA_SHARE) * plan.delta,
    )


# --- in words ---


def in_words(contribution: Contribution) -> str:
    """What an expert contributes to a private step."""
    if isinstance(contribution, Local):
        return (
            f"{contribution.steps} steps of its own on {contribution.batch_size} transitions each "
            f"at rate {contribution.rate:g}"
        )
    if isinstance(contribution, Gradient):
        return f"mean gradient of {contribution.transitions} transitions"
    if isinstance(contribution, Solve):
        return f"solve on {contribution.transitions} transitions"
    return f"{type(contribution).__name__} of {contribution.transitions} transitions"


def learner_in_words(learner: Learner) -> str:
    name = learner_name(learner)
    sizes = getattr(learner, "hidden_sizes", None)
    if sizes is None:
        return f"learner: {name}"
    layers = " and ".join(map(str, sizes))
    return f"learner: {name}, {f'hidden layers of {layers}' if sizes else 'a linear policy'}"


def _listed(numbers: Sequence[float]) -> str:
    """The numbers; of a picture's hundreds, the first ones and how many there are."""
    shown = " ".join(f"{number:g}" for number in numbers[:MOST_SHOWN])
    return shown if len(numbers) <= MOST_SHOWN else f"{shown} …, {len(numbers)} numbers"


def units_in_words(*learners: Learner) -> list[str]:
    """What learners make of numbers before they see them, which may be by default."""
    said = []
    for learner in learners:
        if isinstance(learner, DenseLearner) and learner.observation_centre:
            units = (learner.observation_centre, learner.observation_scale)
            centre, scale = map(_listed, units)
            said.append(f"observations are seen less ({centre}) and divided by ({scale})")
        reward_scale = getattr(learner, "reward_scale", 1.0)
        if reward_scale != 1:
            said.append(f"rewards are multiplied by {reward_scale:g}")
    return list(dict.fromkeys(said))
