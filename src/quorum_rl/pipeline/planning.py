"""How a budget is split over both stages: from settings and declared numbers, and no data."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from quorum_rl.errors import FRACTION, POSITIVE, QuorumError, TooLittleBudgetError, require
from quorum_rl.judging import (
    MOST_WEIGHTS,
    Judges,
    ValuePlan,
    feature_count,
    plan_judging,
    plan_values,
    value_step,
    weight_count,
)
from quorum_rl.learners import Learner
from quorum_rl.logs import Declared
from quorum_rl.pipeline.plan import PAPER_DELTA_SHARE, Cost, FitPlan
from quorum_rl.pipeline.private_steps import (
    noise_to_signal,
    private_step,
    steps_and_noise,
)
from quorum_rl.pipeline.settings import FitSettings
from quorum_rl.pipeline.units import TOO_DEAR, Asking, units_beside
from quorum_rl.privacy import (
    Event,
    ReleasePlan,
    noise_multiplier_for,
    plan_release,
)
from quorum_rl.training import (
    check_contribution,
    steps_at_share,
    sum_step,
)

RELEASE_DELTA_SHARE: Final = 0.8  # of δ; the joint account leaves the rest to training
NOT_AS_CLAIMED: Final = "mode paper: the published accounting, whose claim does not hold"
NOT_VALUED: Final = (
    "the judges are not asked what the policy earns: that needs private steps, not so many "
    "actions and numbers in an observation, and of continuous actions many experts: 1000 at ε = 3"
)
CONTINUOUS_ACTIONS: Final = (
    "actions are continuous, and densities have no floor, so nothing is released"
)
MOST_NOISE: Final = 0.03  # for each expert, where values of continuous actions are fitted
NO_CHOICE: Final = (
    "judges choose a learner by what its policy earns: give judges and return_bounds (--judges, "
    f"--return-bounds) to a method with private steps, and at most {MOST_WEIGHTS} actions times "
    f"(numbers in an observation + {feature_count(0)})."
)
NO_CHOICE_OF_CONTINUOUS: Final = (
    "of continuous actions judges say what a policy earns at most, and that chooses none: leave "
    "choose (--choose) out."
)
NOT_PRIVATE: Final = "NOT PRIVATE: every step sees the logs without noise"


class _Task(NamedTuple):
    """What is to be planned. `settings` are filled; for the rest see `plan_fit`."""

    settings: FitSettings
    learner: Learner
    declared: Declared
    epsilon: float
    delta: float
    whole_epsilon: float
    judges: Judges | None = None
    asking: Asking | None = None
    others: tuple[Learner, ...] = ()

    @property
    def candidates(self) -> tuple[Learner, ...]:
        return (self.learner, *self.others)

    @property
    def learned_from(self) -> Declared:
        """What is declared, of those who do not judge: about so many, which scales steps only."""
        least = self.declared.minimum_experts
        if self.judges is None or least is None:
            return self.declared
        some = max(2, math.floor((1 - self.judges.share) * least))
        return replace(self.declared, minimum_experts=some)

    def plan(self, **stages: Any) -> FitPlan:
        return FitPlan(
            settings=self.settings,
            learner=self.learner,
            epsilon=self.epsilon,
            delta=self.delta,
            others=self.others,
            **stages,
        )

    def plan_without_noise(self, release: ReleasePlan | None, *notes: str) -> FitPlan:
        """No private steps: everything is learned from what is released, or from the logs."""
        return self.plan(release=release, plain_steps=self.settings.release_only_steps, notes=notes)


def plan_fit(
    declared: Declared,
    learner: Learner,
    *,
    epsilon: float,
    delta: float,
    settings: FitSettings | None = None,
    can_query: bool = True,
    whole_epsilon: float | None = None,
    judges: Judges | None = None,
    asking: Asking | None = None,
    others: Sequence[Learner] = (),
) -> FitPlan:
    """Split a budget over both stages, for experts of whom these facts are declared.

    Without query access to the experts (`can_query`) nothing can be released. `whole_epsilon` is
    about what all that the ledger will hold costs, where that is more than this fit: the release
    then reserves as many trajectories as keep it from running out at such an epsilon. With `judges`
    a part of the experts is asked about the policy, and private steps learn from the others. What
    `asking` holds is asked before the first private step. With `others`, judges choose between all
    these learners.

    Raises:
        QuorumError: if a needed fact is not declared, or the numbers do not fit.
    """
    chosen = (settings or FitSettings()).filled()
    whole = epsilon if whole_epsilon is None else whole_epsilon
    task = _Task(chosen, learner, declared, epsilon, delta, whole, judges, asking, tuple(others))
    if judges is not None and (chosen.method == "non-private" or chosen.mode == "paper"):
        raise QuorumError(
            "judges go with neither mode paper nor the method non-private: leave them out."
        )
    if others and judges is None:
        raise QuorumError(NO_CHOICE)
    if chosen.method == "non-private":
        return task.plan_without_noise(None, NOT_PRIVATE)
    check_declared(declared, epsilon, delta)
    plan = _of_stages(task, can_query=can_query)
    beside, values = _events_of(plan.release), None
    if plan.private is not None:
        values = _values(task, [*beside, *([] if plan.units is None else [plan.units.event])])
    if others and (values is None or declared.continuous):
        raise QuorumError(NO_CHOICE_OF_CONTINUOUS if declared.continuous else NO_CHOICE)
    if judges is None:
        return plan
    asked = plan_judging(
        declared, judges, epsilon=epsilon, delta=delta, beside=beside, values=values
    )
    sum_step(asked.noise_multiplier, asked.expected)  # refuses more than there is room for
    notes = plan.notes
    if values is None and judges.return_bounds is not None:
        notes += (NOT_VALUED,)
    return replace(plan, judging=asked, notes=notes)


def _events_of(release: ReleasePlan | None) -> list[Event]:
    return [] if release is None else [release.event]


def _values(task: _Task, beside: list[Event]) -> ValuePlan | None:
    """How the policy's values are fitted for the judges, if they are asked what it earns.

    Raises:
        QuorumError: if there would be so much noise that nothing is left of an expert's share.
    """
    declared = task.declared
    if task.judges is None or task.judges.return_bounds is None:
        return None
    size = weight_count(
        declared.observation_size, declared.action_count, continuous=declared.continuous
    )
    if size > MOST_WEIGHTS:
        return None
    plan = plan_values(
        task.learned_from,
        task.judges.return_bounds,
        epsilon=task.epsilon,
        delta=task.delta,
        beside=beside,
        policies=len(task.candidates),
    )
    value_step(plan.noise_multiplier, plan.expected)
    too_loud = declared.continuous and plan.noise_multiplier / plan.expected > MOST_NOISE
    return None if too_loud else plan


def _of_stages(task: _Task, *, can_query: bool) -> FitPlan:
    """The plan of what is learned, with noise."""
    chosen = task.settings
    if chosen.method != "selective":
        return _privately(task)
    if task.declared.continuous:
        return _privately(task, None, CONTINUOUS_ACTIONS)
    if not can_query:
        return _privately(task, None, "the experts cannot be queried, so nothing is released")
    return _as_published(task) if chosen.mode == "paper" else _selectively(task)


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
    check_declared(declared, epsilon, delta)
    chosen = (settings or FitSettings()).filled()
    task = _Task(chosen, learner, declared, epsilon, delta, epsilon)
    both = _privately(task, release)
    if both.mostly_noise is None:
        return both
    return task.plan_without_noise(release, f"{both.mostly_noise}, so none is taken")


def check_declared(declared: Declared, epsilon: float, delta: float) -> None:
    """Refuse a cost that is none, and logs that do not say how many experts there are.

    Raises:
        QuorumError: for either.
    """
    require("epsilon", epsilon, POSITIVE)
    require("delta", delta, FRACTION)
    if declared.minimum_experts is None:
        raise QuorumError(
            "the demonstrations do not declare how many experts there are at least, which the "
            "guarantee counts on: declare minimum_experts (--minimum-experts), here or when "
            "collecting."
        )


def _privately(task: _Task, release: ReleasePlan | None = None, *notes: str) -> FitPlan:
    """Private steps, beside a release if there is one."""
    settings, declared = task.settings, task.declared
    if settings.contribution is not None:
        for learner in task.candidates:
            check_contribution(settings.contribution, learner, declared)
    beside = _events_of(release)
    cost, who = (task.epsilon, task.delta), task.learned_from
    units, too_few = units_beside(task.asking, who, cost, beside, parted=task.judges is not None)
    beside += [] if units is None else [units.event]
    values = _values(task, beside)
    beside += [] if values is None else [values.event]
    steps, multiplier = steps_and_noise(settings, cost, beside, len(task.candidates))
    private = private_step(settings, who, multiplier)
    plan = task.plan(
        release=release,
        units=units,
        private=private,
        private_steps=steps,
        plain_steps=0 if release is None else steps_at_share(steps, settings.private_share),
        notes=(*notes, *too_few),
        noise=max(noise_to_signal(private, steps, one, declared) for one in task.candidates),
    )
    if units is None or plan.mostly_noise is None or (task.asking and task.asking.must):
        return plan
    return _privately(task._replace(asking=None), release, *notes, TOO_DEAR)


def _selectively(task: _Task) -> FitPlan:
    """Both stages where both pay; the better one alone where the other would only waste."""
    cost, share = (task.epsilon, task.delta), task.settings.release_share
    if share == 1:
        return _release_alone(task)
    release = _useful_release(task, (share * task.epsilon, RELEASE_DELTA_SHARE * task.delta))
    useless = _too_little(task, release)
    if useless is None:
        plan = _privately(task, release)
    else:
        plan = _privately(task, None, f"{useless}, so every step is private")
    too_noisy = plan.mostly_noise
    if too_noisy is None:
        return plan
    whole = _useful_release(task, cost)
    if whole is None:
        note = f"{too_noisy}, but nothing could be released even with all of epsilon"
        return _privately(task, None, note)
    return task.plan_without_noise(whole, f"{too_noisy}, so the release gets all of epsilon")


def _release_alone(task: _Task) -> FitPlan:
    release = _useful_release(task, (task.epsilon, task.delta))
    if release is None:
        raise TooLittleBudgetError(
            f"nothing can be released with all of epsilon = {task.epsilon:g}, and release_share is "
            "1: give a smaller share, or a larger epsilon."
        )
    return task.plan_without_noise(release)


def _as_published(task: _Task) -> FitPlan:
    """The paper's split and calibration: q = p·b/m over all steps, sums of both stages."""
    settings, epsilon, delta = task.settings, task.epsilon, task.delta
    share, probability = settings.release_share, settings.private_share
    if settings.private_steps is None:
        raise QuorumError("private_steps is open: mode paper needs it, so give a number.")
    delta_share = 1.0 if share >= 1 else PAPER_DELTA_SHARE
    release = _release_at(
        task._replace(whole_epsilon=epsilon), (share * epsilon, delta_share * delta)
    )
    if share >= 1 or probability == 0:
        return task.plan_without_noise(release, NOT_AS_CLAIMED)
    plain = steps_at_share(settings.private_steps, probability)
    assert settings.sampling_rate is not None  # filled
    multiplier = settings.noise_multiplier or noise_multiplier_for(
        steps=settings.private_steps + plain,
        sampling_rate=probability * settings.sampling_rate,
        epsilon=(1 - share) * epsilon,
        delta=(1 - PAPER_DELTA_SHARE) * delta,
    )
    step = private_step(settings, task.declared, multiplier)
    # Refuses what cannot be.
    noise_to_signal(step, settings.private_steps, task.learner, task.declared)
    return task.plan(
        release=release,
        private=step,
        private_steps=settings.private_steps,
        plain_steps=plain,
        notes=(NOT_AS_CLAIMED,),
    )


