"""Killed at an operation on a file, a coordinator goes on to the same bits, and pays once."""

from pathlib import Path
from typing import Any, Final

from at_sites import ACCEPTED, MOST, fitted_at_sites, logs_at, whole_log
from crash_points import CrashPoints, Program, is_charged, outcome_of

from quorum_rl.logs import open_demonstrations, save_demonstrations
from quorum_rl.sites import Site, SitesHere

EVERY: Final = 7  # of the operations; all 151 were tried, in 15 s


def prepare(place: Path) -> None:
    place.mkdir()
    for name, log in logs_at(whole_log()).items():
        save_demonstrations(log, place / f"{name}.arrow")


def start(place: Path) -> None:
    reached = [
        Site(name, open_demonstrations(place / f"{name}.arrow"), most_experts=most)
        for name, most in MOST.items()
    ]
    fitted_at_sites(SitesHere(reached), place / "run", accepted=ACCEPTED, seed=None)


def result(place: Path) -> Any:
    return outcome_of(place / "run", place / "run" / "ledger.jsonl", place)


def paid(place: Path) -> bool:
    return is_charged(place / "run" / "ledger.jsonl")


def test_killed_at_an_operation_a_fit_at_sites_ends_the_same(tmp_path: Path) -> None:
    points = CrashPoints(Program(prepare, start, result, paid, "holds a finished run"), tmp_path)
    assert points.wanted[0] != points.wanted[1]  # else fresh bits would not be seen
    assert points.differences(range(0, len(points.operations), EVERY)) == []
