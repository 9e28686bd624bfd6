"""Calibration: the noise or the number of steps that just fits a budget.

All answers are safe: what is returned costs at most what was given, by the joint account.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final

from scipy.optimize import brentq
from scipy.special import log_ndtr

from quorum_rl.errors import FRACTION, POSITIVE, TooLittleBudgetError, require
from quorum_rl.privacy.accounting import one_step_spread, total_delta
from quorum_rl.privacy.events import (
    LEAST_NOISE,
    MOST_NOISE,
    MOST_STEPS,
    Event,
    TrainingEvent,
)

PRECISION: Final = 1e-4  # relative, of what is calibrated
# A larger epsilon gets the noise of this one: it protects nobody either, and its account is slow.
LARGEST_EPSILON: Final = 300.0


def noise_multiplier_for(
    *,
    steps: int,
    sampling_rate: float,
    epsilon: float,
    delta: float,
    beside: Sequence[Event] = (),
) -> float:
    """The least noise with which `steps` private steps fit into (epsilon, delta), with `beside`.

    Alone, they get no less than `LARGEST_EPSILON` asks for.

    Raises:
        TooLittleBudgetError: if no noise is enough, because `beside` alone spends the budget.
    """
    _check_left(beside, epsilon, delta)
    if not beside:
        epsilon = min(epsilon, LARGEST_EPSILON)

    def excess(log_multiplier: float) -> float:
        multiplier = _noise(log_multiplier)
        event = TrainingEvent(sampling_rate=sampling_rate, noise_multiplier=multiplier, steps=steps)
        return _log_ratio(total_delta([*beside, event], epsilon), delta)

    spread = _gaussian_spread(epsilon, delta) / math.sqrt(steps) / sampling_rate
    guess = -0.5 * math.log(math.log1p(spread**2))
    found = _crossing(excess, guess, math.log(LEAST_NOISE), math.log(MOST_NOISE))
    if found is None:
        raise TooLittleBudgetError(
            f"even a noise multiplier of {MOST_NOISE:g} is too little for {steps} steps within "
            f"epsilon = {epsilon:g}: give fewer steps or a larger epsilon."
        )
    while excess(found) > 0:
        found += PRECISION
    return _noise(found)


def _noise(log_multiplier: float) -> float:
    """The logarithm undone, whose rounding must not leave the range."""
    return min(max(math.exp(log_multiplier), LEAST_NOISE), MOST_NOISE)


def steps_for(
    *,
    noise_multiplier: float,
    sampling_rate: float,
    epsilon: float,
    delta: float,
    beside: Sequence[Event] = (),
) -> int:
    """The most private steps, to a relative 1e-4, that fit into (epsilon, delta) beside others.

    Raises:
        TooLittleBudgetError: if `beside` alone spends the budget.
    """
    _check_left(beside, epsilon, delta)

    def excess(log_steps: float) -> float:
        event = TrainingEvent(
            sampling_rate=sampling_rate,
            noise_multiplier=noise_multiplier,
            steps=max(math.floor(math.exp(log_steps) + 1e-9), 1),
        )
        return _log_ratio(total_delta([*beside, event], epsilon), delta)

    spread = one_step_spread(sampling_rate, noise_multiplier)
    guess = 2 * math.log(_gaussian_spread(epsilon, delta) / spread)
    found = _crossing(lambda at: -excess(at), guess, 0.0, math.log(MOST_STEPS))
    if found is None:
        return MOST_STEPS
    most = math.floor(math.exp(found) + 1e-9)
    while most > 0 and excess(math.log(most)) > 0:
        most = min(most - 1, math.floor(most * (1 - PRECISION)))
    return max(most, 0)


def _gaussian_spread(epsilon: float, delta: float) -> float:
    """About the μ for which a Gaussian mechanism of that distance has (epsilon, delta).

    Between 1e-6 and 1e3: it is a first guess.
    """

    def excess(log_mu: float) -> float:
        mu = math.exp(log_mu)
        upper = log_ndtr(-epsilon / mu + mu / 2)
        if upper == -math.inf:
            return -math.inf
        lower = epsilon + log_ndtr(-epsilon / mu - mu / 2)
        apart = -math.expm1(min(lower - upper, 0.0))  # rounding may have the lower one above
        return float(upper + math.log(max(apart, 1e-300)) - math.log(delta))

    low, high = math.log(1e-6), math.log(1e3)
    if excess(high) <= 0:
        return math.exp(high)
    if excess(low) >= 0:
        return math.exp(low)
    return math.exp(float(brentq(excess, low, high, xtol=1e-6)))


def _crossing(
    excess: Callable[[float], float], guess: float, least: float, most: float
) -> float | None:
    """About where a falling `excess` reaches 0 between `least` and `most`; None if nowhere.

    `least` itself if it is already there.
    """
    width = 0.02
    low = high = min(max(guess, least), most)
    if excess(low) <= 0:
        while excess(low) <= 0:
            if low <= least:
                return least
            low, high, width = max(low - width, least), low, 3 * width
    else:
        while excess(high) > 0:
            if high >= most:
                return None
            low, high, width = high, min(high + width, most), 3 * width
    return float(brentq(excess, low, high, xtol=PRECISION / 4))


def _log_ratio(spent: float, allowed: float) -> float:
    """Above 0 where too much is spent; bounded, for a solver's sake."""
    return max(math.log(max(spent, 1e-300) / allowed), -50.0)


def _check_left(beside: Sequence[Event], epsilon: float, delta: float) -> None:
    require("epsilon", epsilon, POSITIVE)
    require("delta", delta, FRACTION)
    if beside and total_delta(beside, epsilon) >= delta:
        raise TooLittleBudgetError(
            f"nothing is left for training: what comes beside it spends epsilon = {epsilon:g} at "
            f"delta = {delta:g} alone; give that less, or all a larger budget."
        )
