"""Querying sets of experts: chunks, logged and unlogged sets, and the checks at the border."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from mypy import api as mypy_api

from quorum_rl.errors import QuorumError
from quorum_rl.experts.checks import (
    FLOOR_TOLERANCE,
    SUM_TOLERANCE,
    Probabilities,
    check_floor,
    checked_observations,
    checked_probabilities,
)
from quorum_rl.experts.expert_set import ExpertSet, LoggedExperts, UnloggedExperts
from quorum_rl.experts.smoothing import smoothed_by

ROWS = 5


@dataclass(frozen=True, eq=False)
class SpiedExperts(UnloggedExperts):
    """Experts from a fixed table that note how many of them were evaluated at once."""

    table: Probabilities  # (experts, ROWS, actions); row r of the observations gets row r
    evaluated_at_once: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.table)

    def probabilities_of(self, experts: slice, observations: npt.ArrayLike) -> Probabilities:
        self.evaluated_at_once.append(len(range(len(self))[experts]))
        return self.table[experts, : len(np.asarray(observations))]


def spied(count: int) -> SpiedExperts:
    table = np.random.default_rng(count).dirichlet(np.ones(3), size=(count, ROWS))
    return SpiedExperts(table, observation_size=2, action_count=3)


OBSERVATIONS = np.zeros((ROWS, 2), np.float32)


@pytest.mark.parametrize("experts_per_chunk", [1, 3, 7, 10, 99])
def test_chunks_together_are_the_whole_and_bound_how_many_experts_run_at_once(
    experts_per_chunk: int,
) -> None:
    experts = spied(10)
    gathered = np.full((10, ROWS, 3), np.nan)
    for chunk, found in experts.probabilities_in_chunks(OBSERVATIONS, experts_per_chunk):
        assert np.isnan(gathered[chunk]).all()  # no expert comes twice
        gathered[chunk] = found
    np.testing.assert_array_equal(gathered, experts.table)
    assert max(experts.evaluated_at_once) == min(experts_per_chunk, 10)


def test_asking_all_experts_at_once_also_runs_in_chunks() -> None:
    experts = spied(600)
    np.testing.assert_array_equal(experts.probabilities(OBSERVATIONS), experts.table)
    assert experts.evaluated_at_once == [256, 256, 88]


def test_chunks_are_lazy_so_that_only_one_is_in_memory() -> None:
    experts = spied(10)
    chunks = experts.probabilities_in_chunks(OBSERVATIONS, 4)
    assert experts.evaluated_at_once == []
    next(chunks)
    assert experts.evaluated_at_once == [4]


def test_a_chunk_of_no_experts_is_refused_before_anything_is_asked() -> None:
    with pytest.raises(QuorumError, match="experts_per_chunk is 0"):
        spied(2).probabilities_in_chunks(OBSERVATIONS, 0)


def test_logged_experts_answer_as_the_set_that_generated_the_logs() -> None:
    experts = spied(10)
    logged = LoggedExperts(experts)
    assert isinstance(logged, ExpertSet)
    assert isinstance(experts, ExpertSet)
    assert (len(logged), logged.observation_size, logged.action_count) == (10, 2, 3)
    assert LoggedExperts(experts.smoothed(0.1)).p_min == 0.1
    np.testing.assert_array_equal(logged.probabilities(OBSERVATIONS), experts.table)
    np.testing.assert_array_equal(
        logged.probabilities_of(slice(2, 5), OBSERVATIONS), experts.table[2:5]
    )
    chunks = [chunk for chunk, _ in logged.probabilities_in_chunks(OBSERVATIONS, 6)]
    assert chunks == [slice(0, 6), slice(6, 10)]


# The ignored type errors below are part of the test: mypy reports an ignore that is not needed.


def test_smoothing_logged_experts_is_refused_with_the_reason() -> None:
    logged = LoggedExperts(spied(2))
    with pytest.raises(QuorumError, match="have generated logs already"):
        smoothed_by("greedy", logged, 0.1)  # type: ignore[arg-type]
    with pytest.raises(QuorumError, match="smooth first and collect then"):
        smoothed_by("uniform mixture", logged, 0.1)  # type: ignore[arg-type]
    with pytest.raises(QuorumError, match="have generated logs already"):
        logged.smoothed(0.1)  # type: ignore[attr-defined]
    with pytest.raises(QuorumError, match="have generated logs already"):
        logged.mixed_with_uniform(0.1)  # type: ignore[attr-defined]
    with pytest.raises(QuorumError, match="not a list"):
        smoothed_by("greedy", [], 0.1)  # type: ignore[arg-type]


def test_logs_cannot_be_generated_by_experts_that_are_logged_already() -> None:
    with pytest.raises(QuorumError, match="given a LoggedExperts"):
        LoggedExperts(LoggedExperts(spied(2)))  # type: ignore[arg-type]


def test_a_type_checker_refuses_to_smooth_logged_experts_and_allows_it_before(
    tmp_path: Path,
) -> None:
    source = tmp_path / "snippet.py"
    source.write_text(
        "from quorum_rl.experts.expert_set import LoggedExperts, UnloggedExperts\n"
        "from quorum_rl.experts.smoothing import smoothed_by\n"
        "def late(logged: LoggedExperts, unlogged: UnloggedExperts) -> None:\n"
        "    smoothed_by('greedy', logged, 0.1)\n"
        "    logged.mixed_with_uniform(0.1)\n"
        "    logged.smoothed(0.1)\n"
        "    smoothed_by('greedy', unlogged.mixed_with_uniform(0.1), 0.1)\n"
    )
    # Our own types are all it needs: reading those of JAX would take ten times as long.
    alone = ["--no-site-packages", "--ignore-missing-imports", "--follow-imports=silent"]
    report, _, _ = mypy_api.run(["--strict", *alone, "--cache-dir=/dev/null", str(source)])
    complaints = [line.split(":", 3)[1] for line in report.splitlines() if ": error:" in line]
    assert complaints == ["4", "5", "6"], report


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"observation_size": 0}, "observation_size is 0"),
        ({"action_count": 1}, "action_count is 1"),
        ({"p_min": -0.1}, "p_min is -0.1"),
        ({"p_min": 0.34}, "p_min is 0.34"),
        ({"p_min": float("nan")}, "p_min is nan"),
    ],
)
def test_impossible_declared_facts_are_refused(facts: dict[str, float], message: str) -> None:
    declared = {"observation_size": 2, "action_count": 3, "p_min": 0.0} | facts
    with pytest.raises(QuorumError, match=message):
        SpiedExperts(np.zeros((1, ROWS, 3)), **declared)  # type: ignore[arg-type]


def answers() -> Probabilities:
    """Faultless answers of experts 10 to 14: every probability is at least 0.1."""
    made = np.random.default_rng(0).dirichlet(np.ones(3), size=(5, ROWS))
    return 0.7 * made + 0.1


def check(found: npt.ArrayLike, names: list[str] | None = None) -> None:
    checked_probabilities(found, range(10, 15), rows=ROWS, action_count=3, names=names)


def test_faultless_answers_pass_and_are_left_unchanged_but_for_rounding() -> None:
    given = answers()
    found = checked_probabilities(given, range(10, 15), rows=ROWS, action_count=3)
    np.testing.assert_allclose(found, given, rtol=1e-15)


def test_single_precision_answers_come_back_as_distributions_in_double_precision() -> None:
    given = answers().astype(np.float32)
    found = checked_probabilities(given, range(10, 15), rows=ROWS, action_count=3)
    np.testing.assert_allclose(found.sum(axis=-1), 1, rtol=0, atol=4e-16)
    np.testing.assert_allclose(found, given, rtol=1e-6)
    assert given.dtype == np.float32


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({(3, 4, 2): np.nan}, r"expert 13 \(d\) in state 4, action 2 .*nan"),
        ({(3, 4, 2): np.inf}, r"expert 13 \(d\) in state 4, action 2 .*inf"),
        (
            {(1, 0): [-0.1, 0.5, 0.6], (2, 3): [0.6, 0.65, -0.25]},
            r"expert 12 \(c\) in state 3, action 2 .* -0\.25: .*softmax",
        ),
        (
            {(0, 1): [0.3, 0.3, 0.401], (4, 2): [0.3, 0.3, 0.3]},
            r"expert 14 \(e\) in state 2 .* sum to 0\.9: .*1e-05",
        ),
    ],
)
def test_of_answers_that_are_none_the_worst_is_named_with_its_file(
    changes: dict[tuple[int, ...], Any], said: str
) -> None:
    given = answers()
    for place, value in changes.items():
        given[place] = value
    with pytest.raises(QuorumError, match=said):
        check(given, names=list("abcde"))


@pytest.mark.parametrize("sign", [-1, 1])
def test_sums_may_differ_from_one_by_the_stated_tolerance_and_no_more(sign: int) -> None:
    given = answers()
    given[0, 0] *= 1 + 0.9 * sign * SUM_TOLERANCE
    check(given)
    given[0, 0] *= 1 + 0.2 * sign * SUM_TOLERANCE
    with pytest.raises(QuorumError, match=r"expert 10 in state 0 .*sum"):
        check(given)


def test_a_violated_floor_names_the_worst_expert_its_value_and_the_fix() -> None:
    given = answers()
    given[2, 3] = [0.04, 0.48, 0.48]
    given[4, 1] = [0.5, 0.47, 0.03]
    expected = r"expert 14 in state 1, action 2 has probability 0\.03.* p_min = 0\.1: .*smooth"
    with pytest.raises(QuorumError, match=expected):
        check_floor(given, range(10, 15), 0.1)
    check_floor(given, range(10, 15), 0.03)


def test_the_floor_may_be_missed_by_rounding_and_no_more() -> None:
    given = answers()
    for share, passes in ((0.9, True), (1.1, False)):
        low = 0.1 * (1 - share * FLOOR_TOLERANCE)
        given[0, 0] = [low, 0.5, 0.5 - low]
        if passes:
            check_floor(given, range(10, 15), 0.1)
        else:
            with pytest.raises(QuorumError, match="floor"):
                check_floor(given, range(10, 15), 0.1)


def test_answers_of_another_shape_are_refused() -> None:
    with pytest.raises(QuorumError, match=r"shape \(5, 5, 2\): expected \(5, 5, 3\)"):
        check(answers()[:, :, :2])


def test_no_states_are_answered_with_no_probabilities() -> None:
    found = checked_probabilities(np.empty((2, 0, 3)), range(2), rows=0, action_count=3)
    assert found.shape == (2, 0, 3)


@pytest.mark.parametrize("shape", [(2,), (3, 4), (1, 3, 2)])
def test_observations_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(QuorumError, match=r"take \(rows, 2\)"):
        checked_observations(np.zeros(shape), 2)
