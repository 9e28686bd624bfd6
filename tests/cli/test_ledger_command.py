"""`quorum ledger` and `quorum certificate` by themselves: new ledgers, damaged ledgers."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from quorum_rl.cli.main import main

Refused = Callable[..., str]


@pytest.fixture
def ledger(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    path = tmp_path / "experts.ledger"
    main(["ledger", "create", str(path), "--epsilon", "30", "--delta", "1e-3"])
    capsys.readouterr()
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
    words: tuple[str, ...], named: str, tmp_path: Path, refused: Refused
) -> None:
    assert named in refused("ledger", "create", str(tmp_path / "new.ledger"), *words)
    assert list(tmp_path.iterdir()) == []


def test_a_ledger_is_never_replaced(ledger: Path, refused: Refused) -> None:
    before = ledger.read_bytes()
    words = ("ledger", "create", str(ledger), "--epsilon", "99", "--delta", "1e-3")
    assert "already" in refused(*words)
    assert ledger.read_bytes() == before


def test_a_new_ledger_has_spent_nothing(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["ledger", "show", str(ledger), "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert facts["kind"] == "production"
    assert (facts["epsilon"], facts["delta"], facts["spent_epsilon"]) == (30, 1e-3, 0)
    assert (facts["torn"], facts["charges"], facts["marks"]) == (False, [], [])
    main(["ledger", "show", str(ledger)])
    assert "none" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [("ledger", "show"), ("certificate", "show"), ("certificate", "verify")]
)
def test_a_ledger_that_is_not_there_is_named(
    words: tuple[str, ...], tmp_path: Path, refused: Refused
) -> None:
    assert "none.ledger" in refused(*words, str(tmp_path / "none.ledger"))


def test_a_torn_last_line_spends_the_whole_budget(
    ledger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ledger.open("ab") as file:
        file.write(b'{"entry":{"entry":"charge","ev')
    with pytest.raises(SystemExit) as stopped:
        main(["ledger", "show", str(ledger), "--json"])
    assert stopped.value.code == 1
    shown = capsys.readouterr()
    assert "the last line of the ledger" in shown.err
    assert "was cut off" in shown.err
    facts = json.loads(shown.out)
    assert facts["torn"] is True
    assert facts["spent_epsilon"] == facts["epsilon"] == 30
    main(["certificate", "show", str(ledger)])
    assert "all of the budget counts as spent" in capsys.readouterr().out


def test_a_changed_ledger_is_refused(ledger: Path, refused: Refused) -> None:
    ledger.write_bytes(ledger.read_bytes().replace(b'"epsilon":30.0', b'"epsilon":90.0'))
    for words in (("ledger", "show"), ("certificate", "show"), ("certificate", "verify")):
        assert "line 1 of the ledger" in refused(*words, str(ledger), status=1)
