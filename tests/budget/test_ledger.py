"""The ledger: what is charged, what is refused, and that a refusal leaves no trace."""

import math
import os
from dataclasses import replace
from pathlib import Path

import pytest

from quorum_rl.budget import Ledger, ledger as ledger_module, read_ledger, spent_epsilon
from quorum_rl.errors import QuorumError
from quorum_rl.privacy.accounting import total_epsilon
from quorum_rl.privacy.events import ReleaseEvent, TrainingEvent

DELTA = 3e-4


def test_a_new_ledger_has_its_budget_and_a_random_identity(tmp_path: Path) -> None:
    first = Ledger.create(tmp_path / "a.jsonl", epsilon=5.0, delta=DELTA)
    second = Ledger.create(tmp_path / "b.jsonl", epsilon=5.0, delta=DELTA)
    assert read_ledger(tmp_path / "a.jsonl") == first
    assert (first.kind, first.epsilon, first.delta, first.charges) == ("production", 5.0, DELTA, ())
    assert len(first.identity) == 32
    assert first.identity != second.identity
    assert spent_epsilon(first) == 0
    assert (tmp_path / "a.jsonl").stat().st_mode & 0o777 == 0o600
    assert len(list(tmp_path.iterdir())) == 2  # nothing temporary is left


def test_a_ledger_is_never_overwritten(path: Path) -> None:
    Ledger.create(path, epsilon=5.0, delta=DELTA)
    before = path.read_bytes()
    with pytest.raises(QuorumError, match="there is a ledger at"):
        Ledger.create(path, epsilon=50.0, delta=DELTA)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [
        *((epsilon, DELTA) for epsilon in (0.0, -1.0, math.nan, math.inf, None)),
        *((5.0, delta) for delta in (0.0, 1.0, math.nan, None)),
    ],
)
def test_a_budget_must_be_two_sensible_numbers(
    path: Path, epsilon: float | None, delta: float | None
) -> None:
    with pytest.raises(QuorumError, match=r"epsilon|delta"):
        Ledger.create(path, epsilon=epsilon, delta=delta)
    assert not path.exists()


def test_charges_and_marks_are_read_back_as_they_were_written(
    path: Path, release: ReleaseEvent, training: TrainingEvent
) -> None:
    Ledger.create(path, epsilon=9.0, delta=DELTA)
    with Ledger.open(path) as ledger:
        ledger.charge(release, run="first", facts={"pool": "p1", "accepted": ["common-world"]})
        ledger.mark("reproducible noise")
        ledger.mark("reproducible noise")
        assert ledger.record.pools == ("p1",)
    with Ledger.open(path) as ledger:
        ledger.charge(training, run="second")
        assert ledger.record.pools == ("p1",)
    record = read_ledger(path)
    assert record.events == (release, training)
    assert [charge.run for charge in record.charges] == ["first", "second"]
    assert record.charges[0].facts == {"pool": "p1", "accepted": ["common-world"]}
    assert [mark.text for mark in record.marks] == ["reproducible noise"]
    assert spent_epsilon(record) == total_epsilon([release, training], DELTA)


def test_a_charge_is_on_the_disk_before_it_returns(
    path: Path, training: TrainingEvent, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bytes] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        fsync(descriptor)
        synced.append(path.read_bytes() if path.exists() else b"")

    monkeypatch.setattr(os, "fsync", noted)
    Ledger.create(path, epsilon=9.0, delta=DELTA)
    assert synced[-1] == path.read_bytes()  # the folder, once the name was in it
    with Ledger.open(path) as ledger:
        ledger.charge(training, run="one")
        assert synced[-1] == path.read_bytes()


def test_an_overspending_charge_is_refused_and_leaves_no_trace(
    path: Path, release: ReleaseEvent, training: TrainingEvent
) -> None:
    Ledger.create(path, epsilon=3.0, delta=DELTA)
    with Ledger.open(path) as ledger:
        ledger.charge(release, run="one", facts={"pool": "p"})
        before = path.read_bytes()
        spent, total = (total_epsilon(list(e), DELTA) for e in ((release,), (release, training)))
        left = f"{3 - spent:.4g} that is left"
        with pytest.raises(
            QuorumError, match=f"from {spent:.4g} to {total:.4g} .*budget of 3: .*{left}"
        ):
            ledger.charge(training, run="two")
        assert path.read_bytes() == before
        ledger.charge(replace(training, steps=20), run="two")  # what fits is still welcome
    assert len(read_ledger(path).charges) == 2


