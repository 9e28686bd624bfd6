"""What either stage of a fit would be: from settings and declared numbers, and no data."""

import math
from typing import Final

import jax

from quorum_rl.errors import TooLittleBudgetError
from quorum_rl.learners import Learner
from quorum_rl.logs import Declared
from quorum_rl.pipeline.settings import FitSettings
from quorum_rl.privacy import Event, ReleasePlan, noise_multiplier_for, plan_release, steps_for
from quorum_rl.training import (
    Contribution,
    PrivateStep,
    check_parameters,
    default_chunk,
    trained_count,
)

RATE_OF_NOISE: Final = 16.0

Cost = tuple[float, float]
"""An ε and a δ."""


def useful_release(
    settings: FitSettings, declared: Declared, own: Cost, total_epsilon: float
) -> ReleasePlan | None:
    """A release of which something can come out."""
    if declared.minimum_trajectories == 1:  # reserved, none would be left to train on
        return None
    try:
        plan = planned_release(settings, declared, own, total_epsilon)
    except TooLittleBudgetError:
        return None
    return plan if plan.feasible else None


def planned_release(
    settings: FitSettings, declared: Declared, own: Cost, total_epsilon: float
) -> ReleasePlan:
    """The release at a cost of its own within a total.

    Raises:
        TooLittleBudgetError: if its cost is too little for any.
    """
    assert declared.minimum_experts is not None  # checked before
    floor = declared.p_min or None
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
        pool_limit=_pool_limit(settings, declared),
        overflow_epsilon=total_epsilon,
    )


def _pool_limit(settings: FitSettings, declared: Declared) -> int:
    """As many trajectories of every expert as may be reserved: one is left for training."""
    if declared.minimum_trajectories is None:
        return settings.pool_limit
    return min(settings.pool_limit, max(declared.minimum_trajectories - 1, 1))


def steps_and_noise(settings: FitSettings, cost: Cost, beside: list[Event]) -> tuple[int, float]:
    """Calibrate the noise for the steps, or the steps for the noise.

    Raises:
        TooLittleBudgetError: if the cost does not allow them.
    """
    epsilon, delta = cost
    rate, steps, multiplier = (
        settings.sampling_rate,
        settings.private_steps,
        settings.noise_multiplier,
    )
    assert rate is not None  # filled
    if multiplier is None:
        assert steps is not None  # filled
        return steps, noise_multiplier_for(
            steps=steps, sampling_rate=rate, epsilon=epsilon, delta=delta, beside=beside
        )
    most = steps_for(
        noise_multiplier=multiplier,
        sampling_rate=rate,
        epsilon=epsilon,
        delta=delta,
        beside=beside,
    )
    if most == 0 or (steps is not None and steps > most):
        raise TooLittleBudgetError(
            f"with a noise multiplier of {multiplier:g} the budget is enough for {most} private "
            f"steps, not {steps or 'one'}: give more noise, or fewer steps."
        )
    return (most if steps is None else steps), multiplier


def private_step(settings: FitSettings, declared: Declared, multiplier: float) -> PrivateStep:
    """A private step with this noise, in numbers that are declared; of settings that are filled."""
    rate, clip_norm, normalised = settings.sampling_rate, settings.clip_norm, settings.normalised
    assert declared.minimum_experts is not None  # checked before
    assert rate is not None
    assert clip_norm is not None
    contribution = settings.contribution
    return PrivateStep(
        sampling_rate=rate,
        clip_norm=clip_norm,
        noise_multiplier=multiplier,
        expected_batch=rate * declared.minimum_experts,
        chunk=default_chunk(declared.minimum_experts, rate, contribution.transitions),
        contribution=contribution,
        normalised=bool(normalised),
    )


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


def noise_to_signal(step: PrivateStep, steps: int, learner: Learner, declared: Declared) -> float:
    """The usual size of the noise in the mean of all steps, the largest contribution being 1.

    Raises:
        QuorumError: for more parameters than private steps take.
    """
    count = parameters_of(learner, declared, step.contribution)
    check_parameters(count, step.units)
    return noise_of_mean(step, steps) * math.sqrt(count)


def parameters_of(learner: Learner, declared: Declared, contribution: Contribution) -> int:
    """How many parameters noise is added to."""
    shapes = jax.eval_shape(
        lambda: learner.init(jax.random.key(0), declared.observation_size, declared.action_count)
    )
    return trained_count(learner, shapes, contribution)
