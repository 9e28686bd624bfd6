"""A policy takes the actions of the learner it came from, ties included, and refuses nonsense."""

from dataclasses import FrozenInstanceError, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from policies import (
    ACTIONS,
    INPUTS,
    LEARNERS,
    network_of,
    random_observations,
    random_params,
    values_in_float64,
    whole_observations,
    whole_policies,
)

from quorum_rl.errors import QuorumError
from quorum_rl.learners import Cql, Decision, DenseLearner, Networks, Outputs
from quorum_rl.learners.learner import outputs_of
from quorum_rl.pipeline.export import policy_of
from quorum_rl.policy import Layer, Policy

ROWS = 5000
ROUNDING = 1e-5  # of float32 sums of this length and size


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda one: f"{one.name}-{one.hidden_sizes}")
def test_a_policy_takes_the_actions_of_its_learner(learner: DenseLearner) -> None:
    params, observations = random_params(learner), random_observations(ROWS)
    policy = policy_of(learner, params)
    expected = np.asarray(jax.jit(learner.act)(params, observations))
    near_a_tie = nearly_tied(learner, params, observations)
    assert near_a_tie.mean() < 0.01
    np.testing.assert_array_equal(policy.act(observations)[~near_a_tie], expected[~near_a_tie])
    assert len(set(expected.tolist())) > 1
    assert (policy.observation_size, policy.action_count) == (INPUTS, ACTIONS)


def nearly_tied(learner: DenseLearner, params: Networks, observations: Any) -> Any:
    """Where rounding may decide: between the two best actions, or at the threshold."""
    outputs = outputs_of(params, learner.standardised(observations))
    decision = learner.decision()
    best = np.sort(np.asarray(learner.scores(outputs), np.float64))[:, -2:]
    near = best[:, 1] - best[:, 0] < ROUNDING
    if decision.among_likely is not None:
        ratio = np.asarray(jax.nn.softmax(outputs[decision.among_likely]), np.float64)
        ratio /= ratio.max(axis=1, keepdims=True)
        near |= (np.abs(ratio - decision.threshold) < ROUNDING).any(axis=1)
    return near


@given(policy=whole_policies())
@settings(max_examples=100, derandomize=True)
def test_of_equal_values_the_first_wins_as_in_the_learners(policy: Policy) -> None:
    observations = whole_observations(policy, 40)
    decision = Decision(policy.highest, policy.among_likely, policy.threshold)
    # Both sides are exact here, so they must agree everywhere.
    outputs = {name: jnp.asarray(in_jax(policy, name, observations)) for name in policy.networks}
    expected = np.asarray(decision.scores(outputs).argmax(axis=-1))
    np.testing.assert_array_equal(policy.act(observations), expected)
    np.testing.assert_array_equal(
        policy.values(observations), values_in_float64(policy, observations)
    )


def in_jax(policy: Policy, name: str, observations: Any) -> Any:
    return outputs_of({name: policy.networks[name]}, observations)[name]


def test_ties_are_met_in_these_tests() -> None:
    policy = made_up()
    values = policy.values(whole_observations(policy, 100))
    assert ((values == values.max(axis=1, keepdims=True)).sum(axis=1) > 1).mean() > 0.05


@given(policy=whole_policies())
@settings(max_examples=30, derandomize=True)
def test_one_observation_gets_the_action_it_gets_among_many(policy: Policy) -> None:
    observations = whole_observations(policy, 12)
    together = policy.act(observations)
    alone = [policy.act(one) for one in observations]
    assert together.dtype == np.int64
    assert together.tolist() == alone
    assert all(isinstance(action, np.int64) for action in alone)
    stacked = policy.act(observations.reshape(3, 4, -1))
    np.testing.assert_array_equal(stacked, together.reshape(3, 4))
    assert policy.act(observations[:0]).shape == (0,)


def test_numbers_of_every_kind_are_observations() -> None:
    policy = made_up()
    expected = policy.act(np.array([1, 0, 1], np.float32))
    for same in ([1, 0, 1], np.array([1, 0, 1], np.int8), np.array([True, False, True])):
        assert policy.act(same) == expected


def made_up(**other: Any) -> Policy:
    facts: dict[str, Any] = {
        "networks": {"values": network_of((3, 5, 4), 0), "likely": network_of((3, 4), 1)},
        "highest": "values",
        "among_likely": "likely",
        "threshold": 0.3,
        "learner": "made-up",
    }
    return Policy(**{**facts, **other})


