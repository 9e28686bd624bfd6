"""Killed at any operation on a file, a run goes on to the same bits, certificate and charges."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dying_disk import dying
from fits import SETTINGS, Crowd, crowd, fitted

from quorum_rl.budget import Ledger, read_certificate, read_ledger
from quorum_rl.errors import QuorumError
from quorum_rl.logs import open_demonstrations, save_demonstrations
from quorum_rl.pipeline import run
from quorum_rl.policy import Policy

METHODS = {"local": replace(SETTINGS, method="dp-sgd"), "release": SETTINGS}


def filed(folder: Path) -> Crowd:
    """The crowd with its log in a file, which nobody knows yet."""
    folder.mkdir()
    one = crowd(identity=f"the log in {folder}")
    save_demonstrations(one.log, folder / "log.arrow")
    return one._replace(log=open_demonstrations(folder / "log.arrow"))


def result(place: Path) -> Any:
    """All that must be the same: the policy, the certificate, what was charged, what is there."""
    made = read_certificate(place / "run" / "certificate.json")
    policy = Policy.load(place / "run" / "policy.safetensors")
    record = read_ledger(place / "run" / "ledger.jsonl")
    return (
        [
            (layer.weight.tobytes(), layer.bias.tobytes())
            for network in policy.networks.values()
            for layer in network
        ],
        (made.epsilon, made.marks, made.statement),
        record.events,
        sorted(str(path.relative_to(place)) for path in place.rglob("*")),
        [json.loads(path.read_text())["lines"] for path in sorted(place.glob("log.arrow.*"))],
        sum(path.is_file() for path in Path(os.environ["QUORUM_STATE"]).rglob(".*")),
    )


def go_on(one: Crowd, place: Path, settings: Any) -> None:
    try:
        fitted(one, place / "run", settings=settings)
    except QuorumError as error:
        if "holds a finished run" not in str(error):
            raise


def operations(place: Path, settings: Any) -> list[str]:
    one = filed(place)
    fitted(one, place / "run", settings=settings)  # so that everything is compiled
    again = place.with_name(f"{place.name} counted")
    one = filed(again)
    with dying(None) as disk:
        fitted(one, again / "run", settings=settings)
    return disk.done


def ends_the_same(place: Path, settings: Any, dies_at: int, wanted: Any) -> bool:
    """Whether a fit that died there and was started again has the wanted result."""
    one = filed(place)
    with dying(dies_at):
        fitted(one, place / "run", settings=settings)
    try:
        go_on(one, place, settings)
    except QuorumError:
        return False
    return bool(result(place) == wanted)


def differences(tmp_path: Path, settings: Any) -> list[int]:
    """At which operations a death changes anything."""
    count = len(operations(tmp_path / "whole", settings))
    wanted = result(tmp_path / "whole")
    assert count > 50
    assert result(tmp_path / "whole counted") == wanted
    return [
        number
        for number in range(count)
        if not ends_the_same(tmp_path / str(number), settings, number, wanted)
    ]


@pytest.mark.parametrize("method", METHODS)
def test_killed_at_any_operation_a_fit_ends_the_same(method: str, tmp_path: Path) -> None:
    assert differences(tmp_path, METHODS[method]) == []


def around_the_charge(tmp_path: Path, settings: Any) -> list[bool]:
    """Whether a fit ends the same that died at each of the operations around its first charge."""
    charge = operations(tmp_path / "whole", settings).index("write")
    wanted = result(tmp_path / "whole")
    return [
        ends_the_same(tmp_path / str(number), settings, number, wanted)
        for number in range(charge - 4, charge + 6)
    ]


def marks_later(original: Callable[..., None]) -> Callable[..., None]:
    def charge(self: Ledger, *args: Any, marks: Any = (), **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        for mark in marks:
            self.mark(mark)

    return charge


def test_the_planted_bugs_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks after the charge, and a log that nobody tells of a charge whose payer died."""
    local = METHODS["local"]
    (tmp_path / "sound").mkdir()
    assert all(around_the_charge(tmp_path / "sound", local))
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "charge", marks_later(Ledger.charge))
        (tmp_path / "marks").mkdir()
        assert not all(around_the_charge(tmp_path / "marks", local))
    monkeypatch.setattr(run, "recall", lambda *_: None)
    (tmp_path / "memory").mkdir()
    assert not all(around_the_charge(tmp_path / "memory", local))


def test_a_charge_cut_in_half_counts_as_all_that_was_left(tmp_path: Path) -> None:
    place = tmp_path / "torn"
    one, settings = filed(place), METHODS["local"]
    with dying(operations(tmp_path / "whole", settings).index("write"), torn=True):
        fitted(one, place / "run", settings=settings)
    assert read_ledger(place / "run" / "ledger.jsonl").torn
    with pytest.raises(QuorumError, match="all of its budget counts as spent"):
        fitted(one, place / "run", settings=settings)
