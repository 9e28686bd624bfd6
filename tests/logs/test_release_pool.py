"""The release pool is decided by position and by nothing else."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from quorum_rl.errors import QuorumError
from quorum_rl.logs import Declared, Demonstrations, from_episodes, split_release_pool


def numbered(episodes_per_expert: list[int], experts: list[int] | None = None) -> Demonstrations:
    """One-step episodes whose observation is (expert, position within the expert)."""
    names = list(range(len(episodes_per_expert))) if experts is None else experts
    pairs = [
        (name, i)
        for name, count in zip(names, episodes_per_expert, strict=True)
        for i in range(count)
    ]
    total = len(pairs)
    return from_episodes(
        Declared(action_count=2, observation_size=2, horizon=1),
        expert=[expert for expert, _ in pairs],
        length=np.ones(total, dtype=int),
        observations=np.repeat(np.array(pairs).reshape(-1, 2), 2, axis=0),
        actions=np.zeros(total, dtype=int),
        rewards=np.zeros(total),
        terminated=np.ones(total),
        truncated=np.zeros(total),
    )


def content(demonstrations: Demonstrations) -> list[tuple[int, int]]:
    pairs = (episode.observations[0].tolist() for episode in demonstrations)
    return [(int(expert), int(position)) for expert, position in pairs]


counts = st.lists(st.integers(1, 6), min_size=1, max_size=8)


@settings(derandomize=True)
@given(counts, st.integers(0, 4), st.integers(0, 3))
def test_the_first_episodes_of_every_expert_with_enough_of_them_are_the_pool(
    episodes: list[int], per_expert: int, minimum: int
) -> None:
    pool, training = split_release_pool(
        numbered(episodes), per_expert=per_expert, training_minimum=minimum
    )
    kept = [e for e, count in enumerate(episodes) if count >= per_expert + minimum]
    assert content(pool) == [(e, i) for e in kept for i in range(per_expert)]
    assert content(training) == [(e, i) for e in kept for i in range(per_expert, episodes[e])]


@settings(derandomize=True)
@given(counts, st.integers(1, 3), st.data())
def test_adding_an_expert_moves_nothing_of_the_others(
    episodes: list[int], per_expert: int, data: st.DataObject
) -> None:
    gone = data.draw(st.integers(0, len(episodes) - 1))
    names = list(range(len(episodes)))
    others = names[:gone] + names[gone + 1 :]
    whole = split_release_pool(numbered(episodes), per_expert=per_expert)
    without = split_release_pool(
        numbered([episodes[e] for e in others], others), per_expert=per_expert
    )
    for part, part_without in zip(whole, without, strict=True):
        assert [pair for pair in content(part) if pair[0] != gone] == content(part_without)


def test_pool_and_training_are_views_with_the_same_experts() -> None:
    whole = numbered([3, 1, 5])
    pool, training = split_release_pool(whole, per_expert=2)
    assert pool.experts.tolist() == training.experts.tolist() == [0, 2]
    for part in (pool, training):
        assert np.shares_memory(part.columns.observations, whole.columns.observations)


def test_a_part_that_may_be_empty_can_lack_experts() -> None:
    pool, training = split_release_pool(numbered([3, 2]), per_expert=2, training_minimum=0)
    assert (pool.experts.tolist(), training.experts.tolist()) == ([0, 1], [0])


def test_no_expert_left_is_no_error_because_their_number_is_private() -> None:
    pool, training = split_release_pool(numbered([2, 3]), per_expert=5)
    for part in (pool, training):
        assert (part.expert_count, len(part), part.transition_count) == (0, 0, 0)
        assert part.transitions(np.array([], dtype=int)).observation.shape == (0, 2)
        assert part.expert_transition_offsets.tolist() == [0]


@pytest.mark.parametrize("name", ["per_expert", "training_minimum"])
def test_a_negative_number_of_episodes_is_refused(name: str) -> None:
    with pytest.raises(QuorumError, match=f"{name} is -1: give at least 0"):
        split_release_pool(numbered([2]), **({"per_expert": 1} | {name: -1}))
