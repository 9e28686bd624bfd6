"""Units from one noisy sum: right without noise, of a stated error, and no more than one expert."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from fits import crowd
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import norm

from quorum_rl.audit.bounds import gaussian_lower_bound
from quorum_rl.logs import Declared, Demonstrations, from_episodes
from quorum_rl.privacy import noise_multiplier_for, total_epsilon
from quorum_rl.training import (
    Asked,
    UnitsPlan,
    ask_units,
    experts_needed,
    noisy_sum,
    plan_units,
    told_units,
    units as room,
)

Floats = npt.NDArray[np.float64]

EXPERTS, STEPS = 12, 5
NO_KEY = np.zeros(2, np.uint32)
SEEN = (Asked(0), Asked(1, (-10.0, 10.0)), Asked(None))


def log_of(seen: Floats, rewards: Floats) -> Demonstrations:
    """Experts with one episode each. Shapes: (experts, steps + 1, size), (experts, steps)."""
    experts, states, size = seen.shape
    steps = states - 1
    return from_episodes(
        Declared(2, size, steps, minimum_experts=2),
        expert=np.arange(experts),
        length=np.full(experts, steps),
        observations=seen.reshape(-1, size),
        actions=np.zeros(experts * steps, np.int64),
        rewards=rewards.ravel(),
        terminated=np.zeros(experts, bool),
        truncated=np.ones(experts, bool),
    )


def some_log(seed: int = 0, experts: int = EXPERTS, steps: int = STEPS) -> Demonstrations:
    rng = np.random.default_rng(seed)
    seen = rng.normal(size=(experts, steps + 1, 2)) * (3000, 2) + (500, -3)
    return log_of(seen, rng.exponential(7, (experts, steps)))


def plan_of(asked: Any = SEEN, noise: float = 0.02, expected: float = EXPERTS) -> UnitsPlan:
    return UnitsPlan(asked=asked, expected=expected, noise_multiplier=noise, share=0.05)


# --- what is found ---


def test_the_square_of_the_root_adds_up() -> None:
    np.testing.assert_allclose(room._ROOT @ room._ROOT, np.tri(room.BINS), atol=1e-12)


def test_with_hardly_any_noise_units_are_numpys_quantiles() -> None:
    """Within a bin: of a factor of √2, or of a 201st of the range."""
    log = some_log(experts=60, steps=50)
    plan = plan_of(expected=60)
    wide, narrow, rewards = ask_units(told_units(log, plan), plan, NO_KEY)
    assert wide is not None
    assert narrow is not None
    assert rewards is not None
    steps = log.transitions(np.arange(log.transition_count))
    low, middle, high = np.quantile(steps.observation, (plan.tail, 0.5, 1 - plan.tail), axis=0)
    spread = (high - low) / (norm.ppf(1 - plan.tail) - norm.ppf(plan.tail))
    assert wide.centre == pytest.approx(middle[0], abs=0.3 * spread[0])
    assert wide.scale == pytest.approx(spread[0], rel=0.3)
    assert narrow.centre == pytest.approx(middle[1], abs=20 / room.BINS)
    assert narrow.scale == pytest.approx(spread[1], abs=20 / room.BINS)
    sizes = np.sqrt(np.mean(steps.reward.reshape(60, 50).astype(float) ** 2, axis=1))
    assert rewards.centre == 0
    assert rewards.scale == pytest.approx(np.median(sizes), rel=math.sqrt(2) - 1)


@given(arrays(np.float64, room.BINS, elements=st.floats(-2, 2)), st.floats(0.01, 0.99))
@settings(max_examples=50, derandomize=True)
def test_a_quantile_undoes_the_rising_shares(below: Floats, at: float) -> None:
    shares = room.rising(below)
    assert (np.diff(shares) >= 0).all()
    edges = np.linspace(-1, 1, room.BINS + 1)
    found = room.quantile(shares, edges, at)
    reached = np.interp(found, edges, [0.0, *shares])
    assert reached == pytest.approx(min(at, shares[-1]), abs=1e-6)


def test_the_error_is_what_is_stated() -> None:
    """The largest deviation over 150 keys; false alarm 1e-6."""
    plan, log = plan_of(noise=2.0), some_log()
    told = told_units(log, plan)
    keys = np.random.default_rng(0).integers(0, 2**32, (150, 2), dtype=np.uint32)
    found = np.array([room.noisy_below(told, plan, key) for key in keys]) / plan.expected
    assert found[..., -1].mean() == pytest.approx(1, abs=5 * plan.error / math.sqrt(450))
    deviations = found.std(axis=0)
    assert deviations[:, -1].mean() == pytest.approx(plan.error, rel=5 / math.sqrt(2 * 450))
    assert (deviations < plan.error * (1 + 6.5 / math.sqrt(2 * 150))).all()


@pytest.mark.parametrize(
    ("value", "asked"), [(0.0, Asked(0)), (1e12, Asked(0)), (3.0, Asked(0, (0.0, 5.0)))]
)
def test_where_nothing_is_known_there_is_no_unit(value: float, asked: Asked) -> None:
    """One value that all see, or one beyond the bins: its width is noise."""
    log = log_of(np.full((EXPERTS, STEPS + 1, 1), value), np.zeros((EXPERTS, STEPS)))
    plan = plan_of((asked, Asked(None)))
    assert ask_units(told_units(log, plan), plan, NO_KEY) == [None, None]


def test_noise_alone_is_answered_too() -> None:
    plan = plan_of(noise=1.0, expected=10.0)
    nobody = some_log().select(np.zeros(EXPERTS, bool))
    told = told_units(nobody, plan)
    assert told.shape == (0, 3 * room.BINS)
    for words in range(20):
        for unit in ask_units(told, plan, np.array([words, 1], np.uint32)):
            assert unit is None or (math.isfinite(unit.centre) and 0 < unit.scale < math.inf)


# --- the rule ---


def test_a_plan_takes_what_it_needs_and_no_more_than_a_share_of_the_budget() -> None:
    asked = tuple(Asked(place) for place in range(4))
    alone = noise_multiplier_for(steps=1, sampling_rate=1.0, epsilon=3.0, delta=1e-4)
    least = experts_needed(4, alone)
    assert plan_units(asked, alone=alone, expected=least - 1) is None
    few, many = (plan_units(asked, alone=alone, expected=n) for n in (least, 100 * least))
    assert few is not None
    assert many is not None
    assert few.share == pytest.approx(room.MOST_SHARE, rel=0.02)
    assert few.error == pytest.approx(room.MOST_ERROR, rel=0.01)
    assert many.share == room.LEAST_SHARE
    assert many.tail == room.FARTHEST_TAIL
    assert few.tail == room.NEAREST_TAIL
    assert total_epsilon([few.event], 1e-4) < 3.0
    assert few.noise_multiplier == pytest.approx(alone / math.sqrt(few.share))


# --- what is told ---

numbers = st.floats(width=32) | st.sampled_from([0.0, 1.0, 3e38, math.nan, math.inf])


@given(
    arrays(np.float32, (2 * (STEPS + 1), 2), elements=numbers),
    arrays(np.float32, 2 * STEPS, elements=numbers),
    st.sampled_from([SEEN, SEEN[:1], (Asked(0), Asked(1))]),
)
@settings(max_examples=60, derandomize=True)
def test_nobody_tells_more_than_one_whatever_is_in_the_log(
    seen: Any, rewards: Any, asked: tuple[Asked, ...]
) -> None:
    log = some_log(experts=2)
    strange = replace(log, columns=log.columns._replace(observations=seen, rewards=rewards))
    told = told_units(strange, plan_of(asked))
    assert (np.linalg.norm(told, axis=1) <= 1).all()
    assert (np.linalg.norm(told, axis=1) > 0.01).all()


def test_an_expert_of_one_step_counts_as_much_as_one_of_many() -> None:
    log = crowd().log
    few = log.select(np.arange(len(log)) == 0)
    one = np.zeros(room.BINS)
    one[room.NOTHING] = 1.0
    step = replace(few, episodes=few.episodes._replace(length=np.array([1])))
    plan = plan_of((Asked(0),))
    found = told_units(step, plan)[0]
    assert found == pytest.approx(plan.weight * room._ROOT @ one)


Telling = Callable[[Demonstrations, UnitsPlan], Floats]


def check_rows_depend_on_nobody_else(tell: Telling) -> None:
    """To the bit: one of them is replaced by somebody who sees and earns other numbers."""
    log, plan = some_log(), plan_of()
    seen, rewards = log.columns.observations.copy(), log.columns.rewards.copy()
    seen[: STEPS + 1], rewards[:STEPS] = 3e38, math.nan
    changed = replace(log, columns=log.columns._replace(observations=seen, rewards=rewards))
    before, after = tell(log, plan), tell(changed, plan)
    assert (before[1:] == after[1:]).all()
    assert (before[0] != after[0]).any()
    alone = tell(log.select(np.arange(EXPERTS) == 3), plan)
    assert (alone[0] == before[3]).all()


def within_the_data(log: Demonstrations, plan: UnitsPlan) -> Floats:
    """A BUG: ranges that are what was seen."""
    seen = log.columns.observations
    ranges = zip(seen.min(axis=0).tolist(), seen.max(axis=0).tolist(), strict=True)
    asked = tuple(Asked(place, low_high) for place, low_high in enumerate(ranges))
    return told_units(log, replace(plan, asked=asked))


def test_what_an_expert_tells_depends_on_nobody_else() -> None:
    check_rows_depend_on_nobody_else(told_units)
    with pytest.raises(AssertionError):
        check_rows_depend_on_nobody_else(within_the_data)


def clipped_apart(rows: Floats, *, noise_key: Any, **how: Any) -> Floats:
    """A BUG: a sum for each number, each as long as all may be, charged as one."""
    parts = np.split(rows * math.sqrt(len(SEEN)), len(SEEN), axis=1)
    keys = [noise_key + np.uint32(number) for number in range(len(SEEN))]
    sums = [SOUND(part, noise_key=key, **how) for part, key in zip(parts, keys, strict=True)]
    return np.concatenate(sums)


def with_half_the_noise(rows: Floats, **how: Any) -> Floats:
    """A BUG."""
    return SOUND(rows, **how | {"noise_multiplier": how["noise_multiplier"] / 2})


SOUND = noisy_sum


def found_and_claimed(monkeypatch: pytest.MonkeyPatch, bug: Any) -> tuple[float, float]:
    """The ε that an adversary proves who knows all others, and the one that is charged.

    The expert tells far more than it may, of every number.
    """
    if bug is not None:
        monkeypatch.setattr(room, "noisy_sum", bug)
    plan, delta = plan_of(noise=0.8), 0.01
    runs = 200 if bug is None else 100
    others = told_units(some_log(), plan)
    own = 5 * told_units(log_of(np.full((1, STEPS + 1, 2), -1e12), np.full((1, STEPS), 1e12)), plan)
    keys = np.random.default_rng(1).integers(0, 2**32, (2, runs, 2), dtype=np.uint32)
    sides = [
        [float((untangled(room.noisy_below(told, plan, key)) * own[0]).sum()) for key in keys[side]]
        for side, told in enumerate((np.vstack([others, own]), others))
    ]
    found = gaussian_lower_bound(sides[0], sides[1], delta)
    return found.epsilon, total_epsilon([plan.event], delta)


def untangled(below: Floats) -> Floats:
    """The sums that were noisy, from what is below each edge."""
    return np.asarray(np.linalg.solve(room._ROOT, below.T).T.ravel(), np.float64)


def test_no_more_is_found_than_is_charged_and_not_much_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, claimed = found_and_claimed(monkeypatch, None)
    assert 0.4 * claimed < found <= claimed


@pytest.mark.parametrize("bug", [clipped_apart, with_half_the_noise])
def test_a_planted_bug_is_found(bug: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found, claimed = found_and_claimed(monkeypatch, bug)
    assert found > claimed
