"""`quorum ledger` and `quorum certificate` by themselves: new ledgers, damaged ledgers."""

import shutil
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest
from commands import Quorum
from ledger_files import TRAINING

from quorum_rl.budget import Ledger
from quorum_rl.cli.ledger import Show
from quorum_rl.cli.output import RefutedError
from quorum_rl.errors import QuorumError


@pytest.fixture
def ledger(tmp_path: Path, quorum: Quorum) -> Path:
    path = tmp_path / "experts.ledger"
    quorum("ledger", "create", path, "--epsilon", "30", "--delta", "1e-3")
    return path


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((), "epsilon and delta"),
        (("--epsilon", "3"), "needs its delta"),
        (("--epsilon", "-3", "--delta", "1e-5"), "epsilon is -3"),
        (("--epsilon", "3", "--delta", "1"), "delta is 1"),
        (("--research", "--delta", "2"), "delta is 2"),
    ],
)
def test_a_ledger_needs_a_sensible_budget(
    words: tuple[str, ...], named: str, tmp_path: Path, quorum: Quorum
) -> None:
    create = ("ledger", "create", tmp_path / "new.ledger", *words)
    assert named in quorum.refused_for_free(tmp_path, *create)


def test_a_new_ledger_has_spent_nothing_and_is_never_replaced(ledger: Path, quorum: Quorum) -> None:
    words = ("ledger", "create", ledger, "--epsilon", "99", "--delta", "1e-3")
    assert "already" in quorum.refused_for_free(ledger.parent, *words)
    facts = quorum.facts("ledger", "show", ledger)
    assert facts["kind"] == "production"
    assert (facts["epsilon"], facts["delta"], facts["spent_epsilon"]) == (30, 1e-3, 0)
    assert (facts["torn"], facts["charges"], facts["marks"]) == (False, [], [])
    assert "none" in quorum("ledger", "show", ledger)


def test_a_torn_last_line_spends_the_whole_budget(ledger: Path, quorum: Quorum) -> None:
    with ledger.open("ab") as file:
        file.write(b'{"entry":{"entry":"charge","ev')
    assert "was cut off" in quorum.refused("ledger", "show", ledger, status=1)
    facts = quorum.facts("ledger", "show", ledger, status=1)
    assert facts["torn"] is True
    assert facts["spent_epsilon"] == facts["epsilon"] == 30
    assert "all of the budget counts as spent" in quorum("certificate", "show", ledger)


def test_a_ledger_that_was_changed_or_is_not_there_is_refused(ledger: Path, quorum: Quorum) -> None:
    ledger.write_bytes(ledger.read_bytes().replace(b'"epsilon":30.0', b'"epsilon":90.0'))
    for words in (("ledger", "show"), ("certificate", "show"), ("certificate", "verify")):
        assert "line 1 of the ledger" in quorum.refused(*words, ledger, status=1)
        assert "none.ledger" in quorum.refused(*words, ledger.with_name("none.ledger"))


def test_an_older_copy_of_a_ledger_is_refuted(
    ledger: Path, quorum: Quorum, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It would show less than was spent."""
    older = Path(shutil.copy(ledger, ledger.with_name("older.ledger")))
    with Ledger.open(ledger) as opened:
        opened.charge(TRAINING, run="a run")
    assert "older copy or a fork" in quorum.refused("ledger", "show", older, status=1)
    assert quorum.facts("ledger", "show", ledger)["charges"]
    monkeypatch.setenv("QUORUM_STATE", str(tmp_path / "another user's"))
    assert quorum.facts("ledger", "show", older)["charges"] == []  # as docs/limits.md says


@pytest.mark.parametrize(
    ("bug", "attack"),
    [
        ("refuting", test_a_ledger_that_was_changed_or_is_not_there_is_refused),
        ("RefutedError", test_a_torn_last_line_spends_the_whole_budget),
    ],
)
def test_a_damaged_ledger_that_counts_as_a_mistake_of_the_user_is_seen(
    bug: str,
    attack: Callable[[Path, Quorum], None],
    ledger: Path,
    quorum: Quorum,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The planted bugs: exit status 2, of which a script that checks a ledger thinks otherwise."""
    faulty = {"refuting": nullcontext, "RefutedError": QuorumError}
    monkeypatch.setattr(f"quorum_rl.cli.ledger.{bug}", faulty[bug])
    with pytest.raises(AssertionError, match=r"^quorum: "):  # with which it was refused
        attack(ledger, quorum)


def test_a_damaged_ledger_that_is_shown_as_if_it_were_whole_is_seen(
    ledger: Path, quorum: Quorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug, as it was: the facts, and exit status 0."""
    show = Show.run

    def forgiving(self: Show) -> None:
        with suppress(RefutedError):
            show(self)

    monkeypatch.setattr(Show, "run", forgiving)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_a_torn_last_line_spends_the_whole_budget(ledger, quorum)
