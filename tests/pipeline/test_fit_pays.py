"""What a fit pays for: every run its own steps, whatever its seed."""

import math
from pathlib import Path

import pytest
from fits import DELTA, EPSILON, Crowd, fitted, named

from quorum_rl.budget import Budget, Ledger, read_ledger
from quorum_rl.errors import QuorumError


def test_a_release_whose_training_cannot_be_paid_is_not_made(
    everyone: Crowd, tmp_path: Path
) -> None:
    book = tmp_path / "ledger"
    Ledger.create(book, epsilon=0.8 * EPSILON, delta=DELTA)
    with pytest.raises(QuorumError, match="this release and training would bring"):
        fitted(named(everyone, "kept whole"), tmp_path / "run", budget=Budget(book))
    assert not read_ledger(book).charges
    assert not read_ledger(book).marks


def test_a_later_run_of_less_delta_than_an_earlier_one_spent_is_certified_at_that_of_the_ledger(
    everyone: Crowd, tmp_path: Path
) -> None:
    book = tmp_path / "ledger"
    Ledger.create(book, epsilon=3 * EPSILON, delta=3 * DELTA)
    first = fitted(named(everyone, "first log"), tmp_path / "first", budget=Budget(book))
    later = fitted(
        named(everyone, "later log"),
        tmp_path / "later",
        experts=None,
        budget=Budget(book),
        delta=DELTA / 100,
    )
    assert first.certificate is not None
    assert later.certificate is not None
    assert (first.certificate.delta, later.certificate.delta) == (DELTA, 3 * DELTA)
    assert later.certificate.epsilon <= 3 * EPSILON
    assert Budget(book).certificate(DELTA / 100).epsilon == math.inf


def test_every_charge_of_a_fit_names_who_answers(everyone: Crowd, tmp_path: Path) -> None:
    book = tmp_path / "ledger"
    Ledger.create(book, epsilon=EPSILON, delta=DELTA)
    with pytest.raises(QuorumError, match="accepted_by is 'a\\\\nb': give a name"):
        fitted(
            named(everyone, "answered"), tmp_path / "run", budget=Budget(book), accepted_by="a\nb"
        )
    assert not read_ledger(book).charges
    assert not (tmp_path / "run").exists()
    made = fitted(
        named(everyone, "answered"), tmp_path / "run", budget=Budget(book), accepted_by="Ada Day"
    )
    who = [charge.facts["accepted_by"] for charge in read_ledger(book).charges]
    assert len(who) == 2
    assert {one["name"] for one in who if isinstance(one, dict)} == {"Ada Day"}
    assert made.certificate is not None
    today = read_ledger(book).charges[0].date
    said = {assumption.answer for assumption in made.certificate.assumptions}
    assert said == {f"accepted by Ada Day on {today}"}
