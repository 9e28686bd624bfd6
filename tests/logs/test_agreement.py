"""Agreement: prefix counts against the definition, and experts reunited with their logs."""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from quorum_rl.envs import with_params
from quorum_rl.envs.cartpole import CartPole
from quorum_rl.errors import QuorumError
from quorum_rl.experts import CallableExperts, LoggedExperts, Population, UnloggedExperts
from quorum_rl.experts.networks import Layer
from quorum_rl.logs import Declared, Demonstrations, as_they_acted, collect, from_episodes
from quorum_rl.logs.agreement import agreement_curve, prefix_counts

WORLD = CartPole()


def population(experts: int = 5) -> Population:
    rng = np.random.default_rng(0)
    weight: Any = rng.normal(0, 1.5, (experts, 4, 2)).astype(np.float32)
    bias: Any = rng.normal(0, 0.7, (experts, 2)).astype(np.float32)
    return Population(observation_size=4, action_count=2, network=(Layer(weight, bias),))


def collected(experts: UnloggedExperts) -> tuple[Demonstrations, LoggedExperts]:
    params = with_params(WORLD, time_limit=12)
    return collect(experts, WORLD, params, trajectories=3, seed=1)


def test_prefix_counts_are_sums_of_products() -> None:
    log, experts = collected(population().mixed_with_uniform(0.1))
    counts = prefix_counts(experts, log)
    for number, episode in enumerate(log):
        asked = experts.probabilities(episode.observations[:-1])
        for length in range(1, len(episode.actions) + 1):
            by_hand = sum(
                np.prod([asked[i, j, episode.actions[j]] for j in range(length)])
                for i in range(len(experts))
            )
            assert counts[number, length - 1] == pytest.approx(by_hand, rel=1e-12)
        assert (counts[number, len(episode.actions) :] == 0).all()


def test_prefix_counts_of_all_action_sequences_add_up_to_the_experts() -> None:
    """In states that do not depend on actions, the probabilities of all sequences sum to one."""
    chance = 0.3

    def leaning(observations: Any) -> Any:
        return np.tile([chance, 1 - chance], (len(observations), 1))

    experts = CallableExperts([leaning] * 4, observation_size=1, action_count=2)
    sequences = list(product([0, 1], repeat=3))
    log = from_episodes(
        Declared(action_count=2, observation_size=1, horizon=3),
        expert=np.zeros(len(sequences)),
        length=np.full(len(sequences), 3),
        observations=np.zeros((4 * len(sequences), 1)),
        actions=np.concatenate(sequences),
        rewards=np.zeros(3 * len(sequences)),
        terminated=np.zeros(len(sequences), bool),
        truncated=np.ones(len(sequences), bool),
    )
    counts = prefix_counts(LoggedExperts(experts), log)
    assert counts[:, 2].sum() == pytest.approx(4)
    assert counts[0, 1] == pytest.approx(4 * chance**2)


def test_the_curve_falls_with_length_and_counts_only_episodes_that_are_as_long() -> None:
    log, experts = collected(population().smoothed(0.02))
    curve = agreement_curve(experts, log, trajectories=100)
    lengths = np.asarray(log.episodes.length)
    assert curve.trajectories.tolist() == [(lengths > k).sum() for k in range(lengths.max())]
    counts = prefix_counts(experts, log) / len(experts)
    assert curve.mean[0] == pytest.approx(counts[:, 0].mean())
    assert curve.quantiles[0, 2] == pytest.approx(np.median(counts[:, 0]))


@pytest.mark.parametrize("rule", ["smoothed", "mixed_with_uniform"])
def test_experts_are_smoothed_again_just_as_they_acted(rule: str) -> None:
    originals = population()
    acted = getattr(originals, rule)(0.05)
    log, _ = collected(acted)
    states = log.columns.observations[:7]
    reunited = as_they_acted(originals, log)
    np.testing.assert_array_equal(reunited.probabilities(states), acted.probabilities(states))
    assert reunited.p_min == 0.05


def test_experts_that_acted_as_they_are_stay_as_they_are() -> None:
    originals = population()
    log, _ = collected(originals)
    assert as_they_acted(originals, log).generated_by is originals


@pytest.mark.parametrize(("smoothing", "named"), [("magic", "magic"), (None, "LoggedExperts")])
def test_a_log_that_does_not_say_how_its_experts_were_smoothed_needs_a_promise(
    smoothing: str | None, named: str
) -> None:
    log, _ = collected(population())
    declared = replace(log.declared, smoothing=smoothing, p_min=0.1)
    with pytest.raises(QuorumError, match=named):
        as_they_acted(population(), Demonstrations(declared, log.columns, log.episodes))


def test_experts_that_cannot_be_the_originals_are_refused() -> None:
    log, _ = collected(population().smoothed(0.02))
    with pytest.raises(QuorumError, match="smoothed already"):
        as_they_acted(population().smoothed(0.02), log)
    unsmoothed, _ = collected(population())
    other_floor = replace(population(), p_min=1e-9)
    with pytest.raises(QuorumError, match="floor"):
        as_they_acted(other_floor, unsmoothed)


def test_a_few_experts_in_states_of_their_own_answer_as_in_company() -> None:
    states = np.random.default_rng(1).normal(size=(2, 40, 4)).astype(np.float32)
    for experts in (population(), population().smoothed(0.02)):
        answers = experts.among(slice(2, 4))(states)
        for answer, number, own in zip(answers, (2, 3), states, strict=True):
            np.testing.assert_array_equal(answer, experts.probabilities(own)[number])
