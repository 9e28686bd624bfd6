"""Smoothing: the paper's rule and the mixture, as mathematics."""

from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as st_numpy

from quorum_rl.errors import QuorumError
from quorum_rl.experts import CallableExperts
from quorum_rl.experts.checks import Probabilities
from quorum_rl.experts.expert_set import LoggedExperts
from quorum_rl.experts.smoothing import RULES, near_greedy, smoothed_by

PROBABILITIES = np.array([[0.2, 0.5, 0.3], [0.4, 0.4, 0.2], [0.0, 0.0, 1.0]])


def experts_with(table: Probabilities) -> CallableExperts:
    """One expert whose answer to the state [row] is that row of a table."""
    return CallableExperts(
        [lambda states: table[states[:, 0].astype(int)]],
        observation_size=1,
        action_count=table.shape[1],
    )


def states_of(table: Probabilities) -> np.ndarray:
    return np.arange(len(table))[:, None]


@st.composite
def policies_and_floors(draw: st.DrawFn) -> tuple[Probabilities, float]:
    action_count = draw(st.integers(2, 7))
    weights = draw(
        st_numpy.arrays(
            np.float64,
            (4, action_count),
            elements=st.sampled_from([0.0, 1.0]) | st.floats(1e-6, 1.0),
        )
    )
    weights[weights.sum(axis=1) == 0] = 1.0
    share = draw(st.floats(1e-6, 1.0))
    return weights / weights.sum(axis=1, keepdims=True), share / action_count


def test_the_greedy_action_gets_what_the_papers_rule_leaves_and_ties_go_to_the_first() -> None:
    found = experts_with(PROBABILITIES).smoothed(0.05).probabilities(states_of(PROBABILITIES))
    expected = [[[0.05, 0.9, 0.05], [0.9, 0.05, 0.05], [0.05, 0.05, 0.9]]]
    np.testing.assert_allclose(found, expected, rtol=1e-15)


def test_mixing_with_the_uniform_policy_keeps_the_policys_own_proportions() -> None:
    made = experts_with(PROBABILITIES).mixed_with_uniform(0.1)
    found = made.probabilities(states_of(PROBABILITIES))
    expected = [[[0.24, 0.45, 0.31], [0.38, 0.38, 0.24], [0.1, 0.1, 0.8]]]
    np.testing.assert_allclose(found, expected, rtol=1e-14)


@settings(derandomize=True)
@given(policies_and_floors())
def test_smoothing_gives_distributions_whose_least_probability_is_exactly_the_floor(
    case: tuple[Probabilities, float],
) -> None:
    table, p_min = case
    made = experts_with(table).smoothed(p_min)
    (found,) = made.probabilities(states_of(table))
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=0, atol=1e-15)
    assert (found.min(axis=1) == p_min).all()
    assert made.p_min == p_min


@settings(derandomize=True)
@given(policies_and_floors())
def test_smoothing_preserves_the_likeliest_action_and_makes_it_the_only_likely_one(
    case: tuple[Probabilities, float],
) -> None:
    table, p_min = case
    (found,) = experts_with(table).smoothed(p_min).probabilities(states_of(table))
    (original,) = experts_with(table).probabilities(states_of(table))
    if p_min < 0.99 / table.shape[1]:
        np.testing.assert_array_equal(found.argmax(axis=1), original.argmax(axis=1))
        assert ((found > p_min).sum(axis=1) == 1).all()


@settings(derandomize=True)
@given(policies_and_floors())
def test_mixing_reaches_the_floor_for_any_stochastic_policy_and_keeps_its_order(
    case: tuple[Probabilities, float],
) -> None:
    table, p_min = case
    made = experts_with(table).mixed_with_uniform(p_min)
    (found,) = made.probabilities(states_of(table))
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=0, atol=1e-14)
    assert (found >= p_min).all()
    assert (found[table == 0] == p_min).all()
    order = np.argsort(table, axis=1, kind="stable")
    assert (np.diff(np.take_along_axis(found, order, axis=1), axis=1) >= -1e-15).all()
    assert made.p_min == p_min


@pytest.mark.parametrize("action_count", range(2, 50))
def test_the_largest_floor_makes_both_rules_uniform(action_count: int) -> None:
    table = np.eye(action_count)
    for made in (
        experts_with(table).smoothed(1 / action_count),
        experts_with(table).mixed_with_uniform(1 / action_count),
    ):
        found = made.probabilities(states_of(table))
        assert (found >= 1 / action_count).all()
        np.testing.assert_allclose(found, 1 / action_count, rtol=1e-13)


@pytest.mark.parametrize("p_min", [0.0, -0.01, 0.34, 1.0, float("nan"), float("inf")])
def test_a_floor_that_no_policy_can_have_is_refused(p_min: float) -> None:
    experts = experts_with(PROBABILITIES)
    with pytest.raises(QuorumError, match=r"p_min is .* 3 actions .* at most 1/3"):
        experts.smoothed(p_min)
    with pytest.raises(QuorumError, match=r"p_min is .* 3 actions .* at most 1/3"):
        experts.mixed_with_uniform(p_min)


def test_smoothing_leaves_the_original_experts_as_they_were() -> None:
    experts = experts_with(PROBABILITIES)
    made = experts.smoothed(0.05)
    np.testing.assert_array_equal(experts.probabilities(states_of(PROBABILITIES))[0], PROBABILITIES)
    assert (experts.p_min, made.p_min, len(made)) == (0.0, 0.05, 1)
    assert (made.action_count, made.observation_size) == (3, 1)


@pytest.mark.parametrize("rule", RULES)
def test_the_rules_are_the_same_in_jax_as_in_numpy(rule: str) -> None:
    found = jax.jit(RULES[rule], static_argnums=1)(jnp.asarray(PROBABILITIES, jnp.float32), 0.05)
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, RULES[rule](PROBABILITIES, 0.05), rtol=2e-7)


def test_the_paper_rule_applies_along_the_last_axis_of_any_stack() -> None:
    stack = np.random.default_rng(1).dirichlet(np.ones(4), size=(2, 3, 5))
    found = near_greedy(stack, 0.1)
    for index in np.ndindex(2, 3, 5):
        np.testing.assert_array_equal(found[index], near_greedy(stack[index], 0.1))


def test_experts_are_smoothed_once_only() -> None:
    """Logs name one rule and one floor; a second smoothing could not be asked again."""
    experts = CallableExperts(
        [lambda observations: np.full((len(observations), 2), 0.5)],
        observation_size=1,
        action_count=2,
    )
    for first, second in product(RULES, repeat=2):
        with pytest.raises(QuorumError, match="smoothed already"):
            smoothed_by(second, smoothed_by(first, experts, 0.1), 0.05)  # type: ignore[arg-type]


def test_a_set_shows_nobody_in_its_repr() -> None:
    def secret(observations: Any) -> Any:
        return np.full((len(observations), 2), 0.5)

    experts = CallableExperts([secret, secret], observation_size=1, action_count=2)
    for shown in (experts, experts.smoothed(0.1), LoggedExperts(experts)):
        assert "secret" not in repr(shown)
