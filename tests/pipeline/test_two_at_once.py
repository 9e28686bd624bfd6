"""Who starts the same twice, or two things with one log, in the same moment."""

from contextlib import nullcontext, suppress
from pathlib import Path
from threading import Barrier, BrokenBarrierError, Thread
from typing import Any

import pytest
from fits import DELTA, Crowd
from ledger_files import TRAINING

from quorum_rl.budget import Budget, Ledger
from quorum_rl.errors import QuorumError
from quorum_rl.logs import open_demonstrations, save_demonstrations
from quorum_rl.pipeline.folder import RunFolder
from quorum_rl.release import belonging

AT_ONCE = 5


def test_of_two_runs_in_one_folder_the_second_is_refused_and_takes_nothing_away(
    tmp_path: Path,
) -> None:
    """As it was, whoever was refused removed the ledger that the first had made since."""
    first, second = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "run")
    with first.unless_refused(first.ledger):
        first.write_json("config.json", {})
        Budget.create(first.ledger, epsilon=3.0, delta=DELTA)
        with pytest.raises(QuorumError, match="another process is at work"):
            enter(second)
        assert first.ledger.exists()
        first.name()
        first.finish()
    with pytest.raises(QuorumError, match="holds a finished run"):
        refused_in(second)
    assert (tmp_path / "run" / "config.json").exists()
    assert first.ledger.exists()


def enter(place: RunFolder) -> None:
    with place.unless_refused(place.ledger):
        pass


def refused_in(place: RunFolder) -> None:
    with place.unless_refused(place.ledger):
        raise QuorumError("it holds a finished run.")


def charged_at_once(one: Crowd, place: Path, patch: pytest.MonkeyPatch) -> tuple[int, list[str]]:
    """How many of those who charge ledgers of their own for one log in one moment come through."""
    save_demonstrations(one.log, place / "log.arrow")
    together, check, said = Barrier(AT_ONCE), belonging.check_belongs, list[str]()

    def wait(*args: Any) -> Any:
        found = check(*args)
        with suppress(BrokenBarrierError):
            together.wait(0.2)  # all have looked before any charges, if nothing keeps them apart
        return found

    def charge(number: int) -> None:
        log = open_demonstrations(place / "log.arrow")
        Budget.create(place / f"{number}.ledger", epsilon=3.0, delta=DELTA)
        facts = {"accepted": ["one-expert-each"], "whole_log": log.declared.identity}
        try:
            with Ledger.open(place / f"{number}.ledger") as ledger:
                belonging.charge_log(ledger, TRAINING, log, run="run", facts=facts)
        except QuorumError as error:
            said.append(str(error))

    patch.setattr(belonging, "check_belongs", wait)
    threads = [Thread(target=charge, args=[number]) for number in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ledgers = [Budget(place / f"{number}.ledger").record for number in range(AT_ONCE)]
    return sum(bool(record.charges) for record in ledgers), said


@pytest.mark.parametrize("state", [True, False])
def test_of_five_that_charge_for_one_log_at_once_one_comes_through(
    state: bool, everyone: Crowd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not state:
        monkeypatch.setenv("QUORUM_STATE", "/proc/nowhere")
    count, said = charged_at_once(everyone, tmp_path, monkeypatch)
    assert count == 1
    assert len(said) == AT_ONCE - 1
    assert all("belongs to the ledger" in sentence for sentence in said)


def test_without_the_lock_all_of_them_come_through(
    everyone: Crowd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug."""
    monkeypatch.setattr(belonging, "_held", lambda *_: nullcontext())
    assert charged_at_once(everyone, tmp_path, monkeypatch)[0] == AT_ONCE
