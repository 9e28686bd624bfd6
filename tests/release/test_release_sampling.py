"""Which trajectories a release looks at."""

import numpy as np
from numbered_logs import scene
from scipy.stats import chisquare

from quorum_rl.budget import SeededEntropy
from quorum_rl.logs import split_release_pool
from quorum_rl.release.sampling import draw_as_published, draw_fresh

FALSE_ALARM = 1e-6  # of the statistical tests; with fixed seeds they pass or fail for good


def test_the_rth_draw_of_an_expert_uses_its_rth_trajectory_and_then_none() -> None:
    log = scene([5, 4, 3, 6]).log
    pool = split_release_pool(log, per_expert=3, training_minimum=0).pool
    drawn = draw_fresh(pool, 40, SeededEntropy(0))
    entropy = SeededEntropy(0)
    experts = [entropy.stream("expert", iteration).below(4) for iteration in range(40)]
    for iteration, expert in enumerate(experts):
        times = experts[:iteration].count(expert)
        expected = 3 * expert + times if times < 3 else -1
        assert drawn.episode[iteration] == expected
    assert {experts.count(expert) > 3 for expert in range(4)} == {True}


def test_experts_are_drawn_uniformly_whatever_they_did_and_with_replacement() -> None:
    log = scene([5] * 10).log
    runs = [draw_fresh(log, 3, SeededEntropy(seed)).episode for seed in range(3000)]
    experts = np.array(runs) // 5
    for draw in range(3):
        assert chisquare(np.bincount(experts[:, draw], minlength=10)).pvalue > FALSE_ALARM
    again = np.sum(experts[:, 0] == experts[:, 1])
    assert chisquare([again, 3000 - again], [300, 2700]).pvalue > FALSE_ALARM


def test_an_iteration_that_drew_nothing_has_no_steps() -> None:
    pool = split_release_pool(scene([2, 2]).log, per_expert=1).pool
    drawn = draw_fresh(pool, 9, SeededEntropy(0))
    assert (drawn.episode >= 0).sum() == 2
    steps = drawn.lengths()
    np.testing.assert_array_equal(steps > 0, drawn.episode >= 0)
    states, actions = drawn.padded(4)
    assert not states[steps == 0].any()
    assert not actions[steps == 0].any()


def test_padding_keeps_the_beginning_of_each_trajectory() -> None:
    log = scene([5] * 4).log
    drawn = draw_fresh(log, 10, SeededEntropy(1))
    states, actions = drawn.padded(4)
    assert (states.shape, actions.shape) == ((10, 4, 1), (10, 4))
    for iteration, number in enumerate(drawn.episode.tolist()):
        episode = log.episode(number)
        steps = min(len(episode.actions), 4)
        np.testing.assert_array_equal(states[iteration, :steps], episode.observations[:steps])
        assert not states[iteration, steps:].any()


def test_the_published_draw_takes_no_trajectory_twice() -> None:
    log = scene([3] * 7).log
    drawn = draw_as_published(log, 21, SeededEntropy(2)).episode
    assert sorted(drawn.tolist()) == list(range(21))
    more = draw_as_published(log, 30, SeededEntropy(2)).episode
    assert more.tolist() == [*drawn.tolist(), *[-1] * 9]


def test_the_published_draw_is_a_uniform_choice_of_ordered_trajectories() -> None:
    log = scene([2, 2]).log
    pairs = np.array([draw_as_published(log, 2, SeededEntropy(s)).episode for s in range(2400)])
    counts = np.bincount(4 * pairs[:, 0] + pairs[:, 1], minlength=16).reshape(4, 4)
    assert not np.diag(counts).any()
    assert chisquare(counts[~np.eye(4, dtype=bool)]).pvalue > FALSE_ALARM
