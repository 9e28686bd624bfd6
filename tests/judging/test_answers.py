"""Intervals of the judges' answers: they cover as often as they say, and tell as much as they can.

Coverage is that of the truth in the population of whom the experts are a sample: over 2000 runs,
each with new experts, new coins and new noise.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import brentq
from scipy.stats import binomtest, norm, t

from quorum_rl.judging import (
    Answer,
    Judges,
    JudgingPlan,
    ValuePlan,
    Verdict,
    best_of,
    verdicts,
)
from quorum_rl.judging.answers import Sum, mean_answer, share_answer
from quorum_rl.privacy import noise_multiplier_for

Floats = npt.NDArray[np.float64]
Population = Callable[[np.random.Generator, int], tuple[Floats, Floats, Floats]]

RUNS = 2000
FALSE_ALARM = 1e-4  # of each test: it falls short of 95%
SHARE = 0.15


def planned(experts: int, epsilon: float, actions: int = 2) -> JudgingPlan:
    noise = noise_multiplier_for(steps=1, sampling_rate=1.0, epsilon=epsilon, delta=1 / experts)
    return JudgingPlan(
        judges=Judges(share=SHARE, return_bounds=(-1, 1)),
        action_count=actions,
        expected=SHARE * experts,
        noise_multiplier=noise,
    )


def alike(rng: np.random.Generator, count: int) -> tuple[Floats, Floats, Floats]:
    """Mean returns, shares of action 0, agreement: 0.3, 1/2 and 0.9 in the mean."""
    return (
        np.clip(rng.normal(0.3, 0.15, count), -1, 1),
        rng.beta(5, 5, count),
        rng.beta(18, 2, count),
    )


def at_odds(rng: np.random.Generator, count: int) -> tuple[Floats, Floats, Floats]:
    """The same means with the most spread there is."""
    return (
        np.where(rng.random(count) < 0.65, 1.0, -1.0),
        (rng.random(count) < 0.5).astype(float),
        (rng.random(count) < 0.9).astype(float),
    )


def at_the_edge(rng: np.random.Generator, count: int) -> tuple[Floats, Floats, Floats]:
    """Nearly all at the upper bound: means of 0.3 would be far from it, so these are others."""
    return 1 - 2 * rng.beta(1, 19, count), rng.beta(1, 19, count), rng.beta(99, 1, count)


POPULATIONS: dict[Population, tuple[float, float]] = {
    alike: (0.3, 0.9),
    at_odds: (0.3, 0.9),
    at_the_edge: (0.9, 0.99),
}


def run(
    plan: JudgingPlan, population: Population, experts: int, rng: np.random.Generator
) -> Verdict:
    """One verdict, from vectors put together here and noise from NumPy."""
    count = rng.binomial(experts, SHARE)
    earned, first, agrees = population(rng, count)
    shares = np.stack([first, 1 - first])
    rows = [
        np.ones(count),
        earned,
        2 * earned**2 - 1,
        2 * agrees - 1,
        2 * (2 * agrees - 1) ** 2 - 1,
    ]
    sums = np.array([row.sum() for row in (*rows, *shares * agrees, *shares * (1 - agrees))])
    noise = [np.full(block.size, plan.deviation(name)) for name, block in plan.blocks.items()]
    return verdicts(sums + np.concatenate(noise) * rng.standard_normal(len(sums)), plan)[0]


def returns_of(found: Verdict) -> Answer:
    assert found.mean_return is not None
    return found.mean_return


@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize(("experts", "epsilon"), [(150, 1.0), (300, 3.0), (1000, 1.0)])
def test_intervals_cover_as_often_as_they_say(
    population: Population, experts: int, epsilon: float
) -> None:
    plan, rng = planned(experts, epsilon), np.random.default_rng([experts, 7])
    mean, agreement = POPULATIONS[population]
    covered = np.zeros(4, int)
    for _ in range(RUNS):
        found = run(plan, population, experts, rng)
        answers = (returns_of(found), found.agreement, *found.agreement_by_action)
        truths = (mean, agreement, agreement, agreement)
        covered += [a.low <= t <= a.high for a, t in zip(answers, truths, strict=True)]
    for times in covered:
        assert binomtest(int(times), RUNS, 0.95, alternative="less").pvalue > FALSE_ALARM


def test_an_interval_that_forgets_a_noise_is_caught() -> None:
    """Without the sampling of judges, or without the noise, the same test fails."""
    plan = planned(300, 3.0)
    quiet, rng = replace(plan, noise_multiplier=plan.noise_multiplier / 3), np.random.default_rng(1)
    covered = 0
    for _ in range(RUNS):
        count = rng.binomial(300, SHARE)
        earned, _, _ = alike(rng, count)
        clean = np.array([count, earned.sum(), (2 * earned**2 - 1).sum()])
        names = ("judges", "mean_return", "spread_of_returns")
        noisy = clean + [plan.deviation(name) * rng.standard_normal() for name in names]
        judges, total, spread = (
            Sum(value, quiet.deviation(name)) for name, value in zip(names, noisy, strict=True)
        )
        found = mean_answer(total, spread, judges)
        covered += found.low <= 0.3 <= found.high
    assert binomtest(covered, RUNS, 0.95, alternative="less").pvalue < FALSE_ALARM


def test_many_experts_at_a_large_epsilon_learn_much_and_few_at_a_small_one_nothing() -> None:
    """45 judges of 300 at ε = 3: the mean return within 5% of the range, where experts differ by
    7.5% of it. 22 of 150 at ε = 1: at most one run in 20 claims to know."""
    rng = np.random.default_rng(2)
    many, few = planned(300, 3.0), planned(150, 1.0)
    verdicts = [run(many, alike, 300, rng) for _ in range(200)]
    returns = [returns_of(found) for found in verdicts]
    assert np.median([(a.high - a.low) / 2 / 2 for a in returns]) < 0.05
    assert all(answer.tells for answer in returns)
    assert np.mean([found.agreement.tells for found in verdicts]) > 0.9
    for population in POPULATIONS:
        poor = [run(few, population, 150, rng) for _ in range(200)]
        for answers in ([returns_of(v) for v in poor], [v.agreement for v in poor]):
            assert np.mean([answer.tells for answer in answers]) <= 0.05
    assert "cannot tell" in poor[0].describe()
    assert "where they took 'treat': " in poor[0].describe(["wait", "treat", "more", "most"])


def test_where_nobody_may_judge_nothing_is_ruled_out() -> None:
    for count in (-3.0, 0.0, 0.9, 2.0):
        answer = mean_answer(Sum(0.5, 2.0), Sum(0.1, 3.0), Sum(count, 2.0))
        assert (answer.estimate, answer.low, answer.high, answer.tells) == (None, -1, 1, False)
    answer = share_answer(Sum(3.0, 2.0), Sum(-1.0, 2.0))
    assert (answer.estimate, answer.low, answer.high) == (None, 0, 1)


def test_sums_beyond_what_is_possible_do_not_make_an_answer_certain() -> None:
    """Noise may say that more agree than there are: the interval is no point for that."""
    over = share_answer(Sum(60.0, 2.0), Sum(-9.0, 2.0))
    assert (over.estimate, over.high) == (1.0, 1.0)
    assert over.low < 0.95
    beyond = mean_answer(Sum(-60.0, 2.0), Sum(40.0, 2.0), Sum(40.0, 2.0))
    assert (beyond.estimate, beyond.low) == (-1.0, -1.0)
    assert beyond.high > -0.95


def test_without_noise_a_share_has_wilsons_interval() -> None:
    answer = share_answer(Sum(30.0, 0.0), Sum(10.0, 0.0))
    z = norm.ppf(0.975)
    centre, root = 30 + z**2 / 2, z * np.sqrt(30 * 10 / 40 + z**2 / 4)
    assert [answer.low, answer.high] == pytest.approx(
        [(centre - root) / (40 + z**2), (centre + root) / (40 + z**2)]
    )


def test_without_noise_a_mean_has_students_interval_and_wilsons_where_all_are_at_odds() -> None:
    """Student's up to the second order, for what is kept is a share of the most variance."""
    x = np.random.default_rng(3).uniform(-0.5, 0.9, 3000)
    answer = mean_answer(Sum(x.sum(), 0.0), Sum((2 * x**2 - 1).sum(), 0.0), Sum(3000.0, 0.0))
    half = t.ppf(0.975, 2999) * x.std() / np.sqrt(3000)
    assert answer.estimate == pytest.approx(x.mean())
    assert [answer.low, answer.high] == pytest.approx(
        [x.mean() - half, x.mean() + half], abs=0.01 * half
    )
    signs = mean_answer(Sum(20.0, 0.0), Sum(40.0, 0.0), Sum(40.0, 0.0)).scaled(0, 1)
    z = t.ppf(0.975, 39)
    centre, root = 30 + z**2 / 2, z * np.sqrt(30 * 10 / 40 + z**2 / 4)
    assert [signs.low, signs.high] == pytest.approx(
        [(centre - root) / (40 + z**2), (centre + root) / (40 + z**2)]
    )


