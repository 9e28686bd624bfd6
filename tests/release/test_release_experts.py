"""Who takes part in a release, and which trajectories stay behind for training."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numbered_logs import EVERYTHING, Scene, scene, seeded, states

from quorum_rl.budget import Ledger, read_ledger
from quorum_rl.errors import QuorumError
from quorum_rl.logs import Demonstrations
from quorum_rl.privacy.planner import ReleasePlan
from quorum_rl.release import release
from quorum_rl.types import Released


def first_states(released: Released) -> list[int]:
    """The state in which each prefix starts, in order of their numbers."""
    return sorted(states(released)[first] for first in released.offsets[:-1])


def pool_starts(log: Demonstrations, experts: list[int]) -> list[int]:
    """Where the first three trajectories of these experts start."""
    episodes = [log.episodes_of(list(log.experts).index(expert))[:3] for expert in experts]
    return sorted(int(log.episode(e).observations[0, 0]) for some in episodes for e in some)


def test_experts_with_too_few_trajectories_are_not_drawn(
    sharp: ReleasePlan, research: Path
) -> None:
    one = scene([5, 3, 5, 0, 4])  # pool_size 3 and one for training: experts 1 and 3 are out
    many_draws = replace(sharp, event=replace(sharp.event, iterations=60))
    released = seeded(one, many_draws, research)
    assert first_states(released) == pool_starts(one.log, [0, 2, 4])


@pytest.mark.parametrize(("trajectories", "comes_out"), [([5, 5, 3], False), ([5, 5, 4], True)])
def test_experts_with_too_few_trajectories_do_not_count(
    trajectories: list[int], comes_out: bool, sharp: ReleasePlan, research: Path
) -> None:
    """The threshold lies between two experts and three."""
    high = replace(sharp, event=replace(sharp.event, threshold=2.5))
    assert (len(seeded(scene(trajectories), high, research)) > 0) is comes_out


def test_an_expert_drawn_more_often_than_its_pool_is_large_yields_nothing(
    sharp: ReleasePlan, research: Path
) -> None:
    """Two experts in twelve draws: each of the six pool trajectories comes out once, no more."""
    one = scene([5, 5])
    released = seeded(one, sharp, research)
    assert first_states(released) == pool_starts(one.log, [0, 1])


@pytest.mark.parametrize("experts", [0, 1, 399])
def test_fewer_experts_than_the_plan_counts_on_are_refused_at_no_cost(
    experts: int, plan: ReleasePlan, path: Path
) -> None:
    """The guarantee is one for sets of at least so many, all of which pass."""
    with pytest.raises(QuorumError, match="fewer than 400 experts"):
        seeded(scene([5] * experts), plan, path)
    assert not read_ledger(path).charges


def test_experts_with_too_few_trajectories_do_not_count_towards_the_plans(
    plan: ReleasePlan, path: Path
) -> None:
    with pytest.raises(QuorumError, match="fewer than 400 experts"):
        seeded(scene([5] * 399 + [3] * 20), plan, path)
    seeded(scene([5] * 400 + [3] * 20), plan, path)


@pytest.mark.parametrize("experts", [0, 1, 2, 3])
def test_a_research_ledger_refuses_no_number_of_experts(
    experts: int, plan: ReleasePlan, research: Path
) -> None:
    assert len(seeded(scene([5] * experts), plan, research)) == 0


def test_experts_without_any_trajectory_in_the_log_are_allowed(
    sharp: ReleasePlan, research: Path
) -> None:
    assert len(seeded(scene([5, 5], experts=9), sharp, research)) == 6


def test_nobody_left_gives_an_empty_release(sharp: ReleasePlan, research: Path) -> None:
    released = seeded(scene([1, 2, 3]), sharp, research)
    assert len(released) == 0
    assert np.asarray(released.transitions.observation).shape == (0, 1)
    assert released.offsets.tolist() == [0]


def test_what_remains_for_training_never_overlaps_the_pool(
    many: Scene, plan: ReleasePlan, path: Path
) -> None:
    with Ledger.open(path) as ledger:
        kept = release(*many, plan, ledger, accepted=EVERYTHING).remaining
    seen = np.concatenate([episode.observations[:, 0] for episode in kept])
    position = np.arange(len(many.log)) % 5
    rest = [many.log.episode(int(e)).observations[:, 0] for e in np.flatnonzero(position >= 3)]
    np.testing.assert_array_equal(seen, np.concatenate(rest))


def test_in_mode_paper_prefixes_and_what_remains_are_exactly_the_log(
    sharp: ReleasePlan, research: Path
) -> None:
    """Trajectories are drawn without replacement; some prefixes are cut at a cap of four."""
    one = scene([3] * 10)
    event = replace(sharp.event, mode="paper", theta=1.2, threshold=1.5, prefix_cap=4)
    with Ledger.open(research) as ledger:
        outcome = release(*one, replace(sharp, event=event), ledger)
    remaining, everything = (
        log.transitions(np.arange(log.transition_count)) for log in (outcome.remaining, one.log)
    )
    assert len(outcome.released) == 12
    for name in ("observation", "action", "reward", "next_observation"):
        column, left, whole = (
            np.asarray(getattr(part, name)).reshape(-1).tolist()
            for part in (outcome.released.transitions, remaining, everything)
        )
        assert sorted(column + left) == sorted(whole)
    assert set(states(outcome.released)).isdisjoint(
        int(state) for state in np.asarray(remaining.observation)[:, 0]
    )
    assert len(outcome.remaining) > 18  # the undrawn ones, and tails of those cut by the cap


def test_mode_paper_with_fewer_trajectories_than_draws_uses_them_all(
    sharp: ReleasePlan, research: Path
) -> None:
    one = scene([1] * 4)
    published = replace(sharp, event=replace(sharp.event, mode="paper"))
    with Ledger.open(research) as ledger:
        outcome = release(*one, published, ledger)
    assert len(outcome.released) == 4
    assert outcome.remaining.transition_count == 0