@pytest.mark.parametrize(
    ("observations", "complaint"),
    [
        ([0.0, 0.0], r"shape \(2,\): give \(3,\) for one, or \(n, 3\)\.$"),
        (np.zeros((3, 2)), r"shape \(3, 2\): give"),
        (1.0, r"shape \(\): give"),
        ([[0.0, 0.0, 0.0], [0.0, float("nan"), 0.0]], "not finite in float32: give finite"),
        ([0.0, float("inf"), 0.0], "not finite in float32: give finite"),
        ([0.0, 1e300, 0.0], "not finite in float32: give finite"),
        ([0.0, 3e38, 3e38], "so large that the policy's values are not finite: give"),
        (["0", "0", "0"], "of type <U1: give numbers"),
        ([0j, 0j, 0j], "of type complex128: give numbers"),
        ([[0.0, 0.0, 0.0], [0.0]], "no array: give rows of 3"),
    ],
)
def test_observations_that_make_no_sense_are_refused(observations: Any, complaint: str) -> None:
    layer = Layer(np.full((3, 2), 9, np.float32), np.zeros(2, np.float32))
    large = Policy(networks={"v": (layer,)}, highest="v", learner="made-up")
    with pytest.raises(QuorumError, match=complaint):
        large.act(observations)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"networks": {"values": ()}}, "network 'values' has no layers"),
        ({"highest": "action_values"}, "decides by 'action_values', 'likely' but has 'values'"),
        ({"among_likely": None}, "give the networks that decide, and only those"),
        (
            {"networks": {"values": network_of((3, 4), 0), "likely": network_of((2, 4), 0)}},
            "different numbers of inputs or of outputs",
        ),
        (
            {"networks": {"values": network_of((3, 4), 0), "likely": network_of((3, 2), 0)}},
            "different numbers of inputs or of outputs",
        ),
        ({"threshold": 0.0}, "threshold is 0.0: give a number above 0 and below 1"),
        ({"threshold": 1.0}, "threshold is 1.0: give"),
        ({"threshold": 1 - 1e-12}, "threshold is 0.99.*: give"),
        ({"threshold": float("nan")}, "threshold is nan: give"),
        ({"threshold": 10**400}, "threshold is 1000.*: give"),
        ({"threshold": "0.3"}, "threshold is '0.3': give a number"),
        ({"learner": None}, "learner is None: give a text"),
        ({"world": 3}, "world is 3: give a text"),
        ({"certificate": ""}, "certificate is '': give a text"),
    ],
)
def test_parts_that_make_no_policy_are_refused(wrong: dict[str, Any], complaint: str) -> None:
    with pytest.raises(QuorumError, match=complaint):
        made_up(**wrong)


@pytest.mark.parametrize(
    "layers",
    [
        [(np.zeros((3, 4)), np.zeros(5))],
        [(np.zeros((3, 4)), np.zeros((1, 4)))],
        [(np.zeros(3), np.zeros(3))],
        [(np.zeros((3, 5)), np.zeros(5)), (np.zeros((4, 2)), np.zeros(2))],
        [(np.zeros((2, 3, 4)), np.zeros((2, 4)))],  # two policies at once
        [(np.zeros((3, 0)), np.zeros(0))],
    ],
)
def test_layers_that_do_not_follow_each_other_are_refused(layers: Any) -> None:
    with pytest.raises(QuorumError, match=r"layer \d of network 'v' has a weight \("):
        Policy(networks={"v": layers}, highest="v", learner="made-up")


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 1e39])
def test_weights_that_are_not_finite_are_refused(number: float) -> None:
    for layer in (
        Layer(np.full((3, 2), number), np.zeros(2)),
        Layer(np.zeros((3, 2)), np.full(2, number)),
    ):
        with pytest.raises(QuorumError, match="'v' has a number that is not finite"):
            Policy(networks={"v": (layer,)}, highest="v", learner="made-up")


def test_a_policy_cannot_change_under_its_owner() -> None:
    weight = np.ones((1, 2), np.float32)
    policy = Policy(
        networks={"v": (Layer(weight, np.array([0, 1], np.float32)),)},
        highest="v",
        learner="made-up",
    )
    weight[0] = [9, 0]  # it has arrays of its own
    assert policy.act([1.0]) == 1
    with pytest.raises(ValueError, match="read-only"):
        policy.networks["v"][0].weight[0] = 9
    with pytest.raises(TypeError):
        policy.networks["v"] = ()  # type: ignore[index]
    with pytest.raises(FrozenInstanceError):
        policy.world = "CartPole"  # type: ignore[misc]
    assert replace(policy, world="CartPole").world == "CartPole"


class Scoring(Cql):
    def scores(self, outputs: Outputs) -> jax.Array:
        return -outputs["action_values"]


class Silent(DenseLearner):
    def output_sizes(self, action_count: int) -> dict[str, int]:
        return {"policy": action_count}

    def loss_from_outputs(self, outputs: Outputs, goal: Any, transition: Any) -> jax.Array:
        raise NotImplementedError


class Misnaming(Silent):
    def decision(self) -> Decision:
        return Decision("polices")


@pytest.mark.parametrize(
    ("learner", "complaint"),
    [
        (Scoring(), "policies of Scoring act by code: give sizes"),
        (Silent(), "Silent does not say how it decides: define its method decision"),
        (Misnaming(), "decides by 'polices', .* name in its decision one of policy"),
        (object(), "policies of object act by code: give sizes"),
    ],
)
def test_a_learner_that_does_not_say_how_it_decides_is_told_how(
    learner: Any, complaint: str
) -> None:
    params = {"policy": network_of((3, 4), 0), "action_values": network_of((3, 4), 0)}
    with pytest.raises(QuorumError, match=complaint):
        policy_of(learner, params)


def test_a_policy_keeps_only_what_decides_and_what_is_said_about_it() -> None:
    own = LEARNERS[-1]
    policy = policy_of(own, random_params(own), world="CartPole", certificate="ab12")
    assert set(policy.networks) == {"policy"}
    assert (policy.learner, policy.world, policy.certificate) == ("iql", "CartPole", "ab12")
    assert "array" not in repr(policy)
