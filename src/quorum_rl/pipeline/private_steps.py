"""A private step of a fit: what is contributed, with how much noise, and how loud that is."""

import math
from typing import Any

from quorum_rl.errors import TooLittleBudgetError
from quorum_rl.learners import Learner, shapes_of
from quorum_rl.logs import Declared
from quorum_rl.pipeline.plan import Cost, noise_of_mean
from quorum_rl.pipeline.settings import FitSettings
from quorum_rl.privacy import Event, noise_multiplier_for, steps_for
from quorum_rl.training import (
    Contribution,
    Gradient,
    Local,
    PrivateStep,
    Solve,
    check_parameters,
    default_chunk,
    trained_count,
)


def steps_and_noise(
    settings: FitSettings, cost: Cost, beside: list[Event], candidates: int = 1
) -> tuple[int, float]:
    """Calibrate the noise for the steps of each of so many candidates, or the steps for the noise.

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
            steps=candidates * steps,
            sampling_rate=rate,
            epsilon=epsilon,
            delta=delta,
            beside=beside,
        )
    most = steps_for(
        noise_multiplier=multiplier,
        sampling_rate=rate,
        epsilon=epsilon,
        delta=delta,
        beside=beside,
    )
    most //= candidates
    if most == 0 or (steps is not None and steps > most):
        raise TooLittleBudgetError(
            f"with a noise multiplier of {multiplier:g} the budget is enough for {most} private "
            f"steps{' of each candidate' * (candidates > 1)}, not {steps or 'one'}: give more "
            "noise, or fewer steps."
        )
    return (most if steps is None else steps), multiplier


def contribution_of(settings: FitSettings) -> Contribution:
    """What an expert contributes to a private step: the user's own, or the method's.

    The settings are filled.
    """
    if settings.contribution is not None:
        return settings.contribution
    count = settings.transitions_per_expert
    assert count is not None
    if settings.is_local:
        assert settings.local_steps is not None
        assert settings.local_rate is not None
        return Local(steps=settings.local_steps, batch_size=count, rate=settings.local_rate)
    return Solve(transitions=count) if settings.method == "solve" else Gradient(transitions=count)


def private_step(settings: FitSettings, declared: Declared, multiplier: float) -> PrivateStep:
    """A private step with this noise, in numbers that are declared; of settings that are filled."""
    rate, clip_norm, normalised = settings.sampling_rate, settings.clip_norm, settings.normalised
    assert declared.minimum_experts is not None  # checked before
    assert rate is not None
    assert clip_norm is not None
    contribution = contribution_of(settings)
    return PrivateStep(
        sampling_rate=rate,
        clip_norm=clip_norm,
        noise_multiplier=multiplier,
        expected_batch=rate * declared.minimum_experts,
        chunk=default_chunk(declared.minimum_experts, rate, contribution.transitions),
        contribution=contribution,
        normalised=bool(normalised),
    )


def noise_to_signal(step: PrivateStep, steps: int, learner: Learner, declared: Declared) -> float:
    """The usual size of the noise in the mean of all steps, the largest contribution being 1.

    Raises:
        QuorumError: for more parameters than private steps take.
    """
    asked: Any = learner
    shapes = shapes_of(asked, declared.observation_size, declared.action_count)
    count = trained_count(learner, shapes, step.contribution)
    check_parameters(count, step.units)
    return noise_of_mean(step, steps) * math.sqrt(count)
