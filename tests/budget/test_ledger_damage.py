"""Ledgers that were tampered with, torn, killed, or wanted by two at once."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ledger_files import BOTH, ledger_of

from quorum_rl.budget import Ledger, certificate, read_ledger, record, spent_epsilon
from quorum_rl.budget.record import START, line_of, read_lines
from quorum_rl.errors import QuorumError
from quorum_rl.privacy.events import ReleaseEvent, TrainingEvent

DELTA = 3e-4
BUDGET = 9.0


@pytest.fixture
def three_charges(path: Path, release: ReleaseEvent, training: TrainingEvent) -> list[bytes]:
    """The lines of a ledger with a release, a mark and two trainings."""
    Ledger.create(path, epsilon=BUDGET, delta=DELTA)
    with Ledger.open(path) as ledger:
        ledger.charge(release, run="release", facts={"pool": "p"})
        ledger.mark("reproducible noise")
        ledger.charge(training, run="training")
        ledger.charge(replace(training, steps=100), run="more training")
    return path.read_bytes().splitlines(keepends=True)


EDITED = r"was edited: bring"
MOVED = r"is out of its place \(.*\), so lines were moved, copied or removed: bring"
MISSING = r"follows a line that is not here, so the line before was removed or written anew"


def assert_tampered(path: Path, content: bytes, said: str) -> None:
    path.write_bytes(content)
    with pytest.raises(QuorumError, match=said) as refused:
        read_ledger(path)
    assert "cut off" not in str(refused.value)
    with pytest.raises(QuorumError, match=said), Ledger.open(path):
        pass


def test_lines_cannot_be_removed_swapped_or_copied(path: Path, three_charges: list[bytes]) -> None:
    a, b, c, d, e = three_charges
    for lines in ([a, c, d, e], [a, b, d, e], [b, c, d, e], [a, b, c, e]):
        assert_tampered(path, b"".join(lines), MISSING)
    for lines in ([a, c, b, d, e], [a, b, b, c, d, e], [a, b, c, d, a], [a, b, c, e, d]):
        assert_tampered(path, b"".join(lines), MOVED)


def test_lines_of_another_ledger_are_told_from_edited_ones(
    path: Path, three_charges: list[bytes], tmp_path: Path, training: TrainingEvent
) -> None:
    Ledger.create(tmp_path / "other.jsonl", epsilon=BUDGET, delta=DELTA)
    with Ledger.open(tmp_path / "other.jsonl") as ledger:
        ledger.charge(training, run="other")
    header, charge = (tmp_path / "other.jsonl").read_bytes().splitlines(keepends=True)
    assert_tampered(path, b"".join([header, *three_charges[1:]]), "of another ledger's chain")
    assert_tampered(path, b"".join([*three_charges, charge]), "of another ledger's chain")


def test_a_line_that_was_edited_is_not_taken_for_one_that_was_cut_off(
    path: Path, three_charges: list[bytes]
) -> None:
    *whole, last = three_charges
    assert_tampered(path, b"".join([*whole, last.replace(b'"steps":100', b'"steps":1')]), EDITED)
    assert_tampered(path, b"".join([*whole, last.replace(b",", b", ", 1)]), EDITED)
    a, b, *rest = three_charges
    assert_tampered(path, b"".join([a.replace(b'"epsilon":9.0', b'"epsilon":90.0'), b]), EDITED)
    infinite = b.replace(b'"theta":229.8167', b'"theta":NaN')
    assert_tampered(path, b"".join([a, infinite, *rest]), "line 2 .* is damaged and cannot be read")
    path.write_bytes(b"".join([*whole, last[:-9]]))
    assert read_ledger(path).torn


BUGS = {
    "what was not written cannot be read": "_parts",
    "every fault is a cut": "_fault",
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_reader_that_takes_an_edited_line_for_one_that_was_cut_off_is_seen(
    bug: str, path: Path, three_charges: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bugs; the first is as it was."""
    sound, whole = record._parts, {line[:-1] for line in three_charges}
    faulty: dict[str, Any] = {
        "_parts": lambda raw: sound(raw) if raw in whole else None,
        "_fault": lambda *_: "was cut off",
    }
    monkeypatch.setattr(record, BUGS[bug], faulty[BUGS[bug]])
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test_a_line_that_was_edited_is_not_taken_for_one_that_was_cut_off(path, three_charges)


def test_lines_of_earlier_versions_do_not_say_what_they_follow(path: Path) -> None:
    a, b, c = ledger_of(*BOTH).splitlines(keepends=True)
    assert_tampered(path, a + c, "was edited, or the line before it was removed")
    assert_tampered(path, a + c + b, MOVED)


def test_a_constant_cannot_be_changed_not_even_with_a_new_hash(
    path: Path, three_charges: list[bytes]
) -> None:
    a, b, *rest = three_charges
    cheaper = b.replace(b'"threshold":573.1553', b'"threshold":973.1553')
    assert cheaper != b
    assert_tampered(path, b"".join([a, cheaper, *rest]), EDITED)
    head = read_lines(a, "").head
    rehashed = line_of(json.loads(cheaper)["entry"], head)
    assert line_of(json.loads(a)["entry"], START) == a
    assert_tampered(path, b"".join([a, rehashed, *rest]), MISSING)


