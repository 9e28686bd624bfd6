"""A coordinator that is killed, copied or left says nothing twice; planted bugs beside each."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from at_sites import ROUNDS, Change, Failing, fitted_at_sites, of_bad
from fits import same_weights

from quorum_rl.budget import Budget, in_state, read_ledger
from quorum_rl.errors import Interrupted, QuorumError
from quorum_rl.pipeline import Fitted
from quorum_rl.sites import Answer, Question
from quorum_rl.sites.sums import ROUNDS as ROOM, SumsOfRounds
from quorum_rl.training import AskedSum

GONE: Change = of_bad(lambda _: [])


def test_below_its_minimum_of_sites_a_run_stops_and_goes_on_to_the_same_bits(
    tmp_path: Path,
) -> None:
    one = of_bad(lambda answer: [] if answer.number == 3 else [answer])
    with pytest.raises(Interrupted, match="round 3: 2 of 3 sites sent a sum, and 3 must"):
        fitted_at_sites(Failing(one), tmp_path / "run", minimum_sites=3)
    made = fitted_at_sites(Failing(), tmp_path / "run", minimum_sites=3)
    assert same_weights(made, fitted_at_sites(Failing(), tmp_path / "whole", minimum_sites=3))
    assert len(read_ledger(made.folder / "ledger.jsonl").charges) == 1


class Killed(Exception):  # noqa: N818 - nothing that anybody handles
    """In the place of a power cut."""


class Dying(Failing):
    """Sites whose coordinator dies while it asks in this round, or when it has half the answers."""

    def __init__(self, number: int, after: int, change: Change | None = None) -> None:
        super().__init__(*([] if change is None else [change]))
        self.number, self.after = number, after

    def ask(self, questions: Mapping[str, Question]) -> Iterator[tuple[str, Answer]]:
        number = next(iter(questions.values())).number
        for count, sent in enumerate(super().ask(questions)):
            if (number, count) == (self.number, self.after):
                raise Killed
            yield sent


def left(attempts: list[Failing]) -> list[dict[int, list[bytes]]]:
    """What left the coordinator in each attempt, by round."""
    return [dict(attempt.asked) for attempt in attempts]


def killed_and_gone_on(folder: Path, number: int) -> tuple[Fitted, list[Failing]]:
    """A run that is killed in a round; when it goes on, one of its sites is gone."""
    first = Dying(number, after=1)
    with pytest.raises(Killed):
        fitted_at_sites(first, folder)
    second = Failing(GONE)
    return fitted_at_sites(second, folder), [first, second]


@pytest.mark.parametrize("number", range(1, ROUNDS + 1))
def test_killed_in_any_round_a_coordinator_says_nothing_twice_with_the_same_noise(
    number: int, tmp_path: Path
) -> None:
    """Rounds that are done are not asked for again, so a site that left changes none of them."""
    _, attempts = killed_and_gone_on(tmp_path / "run", number)
    first, second = left(attempts)
    assert sorted(first) == list(range(1, number + 1))
    assert sorted(second) == list(range(number, ROUNDS + 1))
    assert first[number] == second[number]


def test_without_kept_sums_a_repeated_round_would_tell_a_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug: the same noise on a sum that a site has left meanwhile."""
    for step in ("_keep", "_tell"):  # the witness alone would refuse the round
        monkeypatch.setattr(SumsOfRounds, step, lambda *_: None)
    _, attempts = killed_and_gone_on(tmp_path / "run", ROUNDS)
    first, second = left(attempts)
    assert first[ROUNDS] != second[ROUNDS]


def copied_and_gone_on(
    folder: Path, number: int, meanwhile: Callable[[], Any] = lambda: None
) -> list[Failing]:
    """A run of which a copy is made before a round; in the copy, one of the sites is gone."""
    first = Dying(number, after=0)
    with pytest.raises(Killed):
        fitted_at_sites(first, folder)
    copy = folder.with_name("copy")
    shutil.copytree(folder, copy)
    ledger = Budget.open(folder / "ledger.jsonl")  # of both
    attempts = [Failing(), Failing(GONE)]
    fitted_at_sites(attempts[0], folder, budget=ledger)
    meanwhile()
    fitted_at_sites(attempts[1], copy, budget=ledger)
    return attempts


