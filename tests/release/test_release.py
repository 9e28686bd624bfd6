"""A release from end to end: the ledger first, then the prefixes, and nothing else comes out."""

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from numbered_logs import EVERYTHING, Scene, seeded, states, watched

from quorum_rl.budget import Ledger, SeededEntropy, certificate, read_ledger
from quorum_rl.errors import QuorumError
from quorum_rl.privacy.planner import ReleasePlan
from quorum_rl.release import release
from quorum_rl.release.run import REPRODUCIBLE_LOGS, REPRODUCIBLE_NOISE


def test_the_ledger_is_charged_before_any_expert_is_asked(
    many: Scene, plan: ReleasePlan, path: Path
) -> None:
    charges: list[int] = []

    def heard() -> None:
        charges.append(len(read_ledger(path).charges))

    with Ledger.open(path) as ledger:
        release(watched(many.experts, heard), many.log, plan, ledger, accepted=EVERYTHING)
    assert charges
    assert set(charges) == {1}


def test_the_charge_is_the_plans_event_and_names_the_log(
    many: Scene, plan: ReleasePlan, path: Path
) -> None:
    seeded(many, plan, path)
    (charge,) = read_ledger(path).charges
    assert charge.event == plan.event
    assert charge.pool == many.log.declared.identity
    assert charge.facts["accepted"] == sorted(EVERYTHING)


def test_a_second_release_of_the_same_demonstrations_is_refused_unasked(
    many: Scene, plan: ReleasePlan, path: Path
) -> None:
    seeded(many, plan, path)
    before, asked = path.read_bytes(), list[int]()
    cheap = replace(plan, event=replace(plan.event, iterations=1, pool_size=1))
    experts = watched(many.experts, lambda: asked.append(1))
    refused = pytest.raises(QuorumError, match="stage 1 runs once per pool")
    with Ledger.open(path) as ledger, refused:
        release(experts, many.log, cheap, ledger, accepted=EVERYTHING)
    assert not asked
    assert path.read_bytes() == before


def test_a_refused_charge_leaves_the_experts_unasked(
    many: Scene, plan: ReleasePlan, tmp_path: Path
) -> None:
    path, asked = tmp_path / "poor.jsonl", list[int]()
    Ledger.create(path, epsilon=1.0, delta=0.01)
    before = path.read_bytes()
    experts = watched(many.experts, lambda: asked.append(1))
    with Ledger.open(path) as ledger, pytest.raises(QuorumError, match="over the ledger's budget"):
        release(experts, many.log, plan, ledger, accepted=EVERYTHING)
    assert not asked
    assert path.read_bytes() == before


def test_a_crash_within_a_query_leaves_the_charge_and_the_pool_used(
    many: Scene, plan: ReleasePlan, path: Path
) -> None:
    def crash() -> None:
        raise KeyboardInterrupt

    with Ledger.open(path) as ledger, pytest.raises(KeyboardInterrupt):
        release(watched(many.experts, crash), many.log, plan, ledger, accepted=EVERYTHING)
    assert [charge.event for charge in read_ledger(path).charges] == [plan.event]
    with pytest.raises(QuorumError, match="stage 1 runs once per pool"):
        seeded(many, plan, path)


def test_a_seed_gives_the_same_prefixes_again_and_another_seed_others(
    many: Scene, plan: ReleasePlan, research: Path
) -> None:
    made = [states(seeded(many, plan, research, seed=seed)) for seed in (0, 0, 1)]
    assert made[0] == made[1] != made[2]


def test_the_operating_system_never_gives_the_same_release_twice(
    many: Scene, sharp: ReleasePlan, research: Path
) -> None:
    """Twelve draws of 400 experts: the same again with probability 400**-12."""
    with Ledger.open(research) as ledger:
        first, second = (states(release(*many, sharp, ledger).released) for _ in range(2))
    assert first != second


@pytest.mark.parametrize(
    ("seed", "reproducible", "marked"),
    [(None, False, []), (0, False, [REPRODUCIBLE_NOISE]), (None, True, [REPRODUCIBLE_LOGS])],
)
def test_what_can_be_drawn_again_marks_the_certificate(
    seed: int | None, reproducible: bool, marked: list[str],
    many: Scene, plan: ReleasePlan, path: Path,
) -> None:  # fmt: skip
    log = replace(many.log, declared=replace(many.log.declared, reproducible=reproducible))
    entropy = None if seed is None else SeededEntropy(seed)
    with Ledger.open(path) as ledger:
        release(many.experts, log, plan, ledger, accepted=EVERYTHING, entropy=entropy)
    assert list(certificate(read_ledger(path)).marks) == marked


def test_released_prefixes_are_beginnings_of_logged_episodes(
    many: Scene, plan: ReleasePlan, path: Path
) -> None:
    released = seeded(many, plan, path)
    starts = {int(episode.observations[0, 0]): episode for episode in many.log}
    found = released.transitions
    for first, last in zip(released.offsets[:-1], released.offsets[1:], strict=True):
        part = [np.asarray(column)[first:last] for column in found]
        observation, action, reward, following, terminated, truncated = part
        episode, steps = starts[int(observation[0, 0])], last - first
        np.testing.assert_array_equal(observation, episode.observations[:steps])
        np.testing.assert_array_equal(following, episode.observations[1 : steps + 1])
        np.testing.assert_array_equal(action, episode.actions[:steps])
        np.testing.assert_array_equal(reward, episode.rewards[:steps])
        whole = steps == len(episode.actions)
        assert terminated.tolist() == [False] * (steps - 1) + [whole and episode.terminated]
        assert truncated.tolist() == [False] * (steps - 1) + [not (whole and episode.terminated)]
    lengths = released.lengths
    assert 1 <= lengths.min() < lengths.max() == 6  # cut prefixes and whole episodes were seen
    assert np.asarray(found.terminated).any()
    assert (released.observation_size, released.action_count, released.horizon) == (1, 2, 6)


def test_prefixes_come_in_the_order_of_the_iterations_without_the_empty_ones(
    many: Scene, sharp: ReleasePlan, research: Path
) -> None:
    """The first iterations of a longer release with the same noise are those of a shorter one."""
    short = replace(sharp, event=replace(sharp.event, iterations=5))
    long = states(seeded(many, sharp, research))
    part = states(seeded(many, short, research))
    assert part == long[: len(part)]
    assert 5 <= len(part) < len(long)


def test_nothing_about_experts_is_in_what_comes_out(
    many: Scene, plan: ReleasePlan, path: Path
) -> None:
    released = seeded(many, plan, path)
    assert {field.name for field in fields(released)} == {
        "transitions",
        "offsets",
        "observation_size",
        "action_count",
        "horizon",
    }
    assert set(released.transitions._fields) == {
        "observation",
        "action",
        "reward",
        "next_observation",
        "terminated",
        "truncated",
    }
    assert "expert" not in repr(released)
    for column in (*released.transitions, released.offsets):
        made = np.asarray(column)
        assert not any(np.shares_memory(made, private) for private in many.log.columns)
        assert made.base is None or made.base.size == made.size  # no rows hidden behind a view


def test_no_prefix_is_longer_than_the_cap(many: Scene, sharp: ReleasePlan, research: Path) -> None:
    short = replace(sharp, event=replace(sharp.event, prefix_cap=2))
    lengths = seeded(many, short, research).lengths
    assert set(lengths.tolist()) <= {1, 2}
    assert lengths.max() == 2
