"""The second opinion: it agrees with the accounting, and catches events that are not what was
certified."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from ledger_records import DELTA, charged
from scipy import stats

from quorum_rl.budget import Ledger, certificate, verify
from quorum_rl.budget.verifier import (
    TOLERANCE,
    _iteration,
    _passing_below_theta,
    independent_epsilon,
)
from quorum_rl.errors import QuorumError
from quorum_rl.privacy.accounting import total_epsilon
from quorum_rl.privacy.events import Event, ReleaseEvent, TrainingEvent


@pytest.fixture(scope="module")
def long_release(release: ReleaseEvent) -> ReleaseEvent:
    return replace(release, iterations=400)


@pytest.fixture(scope="module")
def stopping(release: ReleaseEvent) -> ReleaseEvent:
    """No floor: theta − 1 = 1/(β(e^ε − 1)), a little more."""
    theta = 1.001 + 1 / (0.1 * math.expm1(release.query_epsilon))
    offset = release.threshold - release.theta
    return replace(release, p_min=0.0, stop_probability=0.1, theta=theta, threshold=theta + offset)


@pytest.mark.parametrize("delta", [DELTA, 1e-5])
def test_it_agrees_with_the_accounting(
    release: ReleaseEvent,
    long_release: ReleaseEvent,
    stopping: ReleaseEvent,
    training: TrainingEvent,
    delta: float,
) -> None:
    """Each is an upper bound of the same number: neither may be far above the other."""
    combinations: list[tuple[Event, ...]] = [
        (replace(release, iterations=1),),
        (release,),
        (long_release,) if delta == DELTA else (release,),
        (stopping,),
        (training,),
        (release, training),
        (stopping, training, release),
    ]
    for events in combinations:
        accounted, found = total_epsilon(events, delta), independent_epsilon(events, delta)
        assert found == pytest.approx(accounted, rel=TOLERANCE)


def test_an_honest_certificate_holds(long_release: ReleaseEvent, training: TrainingEvent) -> None:
    record = charged(long_release, training)
    verified = verify(record, epsilon=certificate(record).epsilon)
    assert verified.holds
    assert verified.reasons == ()
    assert verified.delta == DELTA


def test_an_event_that_is_not_what_was_certified_is_caught(
    release: ReleaseEvent, training: TrainingEvent
) -> None:
    claimed = certificate(charged(release, training)).epsilon
    offset = release.threshold - release.theta
    mutations: dict[str, Event] = {
        "offset halved": replace(release, threshold=release.theta + offset / 2),
        "query noise halved": replace(release, query_epsilon=2 * release.query_epsilon),
        "threshold noise halved": replace(release, threshold_epsilon=2 * release.threshold_epsilon),
        "theta halved": replace(release, theta=release.theta / 2),
        "floor halved": replace(release, p_min=release.p_min / 2),
        "one more iteration": replace(release, iterations=release.iterations + 1),
        "pool too small": replace(release, pool_size=1),
        "pool missing": replace(release, pool_size=0),
    }
    for name, mutated in mutations.items():
        verified = verify(charged(mutated, training), epsilon=claimed)
        assert not verified.holds, name
        assert "the events cost up to" in verified.reasons[0]
    for changed in ({"steps": 1100}, {"noise_multiplier": 1.9}, {"sampling_rate": 0.043}):
        slack = replace(training, **changed)
        assert not verify(charged(release, slack), epsilon=claimed).holds


def test_a_stopping_release_with_theta_too_low_is_caught(stopping: ReleaseEvent) -> None:
    claimed = certificate(charged(stopping)).epsilon
    assert verify(charged(stopping), epsilon=claimed).holds
    lower = (stopping.theta + 1) / 2
    mutated = replace(stopping, theta=lower, threshold=stopping.threshold - stopping.theta + lower)
    assert not verify(charged(mutated), epsilon=claimed).holds


def test_what_numbers_cannot_mend_is_a_reason(release: ReleaseEvent) -> None:
    first = charged(release).charges[0]
    assert "more than once" in verify(charged(release, charges=(first, first))).reasons[0]
    assert "whole budget" in verify(charged(release, torn=True), epsilon=50.0).reasons[0]
    assert verify(charged(release, torn=True), epsilon=100.0).holds
    assert "mode paper" in verify(charged(replace(release, mode="paper"))).reasons[0]
    with pytest.raises(QuorumError, match="has no budget"):
        verify(charged(release, kind="research", epsilon=None))


def test_an_empty_ledger_costs_nothing(tmp_path: Any) -> None:
    record = Ledger.create(tmp_path / "ledger.jsonl", epsilon=1.0, delta=DELTA)
    assert verify(record).holds
    assert verify(record).epsilon == 0


@pytest.mark.parametrize(("query", "threshold"), [(0.7, 0.9), (0.9, 0.7), (0.8, 0.8), (0.2, 2.0)])
def test_the_chance_of_passing_below_theta_is_that_of_the_discrete_noise(
    release: ReleaseEvent, query: float, threshold: float
) -> None:
    """Against SciPy's discrete Laplace, summed over a lattice coarse enough to sum over.

    The bound may be above by what its two steps of the lattice allow, e^(2·rate·step) and a bit.
    """
    step = 2.0**-5
    event = replace(
        release,
        theta=10.0,
        threshold=25.0,
        query_epsilon=query,
        threshold_epsilon=threshold,
        lattice_bits=5,
    )
    noise = np.arange(-6000, 6001)
    chance = stats.dlaplace(threshold * step).pmf(noise)
    exact = float(chance @ stats.dlaplace(query * step).sf(15 / step + noise))
    bound = _passing_below_theta(event)
    assert exact <= bound <= exact * math.exp(3 * max(query, threshold) * step)


def test_the_search_over_contributions_finds_the_maximum(release: ReleaseEvent) -> None:
    """Where the maximum lies inside: u = 1/ε_q − c0, by calculus."""
    least = 0.6
    theta = 1 + least * release.p_max / release.p_min
    event = replace(release, theta=theta, threshold=theta + 30, query_epsilon=1.0)
    expected = math.log(1 + 0.4 / least) + 0.6 + release.threshold_epsilon
    assert expected <= _iteration(event).removal <= expected + 1e-5