@pytest.mark.parametrize("number", range(1, ROUNDS + 1))
def test_a_copy_of_a_coordinators_folder_does_no_round_a_second_time(
    number: int, tmp_path: Path
) -> None:
    """Sites are told all parameters: two sums under one noise are the sum of who was gone."""
    with pytest.raises(QuorumError, match=rf"^round {number} of 'fit-\w+' was done already, in"):
        copied_and_gone_on(tmp_path / "run", number)


def test_without_a_witness_of_rounds_a_copy_tells_what_a_site_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug: the parameters of the next round differ by that sum, without noise."""
    monkeypatch.setattr(SumsOfRounds, "_check_not_done", lambda *_: None)
    first, second = left(copied_and_gone_on(tmp_path / "run", ROUNDS - 1))
    assert first[ROUNDS - 1] == second[ROUNDS - 1]
    assert first[ROUNDS] != second[ROUNDS]


def test_once_the_state_folder_is_gone_a_copy_does_a_round_a_second_time(tmp_path: Path) -> None:
    def forget() -> None:
        for path in in_state(ROOM, "a run"):
            shutil.rmtree(path.parent)

    first, second = left(copied_and_gone_on(tmp_path / "run", ROUNDS - 1, forget))
    assert first[ROUNDS] != second[ROUNDS]


def test_of_two_copies_that_ask_at_once_one_makes_something_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, other = SumsOfRounds._asked_of_sites, SumsOfRounds._tell

    def meanwhile(self: SumsOfRounds, question: AskedSum) -> Any:
        found = asked(self, question)
        other(self, question.number)  # the copy was faster
        return found

    monkeypatch.setattr(SumsOfRounds, "_asked_of_sites", meanwhile)
    with pytest.raises(QuorumError, match=r"round 1 of .* was done already"):
        fitted_at_sites(Failing(), tmp_path / "run")
    assert not list((tmp_path / "run").rglob("sum-*"))


def test_sites_refuse_a_round_that_is_over_whoever_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second guard, where the coordinator has no witness: as long as sites run."""
    monkeypatch.setattr(SumsOfRounds, "_check_not_done", lambda *_: None)
    first, second, third = Dying(2, after=2), Failing(), Failing(GONE)
    with pytest.raises(Killed):
        fitted_at_sites(first, tmp_path / "run")
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    second._sites = third._sites = first._sites
    ledger = Budget.open(tmp_path / "run" / "ledger.jsonl")
    fitted_at_sites(second, tmp_path / "run", budget=ledger)
    with pytest.raises(QuorumError, match="or for one of a round that is over"):
        fitted_at_sites(third, tmp_path / "copy", budget=ledger)


@pytest.mark.parametrize("number", range(1, ROUNDS + 1))
def test_killed_in_any_round_with_its_sites_there_it_has_the_same_bits(
    number: int, tmp_path: Path
) -> None:
    with pytest.raises(Killed):
        fitted_at_sites(Dying(number, after=2), tmp_path / "run")
    made = fitted_at_sites(Failing(), tmp_path / "run")
    assert same_weights(made, fitted_at_sites(Failing(), tmp_path / "whole"))
    assert len(read_ledger(made.folder / "ledger.jsonl").charges) == 1


def test_a_run_goes_on_with_the_sites_that_it_began_with(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        fitted_at_sites(Dying(2, after=1), tmp_path / "run")
    with pytest.raises(QuorumError, match=r"begun with sites\.minimum_sites = 1, not 2"):
        fitted_at_sites(Failing(), tmp_path / "run", minimum_sites=2)