# --- the release ---


def _useful_release(task: _Task, own: Cost) -> ReleasePlan | None:
    """A release at a cost of its own, of which something can come out."""
    if task.declared.minimum_trajectories == 1:  # reserved, none would be left to train on
        return None
    try:
        plan = _release_at(task, own)
    except TooLittleBudgetError:
        return None
    return plan if plan.feasible else None


def _release_at(task: _Task, own: Cost) -> ReleasePlan:
    """The release at a cost of its own within the total.

    Raises:
        TooLittleBudgetError: if its cost is too little for any.
    """
    settings, declared = task.settings, task.declared
    assert declared.minimum_experts is not None  # checked before
    floor = declared.p_min or None
    reserves = settings.mode == "tight"
    if reserves and declared.minimum_trajectories is None:
        raise QuorumError(
            "the demonstrations do not declare how many trajectories every expert has at least, of "
            "which a release reserves some: declare minimum_trajectories "
            "(--minimum-trajectories), here or when importing."
        )
    return plan_release(
        experts=declared.minimum_experts,
        actions=declared.action_count,
        horizon=declared.horizon,
        epsilon=own[0],
        delta=own[1],
        p_min=floor,
        stop_probability=settings.stop_probability if floor is None else None,
        prefix_cap=settings.prefix_cap,
        iterations=settings.iterations,
        mode=settings.mode,
        agreement=settings.agreement,
        pool_limit=settings.pool_limit,
        minimum_trajectories=declared.minimum_trajectories if reserves else None,
        overflow_epsilon=task.whole_epsilon,
    )


def _too_little(task: _Task, release: ReleasePlan | None) -> str | None:
    """Why a release would not pay beside private steps, or nothing."""
    settings, horizon = task.settings, task.declared.horizon
    expected = 0.0 if release is None else release.expected_transitions
    if release is None or expected < settings.least_released:
        return (
            f"about {expected:.0f} transitions would be released with {settings.release_share:g} "
            "of epsilon, too few to pay"
        )
    length = expected / release.event.iterations
    if length < settings.least_reached * horizon:
        return (
            f"released prefixes would be about {length:.1f} of at most {horizon} steps long, too "
            "short to pay"
        )
    return None
