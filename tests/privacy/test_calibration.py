"""What calibration returns fits its budget, and hardly more would."""

import math
from dataclasses import replace

import numpy as np
import pytest

from quorum_rl.errors import QuorumError
from quorum_rl.privacy import (
    Event,
    TrainingEvent,
    plan_release,
    total_delta,
    total_epsilon,
)
from quorum_rl.privacy.calibration import noise_multiplier_for, steps_for

TIGHT = 0.005  # relative: how much less noise, or how many more steps, must no longer fit


RELEASE = plan_release(
    experts=3000,
    actions=2,
    p_min=0.02,
    horizon=200,
    epsilon=5.0,
    delta=2e-4,
    iterations=25,
    objective="threshold",
    overflow_epsilon=7.5,
).event


@pytest.mark.parametrize(
    ("steps", "sampling_rate", "epsilon", "delta", "beside"),
    [
        (1, 1.0, 1.0, 1e-5, False),
        (1000, 0.02, 2.0, 1e-5, False),
        (20_000, 128 / 3000, 2.5, 1 / 30_000, False),
        (200, 0.05, 7.5, 3e-4, True),
    ],
)
def test_calibrated_noise_fits_and_half_a_per_cent_less_does_not(
    steps: int, sampling_rate: float, epsilon: float, delta: float, beside: bool
) -> None:
    others: list[Event] = [RELEASE] if beside else []
    found = noise_multiplier_for(
        steps=steps, sampling_rate=sampling_rate, epsilon=epsilon, delta=delta, beside=others
    )
    event = TrainingEvent(sampling_rate=sampling_rate, noise_multiplier=found, steps=steps)
    assert total_delta([*others, event], epsilon) <= delta
    less = replace(event, noise_multiplier=found * (1 - TIGHT))
    assert total_delta([*others, less], epsilon) > delta


@pytest.mark.parametrize(
    ("multiplier", "sampling_rate", "epsilon", "delta", "beside"),
    [
        (3.0, 0.1, 1.0, 1e-5, False),
        (10.0, 0.02, 2.0, 1e-5, False),
        (20.0, 0.5 * 128 / 3000, 2.5, 1 / 30_000, False),
        (2.0, 0.02, 7.5, 3e-4, True),
    ],
)
def test_calibrated_steps_fit_and_half_a_per_cent_more_do_not(
    multiplier: float, sampling_rate: float, epsilon: float, delta: float, beside: bool
) -> None:
    others: list[Event] = [RELEASE] if beside else []
    found = steps_for(
        noise_multiplier=multiplier,
        sampling_rate=sampling_rate,
        epsilon=epsilon,
        delta=delta,
        beside=others,
    )
    event = TrainingEvent(sampling_rate=sampling_rate, noise_multiplier=multiplier, steps=found)
    assert total_delta([*others, event], epsilon) <= delta
    more = replace(event, steps=math.ceil(found * (1 + TIGHT)) + 1)
    assert total_delta([*others, more], epsilon) > delta


def test_a_few_steps_are_counted_exactly() -> None:
    steps = steps_for(noise_multiplier=3.0, sampling_rate=1.0, epsilon=3.0, delta=1e-4)
    event = TrainingEvent(sampling_rate=1.0, noise_multiplier=3.0, steps=steps)
    assert (
        total_epsilon([event], 1e-4) <= 3.0 < total_epsilon([replace(event, steps=steps + 1)], 1e-4)
    )


def test_where_not_even_one_step_fits_there_are_none() -> None:
    assert steps_for(noise_multiplier=0.5, sampling_rate=1.0, epsilon=0.5, delta=1e-5) == 0


def test_calibrated_noise_is_on_the_safe_side_of_what_a_solver_finds() -> None:
    for epsilon in np.linspace(0.3, 4.0, 12).tolist():
        found = noise_multiplier_for(steps=5, sampling_rate=1.0, epsilon=epsilon, delta=1e-5)
        event = TrainingEvent(sampling_rate=1.0, noise_multiplier=found, steps=5)
        assert total_delta([event], epsilon) <= 1e-5


@pytest.mark.parametrize("epsilon", [1e4, 1e300])
def test_an_epsilon_that_protects_nobody_is_calibrated_like_any_other(epsilon: float) -> None:
    found = noise_multiplier_for(steps=40, sampling_rate=1.0, epsilon=epsilon, delta=1e-4)
    event = TrainingEvent(sampling_rate=1.0, noise_multiplier=found, steps=40)
    assert total_delta([event], epsilon) <= 1e-4
    assert found < 0.9 * noise_multiplier_for(steps=40, sampling_rate=1.0, epsilon=99.0, delta=1e-4)


def test_what_comes_beside_takes_its_share() -> None:
    alone, beside = (
        noise_multiplier_for(steps=200, sampling_rate=0.05, epsilon=7.5, delta=3e-4, beside=others)
        for others in ([], [RELEASE])
    )
    assert beside > 1.1 * alone


def test_where_what_comes_beside_spends_all_this_is_said() -> None:
    with pytest.raises(QuorumError, match="nothing is left for training"):
        noise_multiplier_for(steps=10, sampling_rate=0.1, epsilon=1.0, delta=1e-5, beside=[RELEASE])
    with pytest.raises(QuorumError, match="nothing is left for training"):
        steps_for(
            noise_multiplier=2.0, sampling_rate=0.1, epsilon=1.0, delta=1e-5, beside=[RELEASE]
        )


@pytest.mark.parametrize(
    ("epsilon", "delta", "name"),
    [
        (0.0, 1e-5, "epsilon is 0"),
        (-1.0, 1e-5, "epsilon is -1"),
        (1.0, 1.0, "delta is 1"),
        (1.0, 0.0, "delta is 0"),
        (math.nan, 1e-5, "epsilon is nan"),
    ],
)
def test_a_budget_that_is_none_is_refused(epsilon: float, delta: float, name: str) -> None:
    with pytest.raises(QuorumError, match=name):
        steps_for(noise_multiplier=2.0, sampling_rate=0.1, epsilon=epsilon, delta=delta)
