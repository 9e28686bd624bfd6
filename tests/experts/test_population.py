"""A stacked population: the same number however it is asked, and the number NumPy computes."""

import re
from typing import Any

import jax
import numpy as np
import pytest

from quorum_rl.errors import QuorumError
from quorum_rl.experts import LoggedExperts, Population, check_batch_independence
from quorum_rl.experts.networks import Layer
from quorum_rl.experts.smoothing import Rule, smoothed_by


def by_numpy(population: Population, states: Any) -> Any:
    """Softmax of each expert's network, one expert after the other, in double precision."""
    every = []
    for expert in range(len(population)):
        hidden: Any = np.asarray(states, np.float64)
        for number, layer in enumerate(population.network):
            hidden = hidden @ np.float64(layer.weight[expert]) + np.float64(layer.bias[expert])
            if number < len(population.network) - 1:
                hidden = np.tanh(hidden)
        powers = np.exp(hidden - hidden.max(axis=1, keepdims=True))
        every.append(powers / powers.sum(axis=1, keepdims=True))
    return np.array(every)


@pytest.fixture(scope="module")
def states() -> Any:
    return np.random.default_rng(3).normal(0, 2, (50, 4)).astype(np.float32)


def test_the_tests_run_on_two_devices_and_the_experts_fill_no_block(population: Population) -> None:
    assert len(jax.devices()) == 2
    assert len(population) % 32


def test_probabilities_are_those_that_numpy_computes(population: Population, states: Any) -> None:
    found = population.probabilities(states)
    expected = by_numpy(population, states)
    assert found.shape == (37, 50, 3)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    # The experts are of one mind neither with themselves nor with one another.
    assert expected.min() < 0.01
    assert (np.bincount(expected.argmax(axis=-1).ravel()) > 100).all()


def test_an_answer_does_not_depend_on_what_else_is_asked_to_the_last_bit(
    population: Population, states: Any
) -> None:
    check_batch_independence(population, states[:35], tolerance=0.0)


def test_a_state_has_one_answer_wherever_it_stands_in_a_query(
    population: Population, states: Any
) -> None:
    together = population.probabilities(states)
    order = np.random.default_rng(0).permutation(len(states))
    np.testing.assert_array_equal(population.probabilities(states[order]), together[:, order])
    many = np.repeat(states[:1], 200, axis=0)
    np.testing.assert_array_equal(
        population.probabilities(many), np.repeat(together[:, :1], 200, axis=1)
    )


@pytest.mark.parametrize("chunk", [slice(0, 5), slice(30, 37), slice(5, 37, 8), slice(-3, None)])
def test_any_slice_of_experts_gives_the_same_bits(
    population: Population, states: Any, chunk: slice
) -> None:
    np.testing.assert_array_equal(
        population.probabilities_of(chunk, states), population.probabilities(states)[chunk]
    )


@pytest.mark.parametrize("rows", [1, 5, 33])
def test_experts_in_states_of_their_own_answer_as_when_queried_bit_for_bit(
    population: Population, rows: int
) -> None:
    own = np.random.default_rng(rows).normal(0, 2, (37, rows, 4)).astype(np.float32)
    found = population.among(slice(None))(own)
    for expert in range(37):
        asked = population.probabilities_of(slice(expert, expert + 1), own[expert])[0]
        np.testing.assert_array_equal(found[expert], asked)


def test_asking_nobody_or_nothing_gives_empty_answers(population: Population) -> None:
    assert population.probabilities_of(slice(5, 5), np.zeros((3, 4))).shape == (0, 3, 3)
    assert population.probabilities(np.zeros((0, 4))).shape == (37, 0, 3)


def test_an_expert_with_a_broken_weight_is_named(population: Population, states: Any) -> None:
    first, *rest = population.network
    weight = np.array(first.weight)
    weight[35, 0, 0] = np.nan
    broken = Population(
        observation_size=4,
        action_count=3,
        network=(Layer(weight, first.bias), *rest),
    )
    with pytest.raises(QuorumError, match=r"expert 35 .*nan"):
        broken.probabilities(states)
    broken.probabilities_of(slice(0, 35), states)
    actions = np.arange(len(states)) % 3
    for rule in (None, "greedy", "uniform mixture"):
        found, wanted = (
            (each if rule is None else smoothed_by(rule, each, 0.02)).taken_probabilities(
                slice(None), states, actions
            )
            for each in (broken, population)
        )
        others = np.arange(len(population)) != 35
        assert np.isnan(found[35]).all()
        np.testing.assert_array_equal(found[others], wanted[others])


def test_a_query_does_not_depend_on_whether_a_promised_floor_is_kept(
    population: Population, states: Any
) -> None:
    """A release asks; if a broken promise stopped it, its end would tell about an expert."""
    promised = Population(observation_size=4, action_count=3, network=population.network, p_min=0.3)
    found = promised.probabilities(states)
    assert found.min() < 0.3
    np.testing.assert_array_equal(found, population.probabilities(states))


def test_common_states_get_the_bits_of_own_states(population: Population, states: Any) -> None:
    """What is queried is what acted, also when the actions alone are asked for."""
    own = population.among(slice(None))(np.broadcast_to(states, (len(population), *states.shape)))
    np.testing.assert_array_equal(population.probabilities(states), own)
    everyone = slice(0, len(population))
    greedy = population.greedy_actions(everyone, states)
    np.testing.assert_array_equal(greedy, own.argmax(axis=-1))
    actions = np.arange(len(states)) % 3
    taken = population.taken_probabilities(everyone, states, actions)
    np.testing.assert_array_equal(taken, own[:, np.arange(len(states)), actions])


@pytest.mark.parametrize("rule", ["greedy", "uniform mixture"])
def test_the_probability_of_the_taken_action_is_that_of_the_whole_answer(
    population: Population, states: Any, rule: Rule
) -> None:
    experts = LoggedExperts(smoothed_by(rule, population, 0.02))
    actions = np.arange(len(states)) % 3
    some = slice(2, len(population))
    whole = experts.probabilities_of(some, states)[:, np.arange(len(states)), actions]
    np.testing.assert_array_equal(experts.taken_probabilities(some, states, actions), whole)


def test_observations_of_another_width_are_refused(population: Population) -> None:
    with pytest.raises(QuorumError, match=re.escape("shape (2, 5): these experts take (rows, 4)")):
        population.probabilities(np.zeros((2, 5)))
