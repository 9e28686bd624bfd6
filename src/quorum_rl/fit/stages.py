"""What either stage of a fit would be: from settings and declared numbers, and no data."""

import math
from typing import Final

import jax
from scipy.special import ndtr

from quorum_rl.errors import QuorumError, TooLittleBudgetError
from quorum_rl.fit.settings import FitSettings
from quorum_rl.learners import Learner
from quorum_rl.logs.demonstrations import Declared
from quorum_rl.privacy import Event, ReleasePlan, plan_release
from quorum_rl.privacy.calibration import noise_multiplier_for, steps_for
from quorum_rl.training.mechanism import PrivateStep, default_micro_batch

LARGEST_NOISE: Final = 7.5  # in deviations: `training.gaussian.standard_normal` ends there
RATE_OF_NOISE: Final = 16.0
UNSEEN: Final = 0.01  # of δ: what may happen beyond that

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
        QuorumError: if both are open, or the noise ends too soon.
        TooLittleBudgetError: if the cost does not allow them.
    """
    steps, multiplier = _calibrated(settings, cost, beside)
    beyond = chance_beyond_noise(steps, settings.sampling_rate, multiplier)
    if beyond > UNSEEN * cost[1]:
        raise QuorumError(
            f"noise of {multiplier:.3g} times an expert's share is so little that its end shows "
            f"(with probability {beyond:.2g}, at delta = {cost[1]:g}): give a smaller epsilon, a "
            "larger delta, or more private steps."
        )
    return steps, multiplier


def chance_beyond_noise(steps: int, sampling_rate: float, multiplier: float) -> float:
    """How likely an expert whose whole share is in one coordinate moves it beyond all noise, which
    nothing else explains then.

    With little noise that is the worst there is. A share that is spread over d coordinates adds, in
    every step that draws the expert, about 2.4e-13·√d / multiplier (the density at 7.5 deviations),
    1e-10 for a hundred thousand of them: see docs/limits.md.
    """
    return steps * sampling_rate * float(ndtr(1 / multiplier - LARGEST_NOISE))


def _calibrated(settings: FitSettings, cost: Cost, beside: list[Event]) -> tuple[int, float]:
    epsilon, delta = cost
    rate, steps, multiplier = (
        settings.sampling_rate,
        settings.private_steps,
        settings.noise_multiplier,
    )
    if multiplier is None and steps is not None:
        return steps, noise_multiplier_for(
            steps=steps, sampling_rate=rate, epsilon=epsilon, delta=delta, beside=beside
        )
    if multiplier is None:
        raise QuorumError("private_steps and noise_multiplier are both open: give one of them.")
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
    """A private step with this noise, in numbers that are declared."""
    assert declared.minimum_experts is not None  # checked before
    return PrivateStep(
        sampling_rate=settings.sampling_rate,
        clip_norm=settings.clip_norm,
        noise_multiplier=multiplier,
        expected_batch=settings.sampling_rate * declared.minimum_experts,
        micro_batch=default_micro_batch(
            declared.minimum_experts, settings.sampling_rate, settings.transitions_per_expert
        ),
        transitions_per_expert=settings.transitions_per_expert,
        normalised=settings.normalised,
    )


def noise_of_mean(step: PrivateStep, steps: int) -> float:
    """The noise of each parameter in the mean of all steps' gradients, an expert's largest being 1.

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
    """The usual size of the noise in the mean of all steps' gradients, the largest being 1."""
    shapes = jax.eval_shape(
        lambda: learner.init(jax.random.key(0), declared.observation_size, declared.action_count)
    )
    parameters = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))
    return noise_of_mean(step, steps) * math.sqrt(parameters)
