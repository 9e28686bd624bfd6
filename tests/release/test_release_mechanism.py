"""The release's core with noise made by hand: when an iteration goes on, and when it ends."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from ledger_files import FLOOR

from quorum_rl.release import mechanism
from quorum_rl.release.mechanism import Integers, released_lengths

UNIT = 16  # lattice steps of the event below
EVENT = replace(
    FLOOR, experts=4, p_min=0.1, horizon=40, prefix_cap=30, iterations=3, theta=2.0, threshold=3.0,
    threshold_epsilon=1.0, query_epsilon=1.0, pool_size=3, lattice_bits=4,
)  # fmt: skip
LEVEL = 3 * UNIT  # a count must exceed this


@dataclass
class WrittenNoise:
    """No noise but what is written down; it notes for which queries it was asked."""

    thresholds: Mapping[int, int] = field(default_factory=dict)
    queries: Mapping[tuple[int, int], int] = field(default_factory=dict)
    stop_at: frozenset[tuple[int, int]] = frozenset()
    asked: list[tuple[int, int]] = field(default_factory=list)

    def threshold(self, iteration: int) -> int:
        return self.thresholds.get(iteration, 0)

    def query(self, iteration: int, step: int) -> int:
        self.asked.append((iteration, step))
        return self.queries.get((iteration, step), 0)

    def stops(self, iteration: int, step: int) -> bool:
        return (iteration, step) in self.stop_at


@dataclass
class WrittenCounts:
    """Counts from a table (iterations, steps); it notes the blocks that were asked for."""

    table: Integers
    blocks: list[tuple[list[int], int, int]] = field(default_factory=list)

    def __call__(self, still_open: Integers, first: int, last: int) -> Integers:
        self.blocks.append((still_open.tolist(), first, last))
        return np.asarray(self.table[still_open, first:last])


def all_pass(iterations: int, steps: int = 40) -> Integers:
    return np.full((iterations, steps), LEVEL + 1, np.int64)


def lengths_of(
    counts: Integers, lengths: list[int], noise: WrittenNoise | None = None
) -> list[int]:
    written = WrittenNoise() if noise is None else noise
    return [int(n) for n in released_lengths(EVENT, lengths, WrittenCounts(counts), written)]


def test_an_iteration_ends_at_its_first_failure_and_does_not_come_back() -> None:
    counts = all_pass(2)
    counts[0, 6] = LEVEL
    noise = WrittenNoise()
    assert lengths_of(counts, [40, 40], noise) == [6, 30]
    assert [step for iteration, step in noise.asked if iteration == 0] == list(range(7))


def test_a_count_must_exceed_the_threshold_and_not_only_reach_it() -> None:
    counts = all_pass(2)
    counts[0, 0], counts[1, 0] = LEVEL, LEVEL + 1
    assert lengths_of(counts, [1, 1]) == [0, 1]


def test_a_threshold_between_lattice_points_is_rounded_up() -> None:
    event = replace(EVENT, threshold=3 + 0.25 / UNIT)
    counts = np.array([[LEVEL + 1], [LEVEL + 2]])
    lengths = released_lengths(event, [1, 1], WrittenCounts(counts), WrittenNoise())
    assert lengths.tolist() == [0, 1]


def test_threshold_noise_holds_for_a_whole_iteration_and_only_for_it() -> None:
    counts = all_pass(3)
    counts[:, 5] = LEVEL + 8
    noise = WrittenNoise(thresholds={0: -5, 1: 1, 2: 8})
    assert lengths_of(counts, [8, 8, 8], noise) == [8, 0, 0]
    counts += 1
    assert lengths_of(counts, [8, 8, 8], noise) == [8, 8, 0]


def test_query_noise_is_added_to_the_count_of_its_own_step() -> None:
    noise = WrittenNoise(queries={(0, 2): -1, (1, 9): -100, (2, 9): 100})
    assert lengths_of(all_pass(3), [40, 40, 40], noise) == [2, 9, 30]


def test_nothing_longer_than_the_cap_or_the_trajectory_comes_out() -> None:
    assert lengths_of(all_pass(4), [40, 30, 29, 1]) == [30, 30, 29, 1]


def test_no_query_is_asked_beyond_the_end_of_a_trajectory() -> None:
    noise = WrittenNoise()
    lengths_of(all_pass(2), [3, 11], noise)
    assert sorted(noise.asked) == [(0, s) for s in range(3)] + [(1, s) for s in range(11)]


def test_stopping_before_the_first_query_gives_nothing() -> None:
    noise = WrittenNoise(stop_at=frozenset({(0, 0)}))
    assert lengths_of(all_pass(2), [9, 9], noise) == [0, 9]
    assert (0, 0) not in noise.asked


def test_stopping_later_keeps_what_passed_before() -> None:
    noise = WrittenNoise(stop_at=frozenset({(0, 1), (1, 4), (2, 29)}))
    assert lengths_of(all_pass(3), [40, 40, 40], noise) == [1, 4, 29]


def test_an_iteration_without_a_trajectory_gives_nothing_and_is_never_counted() -> None:
    counts = WrittenCounts(all_pass(3))
    assert released_lengths(EVENT, [0, 5, 0], counts, WrittenNoise()).tolist() == [0, 5, 0]
    assert all(still_open == [1] for still_open, _, _ in counts.blocks)


def test_without_any_trajectory_nothing_is_counted() -> None:
    counts = WrittenCounts(all_pass(2))
    assert released_lengths(EVENT, [0, 0], counts, WrittenNoise()).tolist() == [0, 0]
    assert counts.blocks == []


def test_counts_are_asked_in_order_for_open_iterations_only() -> None:
    table = all_pass(4)
    table[0, 1] = table[1, 5] = table[2, 13] = 0
    counts = WrittenCounts(table)
    released_lengths(EVENT, [40, 40, 20, 20], counts, WrittenNoise())
    assert [last for _, _, last in counts.blocks] == [4, 12, 20]
    assert [first for _, first, _ in counts.blocks] == [0, 4, 12]
    assert [still_open for still_open, _, _ in counts.blocks] == [[0, 1, 2, 3], [1, 2, 3], [2, 3]]


@pytest.mark.parametrize(("first", "largest"), [(1, 1), (1, 64), (3, 5), (30, 30), (64, 64)])
def test_the_blocks_do_not_matter(
    first: int, largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    counts = LEVEL + rng.integers(-1, 20, size=(60, 40))
    lengths = rng.integers(0, 41, size=60).tolist()
    stop_at = frozenset((int(i), int(s)) for i, s in rng.integers(0, 60, size=(40, 2)))
    expected = lengths_of(counts, lengths, WrittenNoise(stop_at=stop_at))
    assert {0, 3, 4, 5} < set(expected)
    monkeypatch.setattr(mechanism, "FIRST_BLOCK", first)
    monkeypatch.setattr(mechanism, "LARGEST_BLOCK", largest)
    assert lengths_of(counts, lengths, WrittenNoise(stop_at=stop_at)) == expected


def test_progress_tells_nothing_but_outputs() -> None:
    """An open trajectory's own length is no output: it must not show before it is released."""
    counts = all_pass(2)
    counts[:, 4] = 0

    def heard(lengths: list[int]) -> list[tuple[int, int]]:
        told: list[tuple[int, int]] = []
        released_lengths(
            EVENT, lengths, WrittenCounts(counts), WrittenNoise(), lambda *now: told.append(now)
        )
        return told

    assert heard([5, 6]) == heard([40, 9]) == [(4, 2), (12, 0)]
