"""The release as it is implemented, run 200,000 times, against its enumerated distribution.

The runs are the iterations of one release with fresh trajectories, which are independent. What
comes out of each is the node where its prefix ends, or nothing.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from enumeration import iteration_distribution
from scipy.stats import chisquare
from tree_logs import random_tables, table_experts, tree_logs
from trees import Experts, Floats, Ints, Tree, grow

from quorum_rl.budget import Ledger, SeededEntropy
from quorum_rl.privacy.events import ReleaseEvent
from quorum_rl.privacy.planner import ReleasePlan
from quorum_rl.release import counting, mechanism, release
from quorum_rl.release.counting import FixedPoint
from quorum_rl.release.noise import Noise

FALSE_ALARM: Final = 1e-4  # of each comparison; with fixed seeds they pass or fail for good
RUNS: Final = 200_000
FEWER_RUNS: Final = 20_000  # enough to see a fault
EXPERTS: Final = 14
DROPPED: Final = (3, 13)  # have one trajectory too few, and so neither count nor are drawn


@dataclass(frozen=True)
class Case:
    """A world, its experts and a release; iterations and pool are put in for a number of runs."""

    tree: Tree
    tables: Floats
    event: ReleaseEvent


def _event(**constants: float) -> ReleaseEvent:
    usual = {"mode": "tight", "experts": 12, "iterations": 1, "pool_size": 1, "theta": 1.5}
    return ReleaseEvent(**{**usual, **constants})  # type: ignore[arg-type]


def _with_floor() -> Case:
    """Three actions, two start states, some episodes that end early; the product's own lattice."""
    tree = grow(3, 3, starts=(0.7, 0.3), ends=lambda steps: steps[-1:] == ((2, 0),))
    event = _event(
        actions=3,
        p_min=0.05,
        stop_probability=0.0,
        horizon=3,
        prefix_cap=3,
        threshold=4.3,
        threshold_epsilon=1.3,
        query_epsilon=0.9,
    )
    return Case(tree, random_tables(tree, EXPERTS, 0.05, seed=1), event)


def _with_stopping() -> Case:
    """Two actions, random successors, four steps of which three may come out; a lattice so coarse
    that rounding and ties are seen."""
    tree = grow(2, 4, successors=(0.75, 0.25))
    event = _event(
        actions=2,
        p_min=0.0,
        stop_probability=0.15,
        horizon=4,
        prefix_cap=3,
        threshold=2.8,
        threshold_epsilon=1.1,
        query_epsilon=1.2,
        lattice_bits=2,
    )
    return Case(tree, random_tables(tree, EXPERTS, 0.0, seed=2), event)


CASES: Final = {"a floor": _with_floor(), "random stopping": _with_stopping()}


def released_nodes(case: Case, runs: int, folder: Path) -> Ints:
    """How often each node was the end of a released prefix; node 0 stands for nothing."""
    drawn = EXPERTS - len(DROPPED)
    # No expert is drawn oftener than this but with probability below 1e-9.
    pool_size = math.ceil(runs / drawn + 7 * math.sqrt(runs / drawn))
    event = replace(case.event, iterations=runs, pool_size=pool_size)
    experts = table_experts(case.tables, event.p_min)
    trajectories = np.full(EXPERTS, pool_size + 1)
    trajectories[list(DROPPED)] -= 1
    log = tree_logs(case.tree, experts, trajectories, seed=3)
    path = folder / "ledger.jsonl"
    Ledger.create(path, epsilon=None, delta=None, kind="research")
    plan = ReleasePlan(event, epsilon=1.0, delta=0.1, agreement=0.9)
    with Ledger.open(path) as ledger:
        released = release(experts, log, plan, ledger, entropy=SeededEntropy(4)).released
    states = np.asarray(released.transitions.next_observation)[:, 0].astype(np.int64)
    nodes = np.bincount(states[released.offsets[1:] - 1], minlength=case.tree.nodes)
    nodes[0] = runs - len(released)
    return np.asarray(nodes)


def p_value(case: Case, runs: int, folder: Path, mechanism_event: ReleaseEvent) -> float:
    """Of the chi-square test of what `mechanism_event` gives against the case's own distribution;
    outputs expected fewer than ten times share a cell."""
    found = released_nodes(replace(case, event=mechanism_event), runs, folder)
    kept = np.delete(case.tables, DROPPED, axis=0)
    everyone = Experts(kept, np.ones(len(kept), np.int64))
    expected = iteration_distribution(case.tree, everyone, replace(case.event, pool_size=1)) * runs
    assert expected.sum() == pytest.approx(runs, rel=1e-12)
    if found[expected == 0].any():
        return 0.0
    rare = expected < 10
    cells = [np.append(values[~rare], values[rare].sum()) for values in (found, expected)]
    used = cells[1] > 0
    assert used.sum() >= 15
    return float(chisquare(cells[0][used], cells[1][used]).pvalue)


