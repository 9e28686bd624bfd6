"""What a fit will do and spend, decided before any data is touched."""

import math
from dataclasses import dataclass, replace
from typing import Any, Final

from quorum_rl.errors import QuorumError, TooLittleBudgetError
from quorum_rl.learners import Learner
from quorum_rl.logs import Declared
from quorum_rl.pipeline.rule import check_declared
from quorum_rl.pipeline.settings import FitSettings
from quorum_rl.pipeline.stages import (
    Cost,
    noise_to_signal,
    planned_release,
    private_step,
    rate_for,
    steps_and_noise,
    useful_release,
)
from quorum_rl.pipeline.words import in_words, learner_in_words, units_in_words
from quorum_rl.privacy import Event, ReleasePlan, noise_multiplier_for, total_epsilon
from quorum_rl.training import PrivateStep, Recipe, Run, new_run, optimiser_of, steps_at_share

RELEASE_DELTA_SHARE: Final = 0.8  # of δ; the joint account leaves the rest to training
PAPER_DELTA_SHARE: Final = 0.9
NOT_AS_CLAIMED: Final = "mode paper: the published accounting, whose claim does not hold"
# Times the largest contribution, beyond which private steps do not pay (docs/few-experts.md).
MOST_NOISE: Final = {"local": 1.0, "solve": 1.0, "dp-sgd": 2.2, "selective": 2.2}


@dataclass(frozen=True, kw_only=True)
class FitPlan:
    """Everything that a fit will spend and do.

    `private` and `release` are None where that stage does not take place; `notes` say where the
    plan departs from what was asked for, and why. `noise` is the usual size of the noise in the
    mean of all private steps, where an expert's largest contribution is 1.

    Guarantee: a function of declared numbers. `events` cost at most (epsilon, delta) together
    (mode `tight`).

    Raises:
        QuorumError: for a number out of its range, before anything is spent.
    """

    settings: FitSettings
    learner: Learner
    epsilon: float
    delta: float
    release: ReleasePlan | None
    private: PrivateStep | None
    private_steps: int
    plain_steps: int
    notes: tuple[str, ...]
    noise: float = 0.0

    def __post_init__(self) -> None:
        # Refuses what training would refuse when the release is paid for.
        _ = self.recipe, self.private_learning_rate

    @property
    def events(self) -> tuple[Event, ...]:
        """What the ledger will be charged for."""
        found: list[Event] = [] if self.release is None else [self.release.event]
        if self.private is not None:
            found.append(self.private.event(self.private_steps))
        return tuple(found)

    @property
    def mostly_noise(self) -> str | None:
        """Why nothing would be learned, or nothing."""
        return _too_noisy(self)

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

    def new_run(self, noise_key: Any, public_key: Any, steps: int) -> Run:
        """One training of so many steps by this plan; see `training.recipe.new_run`."""
        return new_run(
            noise_key=noise_key,
            public_key=public_key,
            learning_rate=self.settings.learning_rate,
            private_learning_rate=self.private_learning_rate,
            rates_end=self.rates_end(steps),
            average_from=self.average_from(steps),
            private=self.private,
        )

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
        lines.append(learner_in_words(self.learner))
        if self.private is not None:
            lines += self._private_in_words()
        if self.plain_steps:
            lines.append(f"steps without noise: {self.plain_steps}")
        return "\n".join([*lines, *units_in_words(self.learner), *self.notes])

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
            f"noise over signal: {self.noise:.2g} (at most "
            f"{_most_noise(self.settings):g} is useful)",
        ]


def plan_fit(
    declared: Declared,
    learner: Learner,
    *,
    epsilon: float,
    delta: float,
    settings: FitSettings | None = None,
    can_query: bool = True,
    whole_epsilon: float | None = None,
) -> FitPlan:
    """Split a budget over both stages, for experts of whom these facts are declared.

    Without query access to the experts (`can_query`) nothing can be released. `whole_epsilon` is
    about what all that the ledger will hold costs, where that is more than this fit: the release
    then reserves as many trajectories as keep it from running out at such an epsilon.

    Raises:
        QuorumError: if a needed fact is not declared, or the numbers do not fit.
    """
    chosen = (settings or FitSettings()).filled()
    if chosen.method == "non-private":
        return _without_privacy(chosen, learner, epsilon, delta)
    check_declared(declared, epsilon, delta)
    if chosen.method != "selective":
        return _privately(chosen, learner, declared, (epsilon, delta))
    if not can_query:
        note = "the experts cannot be queried, so nothing is released"
        return _privately(chosen, learner, declared, (epsilon, delta), (note,))
    if chosen.mode == "paper":
        return _as_published(chosen, learner, declared, (epsilon, delta))
    whole = epsilon if whole_epsilon is None else whole_epsilon
    return _selectively(chosen, learner, declared, (epsilon, delta), whole)


def plan_training(
    declared: Declared,
    learner: Learner,
    release: ReleasePlan,
    *,
    epsilon: float,
    delta: float,
    settings: FitSettings | None = None,
) -> FitPlan:
    """The second stage beside a release that was made before: both cost the budget together.

    Raises:
        QuorumError: if a needed fact is not declared, or the release alone spends the budget.
    """
    chosen = (settings or FitSettings()).filled()
    check_declared(declared, epsilon, delta)
    both = _privately(chosen, learner, declared, (epsilon, delta), (), release)
    too_noisy = _too_noisy(both)
    if too_noisy is None:
        return both
    note = f"{too_noisy}, so none is taken"
    return replace(
        _without_privacy(chosen, learner, epsilon, delta), release=release, notes=(note,)
    )