def test_an_interval_is_where_the_sums_are_within_their_deviation() -> None:
    """Fieller's two ends, found by bisection instead of a formula."""
    total, spread, judges = Sum(12.0, 2.0), Sum(-20.0, 3.0), Sum(40.0, 2.5)
    answer = mean_answer(total, spread, judges)
    z, mean, squares = t.ppf(0.975, 39), 12 / 40, (1 - 20 / 40) / 2
    noise = 0.5 * np.hypot(3.0, (2 * squares - 1) * 2.5) / 40 / 2
    kept = (squares - mean**2 + noise) / (1 - mean**2)

    def beyond(mu: float) -> float:
        variance = 2.0**2 + mu**2 * 2.5**2 + 40 * kept * (1 - mu**2)
        return float((12 - 40 * mu) ** 2 - z**2 * variance)

    ends = brentq(beyond, -1, mean), brentq(beyond, mean, 1)
    assert [answer.low, answer.high] == pytest.approx(ends)


MANY = 8


def of_the_chosen(level: float | None, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often the interval of the policy that judges choose holds its value, of policies that are
    all worth 0.3 and agree with everybody; at the level of the product, or at another."""
    values = ValuePlan(horizon=9, return_bounds=(-1, 1), noise_multiplier=1, expected=1,
                       action_count=2, policies=MANY)  # fmt: skip
    plan = replace(planned(300, 3.0), policies=MANY, values=values)
    if level is not None:
        monkeypatch.setattr("quorum_rl.judging.answers.COVERAGE", 1 - MANY * (1 - level))
    monkeypatch.setattr("quorum_rl.judging.answers.doubt_of", lambda *_, **__: (0.0, 0.0))
    rng, covered = np.random.default_rng(11), 0
    for _ in range(RUNS):
        count = rng.binomial(300, SHARE)
        worth = np.clip(rng.normal(0.3, 0.15, (MANY, count)), -1, 1)
        clean = {
            "judges": np.full(1, count),
            "value": worth.sum(1),
            "spread_of_value": (2 * worth**2 - 1).sum(1),
            "agreement": np.full(MANY, count),
            "spread_of_agreement": np.full(MANY, count),
        }
        told = [
            clean.get(name, np.zeros(block.size))
            + plan.deviation(name) * rng.standard_normal(block.size) * (name in clean)
            for name, block in plan.blocks.items()
        ]
        said = verdicts(np.concatenate(told), plan)
        value = said[best_of(said)].value
        assert value is not None
        covered += value.low <= 0.3 <= value.high
    return covered


def test_the_interval_of_the_chosen_policy_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    covered = of_the_chosen(None, monkeypatch)
    assert binomtest(covered, RUNS, 0.95, alternative="less").pvalue > FALSE_ALARM


def test_intervals_for_one_policy_at_a_time_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever chooses the highest of many has chosen what noise has lifted most."""
    covered = of_the_chosen(0.95, monkeypatch)
    assert binomtest(covered, RUNS, 0.95, alternative="less").pvalue < FALSE_ALARM


def test_the_first_is_chosen_where_nothing_is_known() -> None:
    known = Answer(0.2, 0.1, 0.3, (-1, 1), tells=True)
    nothing = Answer(None, -1, 1, (-1, 1), tells=False)
    blind, seeing = (Verdict(None, nothing, (), value=value) for value in (nothing, known))
    assert best_of([blind, blind]) == 0
    assert best_of([blind, seeing, blind]) == 1
    assert best_of([Verdict(None, nothing, ())]) == 0