def test_no_byte_before_the_last_line_can_be_changed(
    path: Path, three_charges: list[bytes]
) -> None:
    content = b"".join(three_charges)
    inside = len(content) - len(three_charges[-1]) - 1  # without the last of these newlines
    for position in range(inside):
        changed = bytearray(content)
        changed[position] ^= 1
        path.write_bytes(changed)
        with pytest.raises(
            QuorumError, match=r"damaged|edited|out of its place|not here|is not a ledger"
        ):
            read_ledger(path)
    path.write_bytes(content[:inside] + b" " + content[inside + 1 :])  # two lines made one
    assert read_ledger(path).torn


def test_a_last_line_torn_at_any_byte_costs_all_that_was_left(
    path: Path, three_charges: list[bytes], training: TrainingEvent
) -> None:
    *whole, last = three_charges
    honest = spent_epsilon(read_ledger(path))
    assert honest < BUDGET
    for kept in range(1, len(last)):
        path.write_bytes(b"".join(whole) + last[:kept])
        record = read_ledger(path)
        assert record.torn
        assert len(record.charges) == 2
        if kept % 100 == 1:  # the same code for all of them, and not free
            assert spent_epsilon(record) == BUDGET
            assert certificate(record).epsilon >= BUDGET
            assert spent_epsilon(record, DELTA / 10) == float("inf")
    before = path.read_bytes()
    with Ledger.open(path) as ledger:
        with pytest.raises(QuorumError, match="all of its budget counts as spent"):
            ledger.charge(training, run="on")
        with pytest.raises(QuorumError, match="all of its budget counts as spent"):
            ledger.mark("on")
    assert path.read_bytes() == before


def test_a_last_line_that_was_never_begun_was_never_charged(
    path: Path, three_charges: list[bytes]
) -> None:
    path.write_bytes(b"".join(three_charges[:-1]))
    assert not read_ledger(path).torn
    assert len(read_ledger(path).charges) == 2


@pytest.mark.parametrize("ending", [b"\0" * 300, b"garbage\n", b"\n"])
def test_rubbish_at_the_end_counts_as_a_torn_line(
    path: Path, three_charges: list[bytes], ending: bytes
) -> None:
    path.write_bytes(b"".join(three_charges) + ending)
    record = read_ledger(path)
    assert record.torn
    assert len(record.charges) == 3
    assert spent_epsilon(record) == BUDGET


def test_a_changed_last_line_is_never_cheaper(path: Path, three_charges: list[bytes]) -> None:
    *whole, last = three_charges
    for position in range(0, len(last) - 1, 7):
        changed = bytearray(last)
        changed[position] ^= 1
        path.write_bytes(b"".join(whole) + changed)
        try:
            record = read_ledger(path)
        except QuorumError:  # it became two damaged lines
            continue
        assert record.torn


def test_a_torn_research_ledger_claims_nothing(path: Path, training: TrainingEvent) -> None:
    Ledger.create(path, epsilon=None, delta=None, kind="research")
    with Ledger.open(path) as ledger:
        ledger.charge(training, run="one")
    path.write_bytes(path.read_bytes()[:-5])
    assert spent_epsilon(read_ledger(path), DELTA) == float("inf")


CHARGING = """
import sys
from quorum_rl.budget import Ledger
from quorum_rl.privacy.events import TrainingEvent
with Ledger.open(sys.argv[1]) as ledger:
    start = len(ledger.record.charges)
    for number in range(start, start + 100_000):
        event = TrainingEvent(sampling_rate=0.01, noise_multiplier=5.0, steps=number + 1)
        ledger.charge(event, run=str(number), facts={"filling": "x" * (number * 977 % 9000)})
        print(number, flush=True)
"""


def charging_process(path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CHARGING, str(path)], stdout=subprocess.PIPE, text=True
    )


def test_killed_at_any_point_a_ledger_has_every_charge_that_was_reported(path: Path) -> None:
    Ledger.create(path, epsilon=None, delta=None, kind="research")
    for reports in (1, 40, 7):
        with charging_process(path) as child:
            assert child.stdout is not None
            reported = [int(child.stdout.readline()) for _ in range(reports)]
            os.kill(child.pid, signal.SIGKILL)
            reported += [int(line) for line in child.stdout if line.endswith("\n")]
        assert child.returncode == -signal.SIGKILL
        with Ledger.open(path) as ledger:  # the lock died with its holder
            record = ledger.record
        runs = [int(charge.run) for charge in record.charges]
        assert runs == list(range(len(runs)))
        assert len(runs) > reported[-1]
        assert len(runs) + record.torn <= reported[-1] + 2  # and one that was under way
        if record.torn:  # then it ends here, as it should
            break


def test_a_second_writer_is_kept_out(path: Path, training: TrainingEvent) -> None:
    Ledger.create(path, epsilon=None, delta=None, kind="research")
    with charging_process(path) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            with (
                pytest.raises(QuorumError, match=f"process {child.pid} is using the ledger .*wait"),
                Ledger.open(path),
            ):
                pass
            assert read_ledger(path).kind == "research"  # reading is always possible
        finally:
            child.kill()
    with Ledger.open(path) as ledger:
        with pytest.raises(QuorumError, match="is using the ledger"), Ledger.open(path):
            pass
        ledger.charge(training, run="mine")
