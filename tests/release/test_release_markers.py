"""Markers beside a log: what another ledger did with it is seen by those who come after."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fits import SETTINGS, crowd, fitted
from numbered_logs import EVERYTHING, Scene

from quorum_rl.budget import Ledger, read_ledger
from quorum_rl.errors import QuorumError
from quorum_rl.logs import open_demonstrations, save_demonstrations
from quorum_rl.privacy.planner import ReleasePlan
from quorum_rl.release import release, used_markers

DP_SGD = replace(SETTINGS, method="dp-sgd")


@pytest.fixture(name="filed")
def _filed(many: Scene, tmp_path: Path) -> Scene:
    """The scene with its log in a file."""
    save_demonstrations(many.log, tmp_path / "log.arrow")
    return many._replace(log=open_demonstrations(tmp_path / "log.arrow"))


@pytest.fixture(name="ledger")
def _ledger(tmp_path: Path) -> Callable[[str], Path]:
    def made(name: str) -> Path:
        Ledger.create(tmp_path / name, epsilon=6.0, delta=0.01)
        return tmp_path / name

    return made


def test_of_two_who_find_no_marker_at_the_same_moment_only_one_releases(
    filed: Scene, plan: ReleasePlan, ledger: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have looked before either has written."""
    monkeypatch.setattr(used_markers, "_used", lambda *_: False)
    one, other = ledger("one"), ledger("other")
    with Ledger.open(one) as first:
        release(*filed, plan, first, accepted=EVERYTHING)
    assert filed.log.source is not None
    left = (filed.log.source.parent / "log.arrow.released").read_text()
    with (
        Ledger.open(other) as second,
        pytest.raises(QuorumError, match="somebody else is releasing"),
    ):
        release(*filed, plan, second, accepted=EVERYTHING)
    assert not read_ledger(other).charges
    assert (filed.log.source.parent / "log.arrow.released").read_text() == left
    assert not list(filed.log.source.parent.glob(".log.arrow*"))


def test_a_marker_of_a_log_that_the_file_held_before_is_replaced(
    filed: Scene, plan: ReleasePlan, ledger: Callable[[str], Path]
) -> None:
    assert filed.log.source is not None
    beside = filed.log.source.parent / "log.arrow.released"
    beside.write_text('{"log": "another", "ledger": "some"}')
    with Ledger.open(ledger("one")) as first:
        release(*filed, plan, first, accepted=EVERYTHING)
    assert filed.log.declared.identity in beside.read_text()


def test_what_another_ledger_released_from_is_not_trained_on_whole_and_the_reverse(
    tmp_path: Path,
) -> None:
    """Every run has a ledger of its own here, so no ledger sees the other's charges."""
    one = crowd(identity="released, then trained")
    for name in ("released first", "trained first"):
        log = replace(one.log, declared=replace(one.log.declared, identity=name))
        save_demonstrations(log, tmp_path / f"{name}.arrow")
    first, second = (
        one._replace(log=open_demonstrations(tmp_path / f"{name}.arrow"))
        for name in ("released first", "trained first")
    )
    fitted(first, tmp_path / "1")
    with pytest.raises(QuorumError, match="were released under another ledger"):
        fitted(first, tmp_path / "2", settings=DP_SGD)
    assert not (tmp_path / "2").exists()
    assert not (tmp_path / "released first.arrow.trained").exists()

    fitted(second, tmp_path / "3", settings=DP_SGD)
    fitted(second, tmp_path / "4", settings=DP_SGD)  # which reads what was read before
    with pytest.raises(QuorumError, match="none is fresh any more"):
        fitted(second, tmp_path / "5")
    assert not (tmp_path / "5").exists()
    assert not (tmp_path / "trained first.arrow.released").exists()
