"""Killed at any operation on a file, a sweep goes on to the same winner and pays once."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from crash_points import CrashPoints, Program, is_charged, outcome_of, remembered_lines
from fits import DELTA, SETTINGS
from remembered_plans import remembered_plans
from sweeps import asked, swept

from quorum_rl.budget import OsEntropy
from quorum_rl.logs import open_demonstrations, save_demonstrations
from quorum_rl.privacy import ReleaseEvent, SelectionEvent, TrainingEvent
from quorum_rl.sweep import Common, Search

__all__ = ["remembered_plans"]

SEARCH = Search(grid={"clip-norm": (0.5, 1.0)})
WITH_RELEASE = Common(5.0, DELTA, SETTINGS, hidden_sizes=(4,))


def sweep_by(select: Any) -> Program:
    """Two trials, a program each: after one release, or drawn at random."""
    choices: dict[str, Any] = {"common": WITH_RELEASE} if select == "public" else {}
    one = asked("filed", select=select, search=SEARCH, together=1, **choices)

    def prepare(place: Path) -> None:
        place.mkdir()
        save_demonstrations(one.log, place / "log.arrow")

    def start(place: Path) -> None:
        log = open_demonstrations(place / "log.arrow")
        swept(replace(one, log=log), place / "sweep", command="[sweep]\n")

    return Program(prepare, start, result, paid, "holds a finished sweep")


def ledger_in(place: Path) -> Path:
    return place / "sweep" / "winner" / "ledger.jsonl"


def result(place: Path) -> Any:
    """The winner, the table, the certificate, what was charged, what is there, the markers."""
    folder = place / "sweep"
    tables = [folder / "sweep.parquet", folder / "released.parquet"]
    return (
        *outcome_of(folder / "winner", ledger_in(place), place),
        [pq.read_table(path).to_pylist() for path in tables if path.exists()],
        remembered_lines(place),
    )


def paid(place: Path) -> bool:
    return is_charged(ledger_in(place))


KINDS = {"public": [ReleaseEvent, TrainingEvent, TrainingEvent], "private": [SelectionEvent]}


@pytest.fixture(autouse=True)
def _two_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or chance says how many there are."""
    monkeypatch.setattr("quorum_rl.sweep.run._drawn", lambda *_: SEARCH.all())


@pytest.mark.parametrize("select", KINDS)
def test_killed_at_any_operation_a_sweep_ends_the_same(select: str, tmp_path: Path) -> None:
    points = CrashPoints(sweep_by(select), tmp_path)
    assert len(points.operations) > 50
    assert points.wanted[0] != points.wanted[1]  # keys that were drawn anew would be seen
    assert [type(event) for event in points.wanted[0][2]] == KINDS[select]
    assert points.differences() == []


BUGS = {
    "public": ("quorum_rl.sweep.run.KeyedEntropy", lambda _: OsEntropy()),
    "private": ("quorum_rl.sweep.payment.recall", lambda *_: None),
}


@pytest.mark.parametrize("select", KINDS)
def test_the_planted_bugs_of_a_sweep_are_seen(
    select: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release whose noise nobody can draw again, and a log that nobody tells."""
    points = CrashPoints(sweep_by(select), tmp_path)
    after = [points.operations.index("write") + 2]
    assert points.differences(after) == []
    monkeypatch.setattr(*BUGS[select])
    assert points.differences(after) == after
