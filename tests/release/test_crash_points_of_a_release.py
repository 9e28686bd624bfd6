"""Killed at any operation on a file, a release by itself goes on to the same prefixes."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from crash_points import CrashPoints, Program, everything_in, remembered_lines
from dying_disk import dying
from numbered_logs import EVERYTHING, Scene

from quorum_rl.budget import Ledger, certificate, read_ledger
from quorum_rl.cli.output import check_new_file
from quorum_rl.errors import QuorumError
from quorum_rl.logs import open_demonstrations, save_demonstrations
from quorum_rl.privacy.planner import ReleasePlan
from quorum_rl.release import forget_finished, read_released, release_to_file, to_file


class Released:
    """A release by itself, as the command makes it."""

    def __init__(self, many: Scene, plan: ReleasePlan, seed: int | None = None) -> None:
        self.many, self.plan, self.seed = many, plan, seed
        self.program = Program(self.prepare, self.start, self.result, self.paid, "exists already")

    def prepare(self, place: Path) -> None:
        place.mkdir(parents=True)
        declared = replace(self.many.log.declared, identity="a filed log")
        save_demonstrations(replace(self.many.log, declared=declared), place / "log.arrow")
        Ledger.create(place / "ledger", epsilon=6.0, delta=0.01)

    def start(self, place: Path, **changed: Any) -> None:
        out = place / "out.parquet"
        forget_finished(out)
        check_new_file(out, overwrite=False)
        log = open_demonstrations(place / "log.arrow")
        with Ledger.open(place / "ledger") as ledger:
            options: dict[str, Any] = {"plan": self.plan, "seed": self.seed} | changed
            release_to_file(
                self.many.experts, log, ledger=ledger, out=out, accepted=EVERYTHING, **options
            )

    def result(self, place: Path) -> Any:
        """The prefixes, the certificate, what was charged, what is there, and the marker."""
        found, record = read_released(place / "out.parquet"), read_ledger(place / "ledger")
        made = certificate(record)
        return (
            [column.tobytes() for column in (*found.transitions, found.offsets)],
            (made.epsilon, made.marks, made.statement),
            record.events,
            everything_in(place),
            remembered_lines(place),
        )

    def paid(self, place: Path) -> bool:
        return bool(read_ledger(place / "ledger").charges)


@pytest.mark.parametrize("seed", [None, 3])
def test_killed_at_any_operation_a_release_ends_the_same(
    seed: int | None, many: Scene, plan: ReleasePlan, tmp_path: Path
) -> None:
    points = CrashPoints(Released(many, plan, seed).program, tmp_path)
    assert len(points.operations) > 25
    assert (points.wanted[0] == points.wanted[1]) is (seed is not None)
    assert points.wanted[0][3] == ["ledger", "log.arrow", "log.arrow.released", "out.parquet"]
    assert points.differences() == []


def forgets(kept: Path) -> None:
    del kept


def test_a_secret_that_nobody_finds_again_is_seen(
    many: Scene, plan: ReleasePlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug: the release that was paid for is lost."""
    points = CrashPoints(Released(many, plan).program, tmp_path)
    assert points.differences(points.around_the_charge()) == []
    monkeypatch.setattr(to_file, "_read", forgets)
    assert points.differences(points.around_the_charge()) != []


@pytest.fixture(name="died")
def _died(many: Scene, plan: ReleasePlan, tmp_path: Path) -> tuple[Released, Path]:
    """A release that died when it was paid for, in a folder."""
    one, place = Released(many, plan), tmp_path / "died"
    points = CrashPoints(one.program, tmp_path)
    one.prepare(place)
    with dying(points.operations.index("write") + 2):
        one.start(place)
    assert one.paid(place)
    return one, place


def test_another_release_cannot_go_on_with_the_secret_of_one_that_died(
    died: tuple[Released, Path],
) -> None:
    one, place = died
    before = {path: path.read_bytes() for path in place.iterdir()}
    other = replace(one.plan, event=replace(one.plan.event, threshold=393.0))
    for changed in ({"plan": other}, {"seed": 5}, {"run": "again"}, {"training_minimum": 2}):
        with pytest.raises(QuorumError, match="was begun with other demonstrations, plan"):
            one.start(place, **changed)
    assert {path: path.read_bytes() for path in place.iterdir()} == before
    one.start(place)


def test_the_noise_of_a_release_that_died_is_not_added_to_another_log(
    died: tuple[Released, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the same shape and identity: the log is swapped under a release that is paid for."""
    one, place = died
    log = open_demonstrations(place / "log.arrow")
    rewards = log.columns.rewards.copy()
    rewards[0] += 1
    other = replace(log, columns=log.columns._replace(rewards=rewards))
    save_demonstrations(other, tmp_path / "other.arrow")
    (place / "log.arrow").write_bytes((tmp_path / "other.arrow").read_bytes())
    before = {path: path.read_bytes() for path in place.iterdir()}
    with pytest.raises(QuorumError, match="data with other contents than it is given now"):
        one.start(place)
    assert {path: path.read_bytes() for path in place.iterdir()} == before
    monkeypatch.setattr(to_file, "check_contents", lambda *_: None)  # the planted bug
    one.start(place)
    assert (place / "out.parquet").exists()


def test_without_its_secret_a_release_that_died_is_not_made_again(
    died: tuple[Released, Path],
) -> None:
    """Or there were two results of one charge."""
    one, place = died
    kept = place / "out.parquet.private"
    assert kept.stat().st_mode & 0o777 == 0o600
    facts = json.loads(kept.read_text())
    for damaged in ("", "[]", "{}", json.dumps(facts | {"words": {"noise": [1], "salt": [1]}})):
        kept.write_text(damaged)
        with pytest.raises(QuorumError, match="is damaged"):
            one.start(place)
    facts["words"]["noise"][0] ^= 1
    kept.write_text(json.dumps(facts))
    for _ in range(2):  # other keys, and then none
        with pytest.raises(QuorumError, match="stage 1 runs once per pool"):
            one.start(place)
        assert not kept.exists()
