"""What a fit is like where nobody chose: by declared numbers alone; refused where it is noise."""

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from fits import Crowd, fitted, named
from hypothesis import given, settings, strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

from quorum_rl.errors import QuorumError
from quorum_rl.learners import Bc, Cql
from quorum_rl.logs import Declared
from quorum_rl.pipeline import FitPlan, FitSettings, plan_fit
from quorum_rl.pipeline.learner_rule import SIZES, TARGET_RATE, chosen_learner
from quorum_rl.pipeline.plan import USEFUL_NOISE
from quorum_rl.privacy import TrainingEvent

LANDER = Declared(4, 8, 1000, minimum_experts=285, minimum_trajectories=20, world="LunarLander")
DELTA = 1e-4
LOCAL = FitSettings()


def planned(
    experts: int, epsilon: float, chosen: FitSettings = LOCAL, declared: Declared = LANDER
) -> FitPlan:
    declared = replace(declared, minimum_experts=experts)
    learner = chosen_learner(declared, chosen, (epsilon, DELTA))
    return plan_fit(declared, learner, epsilon=epsilon, delta=DELTA, settings=chosen)


def hidden(plan: FitPlan) -> tuple[int, ...]:
    assert isinstance(plan.learner, Bc)
    return plan.learner.hidden_sizes


def gaussian_spread(epsilon: float, delta: float) -> float:
    """The μ of the Gaussian mechanism with that ε and δ, by its closed form (Balle and Wang)."""

    def excess(mu: float) -> float:
        tail = norm.cdf(-epsilon / mu + mu / 2)
        return float(tail - math.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2) - delta)

    return float(brentq(excess, 1e-4, 50))


@settings(max_examples=12, derandomize=True)
@given(experts=st.integers(20, 5000), epsilon=st.sampled_from([0.1, 0.5, 1.0, 3.0, 10.0]))
def test_noise_over_signal_is_that_of_one_gaussian_mechanism_with_the_whole_budget(
    experts: int, epsilon: float
) -> None:
    """√d / (m·μ), however many steps share the budget."""
    plan = planned(experts, epsilon)
    sizes = (8, *hidden(plan), 4)
    count = sum((before + 1) * after for before, after in pairwise(sizes))
    expected = math.sqrt(count) / (experts * gaussian_spread(epsilon, DELTA))
    assert plan.noise == pytest.approx(expected, rel=0.01)


def test_the_default_is_imitation_with_every_expert_in_every_step() -> None:
    plan = planned(285, 1.0)
    (event,) = plan.events
    assert isinstance(event, TrainingEvent)
    assert (event.sampling_rate, event.steps) == (1.0, 60)
    assert plan.release is None
    assert plan.private is not None
    assert plan.private.expected_batch == 285
    assert hidden(plan) == (64,)
    assert plan.mostly_noise is None


def test_fewer_experts_get_smaller_networks_and_at_last_a_linear_policy() -> None:
    plans = [planned(experts, 1.0) for experts in (950, 285, 95, 70, 28)]
    assert [hidden(plan) for plan in plans] == [(64,), (64,), (32,), (32,), ()]
    for plan in plans:
        smaller = next(most for sizes, most in SIZES if sizes == hidden(plan))
        assert plan.noise <= smaller or hidden(plan) == ()


def test_networks_that_are_asked_for_are_taken_whatever_the_noise() -> None:
    declared = replace(LANDER, minimum_experts=28)
    learner = chosen_learner(declared, LOCAL, (1.0, DELTA), "bc", {"hidden_sizes": (64, 64)})
    assert learner.hidden_sizes == (64, 64)


@pytest.mark.parametrize(
    ("method", "kind"), [("local", Bc), ("solve", Bc), ("dp-sgd", Cql), ("selective", Cql)]
)
def test_auto_imitates_except_in_the_papers_methods(method: Any, kind: type) -> None:
    assert isinstance(chosen_learner(LANDER, FitSettings(method=method), (1.0, DELTA)), kind)


def test_a_target_moves_further_in_a_step_of_many() -> None:
    local = chosen_learner(LANDER, LOCAL, (1.0, DELTA), "cql")
    steps = chosen_learner(LANDER, FitSettings(method="dp-sgd"), (1.0, DELTA), "cql")
    assert local.target_rate == TARGET_RATE > steps.target_rate


@pytest.mark.parametrize("method", ["local", "solve", "dp-sgd"])
def test_a_plan_says_that_it_would_be_mostly_noise(method: Any) -> None:
    plan = planned(20, 0.01, FitSettings(method=method))
    assert plan.noise > USEFUL_NOISE[method]
    assert plan.mostly_noise is not None
    assert "mostly noise" in plan.mostly_noise
    assert f"noise over signal: {plan.noise:.2g}" in plan.describe()


@pytest.mark.parametrize(("epsilon", "queried"), [(1e-6, True), (1e-6, False), (1e-3, False)])
def test_a_fit_that_would_be_noise_is_refused_before_anything_is_written_or_charged(
    everyone: Crowd, tmp_path: Path, epsilon: float, queried: bool
) -> None:
    """With and without experts to ask; an epsilon of a millionth trains nothing at any rate."""
    one = named(everyone, f"noise {epsilon} {queried}")
    folder = tmp_path / "run"
    with pytest.raises(QuorumError, match=r"nothing would be learned|is too little for 60 steps"):
        fitted(
            one,
            folder,
            epsilon=epsilon,
            delta=1e-6,
            settings=FitSettings(),
            learner="auto",
            experts=one.experts if queried else None,
        )
    assert not folder.exists()


def test_whoever_insists_may_train_on_noise(everyone: Crowd, tmp_path: Path) -> None:
    chosen = FitSettings(allow_noise=True, private_steps=2, local_steps=2)
    made = fitted(
        named(everyone, "insists"),
        tmp_path / "run",
        epsilon=1e-3,
        delta=1e-6,
        settings=chosen,
        learner="auto",
    )
    assert made.plan.mostly_noise is not None
    assert made.certificate is not None
    assert made.certificate.epsilon <= 1e-3


@pytest.mark.parametrize(
    ("choices", "says"),
    [
        ({"method": "solve", "local_steps": 5}, "method solve takes no local steps"),
        ({"method": "selective", "mode": "paper", "local_steps": 5}, "mode paper is the published"),
        ({"noise_multiplier": 0.0}, "noise_multiplier is 0.0: give a number from 0.02"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(choices: Any, says: str) -> None:
    with pytest.raises(QuorumError, match=says):
        FitSettings(**choices)


def test_local_steps_beside_a_release_are_judged_as_local_ones() -> None:
    """As useful noise goes: gradients bear more."""
    beside = FitSettings(method="selective", local_steps=5, least_released=10**9)
    plan = planned(28, 0.5, beside, replace(LANDER, p_min=0.02))
    assert 1.0 < plan.noise < 2.2
    assert plan.mostly_noise is not None
    assert "(at most 1 is useful)" in plan.describe()


def test_more_parameters_than_private_steps_take_are_refused_by_the_plan() -> None:
    large = Bc(hidden_sizes=(2100, 2100))
    with pytest.raises(QuorumError, match="parameters, and private steps take at most"):
        plan_fit(LANDER, large, epsilon=1.0, delta=DELTA, settings=LOCAL)
