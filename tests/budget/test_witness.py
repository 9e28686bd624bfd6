"""What is known of a ledger outside its file: an older copy is found out, an honest user never."""

import json
import shutil
from pathlib import Path

import pytest
from dying_disk import dying
from ledger_files import TRAINING

from quorum_rl.budget import Budget, Ledger, read_ledger, witness
from quorum_rl.errors import QuorumError

DELTA = 3e-4
OLDER = (
    r"is an older copy or a fork, for it lacks line \d+, its last when it was charged at '.*': "
    r"bring back the copy that was charged last, .*; nothing was charged\.$"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    Ledger.create(tmp_path / "ledger", epsilon=9.0, delta=DELTA)
    return tmp_path / "ledger"


def charge(path: Path, run: str = "a run") -> None:
    with Ledger.open(path) as ledger:
        ledger.charge(TRAINING, run=run)


def copied(path: Path, name: str = "copy") -> Path:
    return Path(shutil.copy(path, path.with_name(name)))


def rolled_back(path: Path) -> None:
    """Two charges, then the copy of the day before the second comes back."""
    charge(path)
    yesterday = copied(path)
    charge(path, "another run")
    shutil.copy(yesterday, path)


def test_a_ledger_restored_from_an_older_copy_is_refused(path: Path) -> None:
    rolled_back(path)
    for use in (charge, Budget.open, lambda path: Budget(path).certificate()):
        with pytest.raises(QuorumError, match=OLDER):
            use(path)
    assert len(read_ledger(path).charges) == 1  # whoever only reads may read any copy


def test_of_two_copies_only_one_goes_on(path: Path) -> None:
    fork = copied(path)
    charge(path)
    with pytest.raises(QuorumError, match=OLDER):
        charge(fork)
    charge(path, "and again")


def test_a_copy_that_was_charged_elsewhere_is_a_fork(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork = copied(path)
    charge(path)
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("QUORUM_STATE", str(tmp_path / "elsewhere"))
        charge(fork, "elsewhere")
    with pytest.raises(QuorumError, match=OLDER):
        charge(fork)


def test_of_two_copies_that_are_open_at_once_only_one_is_charged(path: Path) -> None:
    with Ledger.open(path) as one, Ledger.open(copied(path)) as other:
        one.charge(TRAINING, run="one")
        with pytest.raises(QuorumError, match=OLDER):
            other.charge(TRAINING, run="other")
        assert not other.record.charges


@pytest.mark.parametrize("check", ["check", "tell"])
def test_without_comparing_or_telling_the_witness_a_rollback_passes(
    path: Path, monkeypatch: pytest.MonkeyPatch, check: str
) -> None:
    """The planted bugs."""
    if check == "check":
        monkeypatch.setattr(witness.Witness, "check", lambda *_: None)
    else:
        monkeypatch.setattr(witness, "write_witness", lambda *_: True)
    rolled_back(path)
    charge(path)


def after_a_death(place: Path, number: int) -> tuple[Path, Path, bool]:
    """A ledger whose second charge died at that operation, the copy before, and whether it did."""
    place.mkdir()
    Ledger.create(place / "ledger", epsilon=9.0, delta=DELTA)
    charge(place / "ledger", "yesterday")
    before, returned = copied(place / "ledger"), False
    with dying(number):
        charge(place / "ledger")
        returned = True
    return place / "ledger", before, returned


def test_killed_at_any_operation_the_user_goes_on_and_no_paid_look_is_forgotten(
    tmp_path: Path,
) -> None:
    """A charge returns, and its data is touched, only after the witness knows of it."""
    returned, number = False, 0
    while not returned:
        _, before, returned = after_a_death(tmp_path / f"attack {number}", number)
        if returned:
            with pytest.raises(QuorumError, match=OLDER):
                charge(before)
        ledger, before, _ = after_a_death(tmp_path / f"goes on {number}", number)
        with Ledger.open(ledger) as opened:
            paid = len(opened.record.charges) == 2  # then the run goes on, without another charge
        if paid:
            with pytest.raises(QuorumError, match=OLDER):
                charge(before)
        charge(ledger)
        with pytest.raises(QuorumError, match=OLDER):
            charge(before)
        number += 1
    assert number > 8


def test_a_witness_that_cannot_be_written_fails_nothing_and_stands_in_the_certificate(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUORUM_STATE", str(path / "within a file"))
    charge(path)
    charge(path)
    assert [mark.text[:45] for mark in read_ledger(path).marks] == [
        "some of this was charged where a state folder"
    ]
    monkeypatch.setenv("QUORUM_STATE", str(tmp_path / "writable"))
    charge(path)
    before = copied(path)
    charge(path)
    with pytest.raises(QuorumError, match=OLDER):
        charge(before)


def test_a_ledger_with_a_witness_has_no_such_mark(path: Path) -> None:
    charge(path)
    assert not read_ledger(path).marks


def test_a_second_witness_notices_what_the_first_forgot(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = tmp_path / "own", tmp_path / "elsewhere"
    monkeypatch.setenv("QUORUM_STATE", f"{own}:{other}")
    rolled_back(path)
    shutil.rmtree(own)
    with pytest.raises(QuorumError, match=OLDER):
        charge(path)
    shutil.rmtree(other)
    charge(path)  # which docs/limits.md says


def test_research_ledgers_have_no_witness(tmp_path: Path, state: Path) -> None:
    path = tmp_path / "research"
    Ledger.create(path, epsilon=None, delta=DELTA, kind="research")
    rolled_back(path)
    charge(path)
    assert not state.exists()


def test_a_damaged_witness_is_one_sentence(path: Path, state: Path) -> None:
    charge(path)
    (file,) = (state / "ledgers").iterdir()
    good = json.loads(file.read_text())
    damaged = ["", "[]", "[" * 100_000, "null", json.dumps(good | {"lines": "3"}),
               json.dumps(good | {"kind": "gift"}), json.dumps(good | {"more": 1}),
               json.dumps({"of": good["of"]})]  # fmt: skip
    for content in damaged:
        file.write_text(content)
        with pytest.raises(QuorumError, match="is damaged, and says to which ledger"):
            charge(path)
    file.write_text(json.dumps(good | {"of": "something else"}))
    charge(path)


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({"HOME": "/home/desk"}, "/home/desk/.local/state/quorum"),
        ({"HOME": "/home/desk", "XDG_STATE_HOME": "/var/desk"}, "/var/desk/quorum"),
        ({"HOME": "/home/desk", "XDG_STATE_HOME": "var"}, "/home/desk/.local/state/quorum"),
        ({"XDG_STATE_HOME": "/var/desk", "QUORUM_STATE": "/a:/b"}, "/a /b"),
    ],
)
def test_where_the_state_folder_is(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], wanted: str
) -> None:
    for name in ("HOME", "XDG_STATE_HOME", "QUORUM_STATE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert " ".join(map(str, witness.state_folders())) == wanted


def test_a_state_folder_that_is_not_absolute_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUORUM_STATE", "state")
    with pytest.raises(QuorumError, match="QUORUM_STATE names 'state': give an absolute path"):
        charge(path)
