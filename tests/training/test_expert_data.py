"""Transitions come from the expert they should come from, each as often as any other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from quorum_rl.errors import QuorumError
from quorum_rl.logs import Declared, Demonstrations, from_episodes
from quorum_rl.training.data import (
    ExpertData,
    expert_data,
    flat_transitions,
    plain_batch,
    transitions_of,
)
from quorum_rl.types import Released, Transition

LENGTHS = (2, 3, 1, 4)
EXPERTS = (7, 7, 8, 30)


@pytest.fixture(scope="module")
def demonstrations() -> Demonstrations:
    """Three experts with 5, 1 and 4 transitions; the reward of a transition is its number."""
    steps, episodes = sum(LENGTHS), len(LENGTHS)
    states = np.random.default_rng(0).normal(size=(steps + episodes, 3)).astype(np.float32)
    return from_episodes(
        Declared(2, 3, 10, early_truncation_is_public=True),
        expert=np.asarray(EXPERTS),
        length=np.asarray(LENGTHS),
        observations=states,
        actions=np.zeros(steps, np.uint8),
        rewards=np.arange(steps, dtype=np.float32),
        terminated=np.zeros(episodes, bool),
        truncated=np.ones(episodes, bool),
    )


@pytest.fixture(scope="module")
def own_data(demonstrations: Demonstrations) -> ExpertData:
    return expert_data(demonstrations)


def test_all_transitions_are_there_in_order_of_their_experts(
    demonstrations: Demonstrations, own_data: ExpertData
) -> None:
    jax.tree.map(
        np.testing.assert_array_equal,
        own_data.transitions,
        demonstrations.transitions(np.arange(10)),
    )
    assert own_data.offsets.tolist() == [0, 5, 6, 10]
    assert own_data.expert_count == 3


def test_what_is_sensitive_is_not_printed(own_data: ExpertData) -> None:
    assert repr(own_data) == "ExpertData(sensitive)"


def test_no_experts_are_refused(demonstrations: Demonstrations) -> None:
    with pytest.raises(QuorumError, match="no expert"):
        expert_data(demonstrations.select(np.zeros(4, bool)))


def test_every_transition_of_an_expert_is_drawn_as_often_as_any_other(own_data: ExpertData) -> None:
    experts = jnp.array([2, 0, 1])
    drawn = transitions_of(own_data, experts, jax.random.key(1), 5000)
    assert drawn.observation.shape == (3, 5000, 3)
    for rewards, own in zip(np.asarray(drawn.reward), (range(6, 10), range(5), [5]), strict=True):
        numbers, counts = np.unique(rewards, return_counts=True)
        assert numbers.tolist() == list(own)
        assert stats.chisquare(counts).pvalue > 1e-6 or len(own) == 1  # false alarm: 1e-6
    states = own_data.transitions.observation[drawn.reward.astype(int)]
    np.testing.assert_array_equal(drawn.observation, states)


def test_a_draw_depends_on_the_expert_and_not_on_its_place(own_data: ExpertData) -> None:
    key = jax.random.key(2)
    together = transitions_of(own_data, jnp.array([0, 1, 2, 0]), key, 6).reward
    alone = transitions_of(own_data, jnp.array([2]), key, 6).reward
    np.testing.assert_array_equal(together[2], alone[0])
    np.testing.assert_array_equal(together[0], together[3])
    assert not np.array_equal(
        together[2], transitions_of(own_data, jnp.array([2]), jax.random.key(3), 6).reward[0]
    )


def released(count: int) -> Released:
    ends = np.zeros(count, bool)
    states = np.zeros((count, 3), np.float32)
    rows = Transition(states, np.zeros(count, np.int32), np.arange(count), states, ends, ends)  # type: ignore[arg-type]
    return Released(rows, np.array([0, count]), observation_size=3, action_count=2, horizon=10)


def test_a_plain_batch_holds_every_released_transition_as_often_as_any_other() -> None:
    everything = flat_transitions(released(7))
    batch = plain_batch(everything, jax.random.key(0), 5000)
    counts = np.bincount(np.asarray(batch.reward), minlength=7)
    assert stats.chisquare(counts).pvalue > 1e-6  # false alarm: 1e-6


def test_an_empty_release_says_what_to_do() -> None:
    with pytest.raises(QuorumError, match="release is empty"):
        flat_transitions(released(0))