def test_a_cost_that_is_not_a_number_is_refused(
    path: Path, training: TrainingEvent, monkeypatch: pytest.MonkeyPatch
) -> None:
    Ledger.create(path, epsilon=3.0, delta=DELTA)
    monkeypatch.setattr(ledger_module, "total_epsilon", lambda *_: math.nan)
    with Ledger.open(path) as ledger, pytest.raises(QuorumError, match="to nan at"):
        ledger.charge(training, run="one")
    assert read_ledger(path).charges == ()


def test_facts_that_are_not_plain_data_are_refused(path: Path, training: TrainingEvent) -> None:
    Ledger.create(path, epsilon=9.0, delta=DELTA)
    before = path.read_bytes()
    with Ledger.open(path) as ledger:
        for fact in (math.nan, math.inf, object()):
            with pytest.raises(QuorumError, match="plain finite"):
                ledger.charge(training, run="one", facts={"rate": fact})  # type: ignore[dict-item]
    assert path.read_bytes() == before


def test_a_release_pool_is_used_once(path: Path, release: ReleaseEvent) -> None:
    Ledger.create(path, epsilon=9.0, delta=DELTA)
    small = replace(release, iterations=2)
    with Ledger.open(path) as ledger:
        for facts in ({}, {"pool": ""}, {"pool": 3}):
            with pytest.raises(QuorumError, match="must name its pool"):
                ledger.charge(small, run="one", facts=facts)
        ledger.charge(small, run="one", facts={"pool": "p"})
        before = path.read_bytes()
        with pytest.raises(QuorumError, match=r"was used on [\d-]{10} by run 'one'.*collect new"):
            ledger.charge(small, run="two", facts={"pool": "p"})
        assert path.read_bytes() == before
        ledger.charge(small, run="two", facts={"pool": "q"})
        assert ledger.record.pools == ("p", "q")


def test_a_research_ledger_refuses_no_cost_and_no_repeated_pool(
    path: Path, release: ReleaseEvent
) -> None:
    Ledger.create(path, epsilon=None, delta=None, kind="research")
    with Ledger.open(path) as ledger:
        for _ in range(3):
            ledger.charge(replace(release, iterations=300), run="grid", facts={"pool": "p"})
        with pytest.raises(QuorumError, match="must name its pool"):
            ledger.charge(release, run="grid")
    record = read_ledger(path)
    assert len(record.charges) == 3
    with pytest.raises(QuorumError, match="has no delta"):
        spent_epsilon(record)
    assert spent_epsilon(record, DELTA) > 10


def test_a_full_disk_charges_nothing_and_damages_nothing(
    path: Path, training: TrainingEvent, monkeypatch: pytest.MonkeyPatch
) -> None:
    Ledger.create(path, epsilon=9.0, delta=DELTA)
    before = path.read_bytes()
    write = os.write
    with Ledger.open(path) as ledger:
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", lambda to, line: write(to, line[: len(line) // 2]))
            with pytest.raises(QuorumError, match=r"disk is full.*nothing was charged"):
                ledger.charge(training, run="one")
        assert path.read_bytes() == before
        ledger.charge(training, run="one")
    assert len(read_ledger(path).charges) == 1


def test_a_ledger_that_was_replaced_under_an_open_one_is_not_written(
    path: Path, training: TrainingEvent
) -> None:
    Ledger.create(path, epsilon=9.0, delta=DELTA)
    with Ledger.open(path) as ledger:
        copy = path.read_bytes()
        path.unlink()
        with pytest.raises(QuorumError, match="moved or replaced"):
            ledger.charge(training, run="one")
        path.write_bytes(copy)
        with pytest.raises(QuorumError, match="moved or replaced"):
            ledger.charge(training, run="one")


def test_what_is_not_there_or_not_a_ledger_is_named(path: Path) -> None:
    for read in (read_ledger, lambda path: Ledger.open(path).__enter__()):
        with pytest.raises(QuorumError, match="there is no ledger at"):
            read(path)
    for content in (b"", b"{", b'{"entry":{}}'):
        path.write_bytes(content)
        with pytest.raises(QuorumError, match="is not a ledger"):
            read_ledger(path)
