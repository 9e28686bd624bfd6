"""Killed at any operation on a file, a run goes on to the same bits, certificate and charges."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from compiling import optimised
from crash_points import CrashPoints, Program, is_charged, outcome_of, remembered_lines
from dying_disk import dying
from fits import SETTINGS, crowd, fitted
from steady_parts import steady_parts

from quorum_rl.budget import Ledger, read_ledger
from quorum_rl.errors import QuorumError
from quorum_rl.logs import open_demonstrations, save_demonstrations
from quorum_rl.pipeline import run

# With a seed, and so a mark in the ledger, and without.
PRIVATE: Final = replace(SETTINGS, method="dp-sgd")
ANSWERS: Final = ("judging.json", "units.json")
METHODS: Final[dict[str, dict[str, Any]]] = {
    "local": {"settings": PRIVATE, "seed": 1},
    "release": {"settings": SETTINGS, "seed": None},
}
JUDGED: Final = {"settings": PRIVATE, "seed": 1, "judges": 0.2, "return_bounds": (0, 5),
                 "units": "private", "learner": "auto", "choose": ("bc", "cql"),
                 "learner_settings": {"hidden_sizes": (4,)}}  # fmt: skip


def prepare(place: Path) -> None:
    place.mkdir()
    save_demonstrations(crowd(identity="a filed log").log, place / "log.arrow")


def result(place: Path) -> Any:
    """All that must be the same: the policy, the certificate, what was charged, what is there."""
    return (
        *outcome_of(place / "run", place / "run" / "ledger.jsonl", place),
        [path.read_text() for path in place.glob("run/*.json") if path.name in ANSWERS],
        remembered_lines(place),
    )


def paid(place: Path) -> bool:
    return is_charged(place / "run" / "ledger.jsonl")


def fit_by(choices: Mapping[str, Any]) -> Program:
    people = crowd()

    def start(place: Path) -> None:
        one = people._replace(log=open_demonstrations(place / "log.arrow"))
        fitted(one, place / "run", **choices)

    return Program(prepare, start, result, paid, "holds a finished run")


@pytest.mark.parametrize("method", METHODS)
def test_killed_at_any_operation_a_fit_ends_the_same(method: str, tmp_path: Path) -> None:
    points = CrashPoints(fit_by(METHODS[method]), tmp_path)
    assert len(points.operations) > 50
    assert (points.wanted[0] == points.wanted[1]) is (method == "local")  # else fresh bits are seen
    assert points.differences() == []


def test_killed_around_any_line_of_its_ledger_a_judged_fit_ends_the_same(tmp_path: Path) -> None:
    """The split, and the charges of units, training and judges: all operations take long."""
    with optimised(), steady_parts():
        points = CrashPoints(fit_by(JUDGED), tmp_path)
        lines = [number for number, done in enumerate(points.operations) if done == "write"]
        assert len(lines) == 5
        assert points.differences([line + near for line in lines for near in range(-1, 3)]) == []


def marks_later(original: Callable[..., None]) -> Callable[..., None]:
    def charge(self: Ledger, *args: Any, marks: Any = (), **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        for mark in marks:
            self.mark(mark)

    return charge


BUGS: Final = {
    "marks after the charge": (Ledger, "charge", marks_later(Ledger.charge)),
    "a log that nobody tells of a charge whose payer died": (run, "recall", lambda *_: None),
}


@pytest.mark.parametrize("bug", BUGS)
def test_the_planted_bugs_are_seen(
    bug: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = CrashPoints(fit_by(METHODS["local"]), tmp_path)
    assert points.differences(points.around_the_charge()) == []
    monkeypatch.setattr(*BUGS[bug])
    assert points.differences(points.around_the_charge()) != []


def test_a_charge_cut_in_half_counts_as_all_that_was_left(tmp_path: Path) -> None:
    one, place = fit_by(METHODS["local"]), tmp_path / "torn"
    points = CrashPoints(one, tmp_path)
    one.prepare(place)
    with dying(points.operations.index("write"), torn=True):
        one.start(place)
    assert read_ledger(place / "run" / "ledger.jsonl").torn
    with pytest.raises(QuorumError, match="all of its budget counts as spent"):
        one.start(place)