def _without_privacy(
    settings: FitSettings, learner: Learner, epsilon: float, delta: float
) -> FitPlan:
    return FitPlan(
        settings=settings,
        learner=learner,
        epsilon=epsilon,
        delta=delta,
        release=None,
        private=None,
        private_steps=0,
        plain_steps=settings.release_only_steps,
        notes=("NOT PRIVATE: every step sees the logs without noise",),
    )


def _privately(
    settings: FitSettings,
    learner: Learner,
    declared: Declared,
    cost: Cost,
    notes: tuple[str, ...] = (),
    release: ReleasePlan | None = None,
) -> FitPlan:
    """Private steps, beside a release if there is one."""
    beside: list[Event] = [] if release is None else [release.event]
    steps, multiplier = steps_and_noise(settings, cost, beside)
    private = private_step(settings, declared, multiplier)
    plain = 0 if release is None else steps_at_share(steps, settings.private_share)
    return FitPlan(
        settings=settings,
        learner=learner,
        epsilon=cost[0],
        delta=cost[1],
        release=release,
        private=private,
        private_steps=steps,
        plain_steps=plain,
        notes=notes,
        noise=noise_to_signal(private, steps, learner, declared),
    )


def _selectively(
    settings: FitSettings, learner: Learner, declared: Declared, cost: Cost, whole_epsilon: float
) -> FitPlan:
    """Both stages where both pay; the better one alone where the other would only waste."""
    epsilon, delta = cost
    share = settings.release_share
    if share == 1:
        return _release_alone(settings, learner, declared, cost, whole_epsilon)
    own = (share * epsilon, RELEASE_DELTA_SHARE * delta)
    release = useful_release(settings, declared, own, whole_epsilon)
    useless = _too_little(settings, declared, release)
    plan = (
        _privately(settings, learner, declared, cost, (), release)
        if useless is None
        else _privately(
            settings, learner, declared, cost, (f"{useless}, so every step is private",)
        )
    )
    too_noisy = _too_noisy(plan)
    if too_noisy is None:
        return plan
    whole = useful_release(settings, declared, cost, whole_epsilon)
    if whole is None:
        note = f"{too_noisy}, but nothing could be released even with all of epsilon"
        return _privately(settings, learner, declared, cost, (note,))
    plan = _without_privacy(settings, learner, epsilon, delta)
    return replace(plan, release=whole, notes=(f"{too_noisy}, so the release gets all of epsilon",))


def _release_alone(
    settings: FitSettings, learner: Learner, declared: Declared, cost: Cost, whole_epsilon: float
) -> FitPlan:
    release = useful_release(settings, declared, cost, whole_epsilon)
    if release is None:
        raise TooLittleBudgetError(
            f"nothing can be released with all of epsilon = {cost[0]:g}, and release_share is 1: "
            "give a smaller share, or a larger epsilon."
        )
    return replace(_without_privacy(settings, learner, *cost), release=release, notes=())


def _too_little(
    settings: FitSettings, declared: Declared, release: ReleasePlan | None
) -> str | None:
    """Why a release would not pay beside private steps, or nothing."""
    expected = 0.0 if release is None else release.expected_transitions
    if release is None or expected < settings.least_released:
        return (
            f"about {expected:.0f} transitions would be released with {settings.release_share:g} "
            "of epsilon, too few to pay"
        )
    length = expected / release.event.iterations
    if length < settings.least_reached * declared.horizon:
        return (
            f"released prefixes would be about {length:.1f} of at most {declared.horizon} steps "
            "long, too short to pay"
        )
    return None


def _most_noise(settings: FitSettings) -> float:
    return MOST_NOISE["local" if settings.is_local else settings.method]


def _too_noisy(plan: FitPlan) -> str | None:
    """Why the private steps of a plan would not pay, or nothing."""
    if plan.private is None or plan.noise <= _most_noise(plan.settings):
        return None
    return (
        f"private steps would be mostly noise ({plan.noise:.1f} times the largest contribution, in "
        "the mean of all)"
    )


def _as_published(
    settings: FitSettings, learner: Learner, declared: Declared, cost: Cost
) -> FitPlan:
    """The paper's split and calibration: q = p·b/m over all steps, sums of both stages."""
    epsilon, delta = cost
    share, probability = settings.release_share, settings.private_share
    if settings.private_steps is None:
        raise QuorumError("private_steps is open: mode paper needs it, so give a number.")
    delta_share = 1.0 if share >= 1 else PAPER_DELTA_SHARE
    release = planned_release(settings, declared, (share * epsilon, delta_share * delta), epsilon)
    if share >= 1 or probability == 0:
        plan = _without_privacy(settings, learner, epsilon, delta)
        return replace(plan, release=release, notes=(NOT_AS_CLAIMED,))
    plain = steps_at_share(settings.private_steps, probability)
    rate = settings.sampling_rate
    assert rate is not None  # filled
    multiplier = settings.noise_multiplier or noise_multiplier_for(
        steps=settings.private_steps + plain,
        sampling_rate=probability * rate,
        epsilon=(1 - share) * epsilon,
        delta=(1 - PAPER_DELTA_SHARE) * delta,
    )
    step = private_step(settings, declared, multiplier)
    noise_to_signal(step, settings.private_steps, learner, declared)  # refuses what cannot be
    return FitPlan(
        settings=settings,
        learner=learner,
        epsilon=epsilon,
        delta=delta,
        release=release,
        private=step,
        private_steps=settings.private_steps,
        plain_steps=plain,
        notes=(NOT_AS_CLAIMED,),
    )


def published_budget(plan: FitPlan) -> Cost:
    """What mode paper claims for the training of a plan: the release's part taken off."""
    if plan.release is None:
        return plan.epsilon, plan.delta
    return (
        (1 - plan.settings.release_share) * plan.epsilon,
        (1 - PAPER_DELTA_SHARE) * plan.delta,
    )