@pytest.mark.parametrize("name", CASES)
def test_200000_runs_match_the_exact_distribution(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    assert p_value(case, RUNS, tmp_path, case.event) > FALSE_ALARM


@pytest.mark.parametrize("name", CASES)
def test_fewer_runs_match_too(name: str, tmp_path: Path) -> None:
    """So that the faults below are seen for what they are."""
    case = CASES[name]
    assert p_value(case, FEWER_RUNS, tmp_path, case.event) > FALSE_ALARM


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    "changed",
    [
        lambda event: replace(event, query_epsilon=event.query_epsilon / 2),
        lambda event: replace(event, threshold_epsilon=event.threshold_epsilon / 2),
        lambda event: replace(event, threshold=event.threshold + 1),
        lambda event: replace(event, prefix_cap=event.prefix_cap - 1),
    ],
    ids=["query noise", "threshold noise", "threshold", "cap"],
)
def test_another_constant_is_noticed(
    name: str, changed: Callable[[ReleaseEvent], ReleaseEvent], tmp_path: Path
) -> None:
    case = CASES[name]
    assert p_value(case, FEWER_RUNS, tmp_path, changed(case.event)) < FALSE_ALARM


def test_another_chance_to_stop_is_noticed(tmp_path: Path) -> None:
    case = CASES["random stopping"]
    oftener = replace(case.event, stop_probability=0.2)
    assert p_value(case, FEWER_RUNS, tmp_path, oftener) < FALSE_ALARM


def _never_before_the_first_query(monkeypatch: pytest.MonkeyPatch) -> None:
    stops = Noise.stops
    monkeypatch.setattr(Noise, "stops", lambda self, i, step: step > 0 and stops(self, i, step))


def _ties_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    query = Noise.query  # one lattice step more: `>` becomes `>=`
    monkeypatch.setattr(Noise, "query", lambda self, i, step: query(self, i, step) + 1)


def _rounded_to_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    def factors(probabilities: Floats, event: ReleaseEvent) -> FixedPoint:
        scaled = probabilities / event.p_max * 2**event.lattice_bits
        return np.asarray(np.rint(scaled), np.uint64)

    monkeypatch.setattr(counting, "fixed_point_factors", factors)


def _fresh_threshold_noise_for_every_query(monkeypatch: pytest.MonkeyPatch) -> None:
    query, threshold = Noise.query, Noise.threshold
    monkeypatch.setattr(Noise, "threshold", lambda _self, _i: 0)
    monkeypatch.setattr(
        Noise,
        "query",
        lambda self, i, step: query(self, i, step) - threshold(self, 10**6 * step + i),
    )


def _one_noise_for_all_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    query = Noise.query
    monkeypatch.setattr(Noise, "query", lambda self, i, _step: query(self, i, 0))


def _goes_on_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = mechanism._passed
    monkeypatch.setattr(
        mechanism,
        "_passed",
        lambda i, counts, first, level, noise: (
            passed(i, counts, first, level, noise) or passed(i, counts[1:], first + 1, level, noise)
        ),
    )


def _dropped_experts_count(monkeypatch: pytest.MonkeyPatch) -> None:
    made = counting.PrefixCounts.__init__

    def everyone(self, event, experts, counted, states, actions, **chunks):  # type: ignore[no-untyped-def]
        made(self, event, experts, np.ones_like(counted), states, actions, **chunks)

    monkeypatch.setattr(counting.PrefixCounts, "__init__", everyone)


@pytest.mark.parametrize(
    "fault",
    [
        _never_before_the_first_query,
        _ties_pass,
        _rounded_to_nearest,
        _fresh_threshold_noise_for_every_query,
        _one_noise_for_all_queries,
        _goes_on_after_a_failure,
        _dropped_experts_count,
    ],
)
def test_a_fault_in_the_code_is_noticed(
    fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    case = CASES["random stopping"]
    fault(monkeypatch)
    assert p_value(case, FEWER_RUNS, tmp_path, case.event) < FALSE_ALARM
