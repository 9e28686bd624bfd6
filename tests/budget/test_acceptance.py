"""Who answered for an assumption: named by whoever ran it, kept in the ledger, told by date."""

import json
from pathlib import Path
from typing import Any

import pytest
from commands import Quorum
from ledger_files import (
    ACCEPTED,
    AT,
    EXAMPLES,
    FLOOR,
    TRAINING,
    answered,
    certificate_in,
    charge,
    ledger_of,
)

from quorum_rl.budget import Certificate, read_certificate
from quorum_rl.errors import QuorumError
from quorum_rl.release import acceptance

HARMFUL = ["", " Ada", "A" * 101, "Ada\nBo", "Ada\x1b[2J", "Ada\u202egnp", "Ada\x00", "Ada\u2028"]


def answers(made: Certificate) -> dict[str, str]:
    return {assumption.name: assumption.answer for assumption in made.assumptions}


def test_a_certificate_says_who_answered_for_what_and_when() -> None:
    said = answers(certificate_in(EXAMPLES["answered for"]))
    assert said["one-expert-each"] == f"accepted by Ada on {AT} and Bo <b> on {AT}"
    assert said["public-ends"] == f"accepted by Ada on {AT}"  # a training does not need it
    assert set(answers(certificate_in(EXAMPLES["both"])).values()) == {"accepted"}


def test_nobody_has_answered_for_what_was_not_accepted_every_time() -> None:
    twice = ledger_of(
        charge(TRAINING, 1, **ACCEPTED, **answered("Ada", "one-expert-each")), charge(TRAINING, 2)
    )
    assert answers(certificate_in(twice)) == {"one-expert-each": "NOT accepted"}


def test_a_name_is_told_once_a_day() -> None:
    same = charge(TRAINING, 1, **ACCEPTED, **answered("Ada", "one-expert-each"))
    (found,) = certificate_in(ledger_of(same, same | {"run": "fit-2"})).assumptions
    assert [(one.name, one.at) for one in found.accepted_by] == [("Ada", AT)]


@pytest.mark.parametrize(
    "facts",
    [
        *(answered(name, "one-expert-each") for name in [*HARMFUL, 7, None]),
        {"accepted_by": "Ada"},
        {"accepted_by": {"name": "Ada"}},
        answered("Ada", "public-ends"),
    ],
)
def test_what_a_hand_written_ledger_says_otherwise_names_nobody(facts: Any) -> None:
    made = certificate_in(ledger_of(charge(TRAINING, 1, **ACCEPTED, **facts)))
    assert answers(made) == {"one-expert-each": "accepted"}
    assert "accepted_by" not in made.to_json()


def test_the_time_of_day_of_an_earlier_ledger_is_not_told() -> None:
    entry = charge(TRAINING, 1, **ACCEPTED, **answered("Ada", "one-expert-each"))
    made = certificate_in(ledger_of(entry | {"at": f"{AT}T09:30:00Z"}))
    assert answers(made) == {"one-expert-each": f"accepted by Ada on {AT}"}


@pytest.mark.parametrize("name", HARMFUL)
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(QuorumError, match="give a name of at most 100 characters in one line"):
        acceptance(TRAINING, ["one-expert-each"], name, "production")


def test_a_name_answers_for_what_was_accepted_and_not_for_what_holds_by_making() -> None:
    facts = acceptance(
        FLOOR, ["one-expert-each", "floor-everywhere"], "Ada", "production", by_making=True
    )
    assert facts["accepted_by"] == {
        "name": "Ada",
        "assumptions": ["floor-everywhere", "one-expert-each"],
    }
    assert "public-ends" in facts["accepted"]
    with pytest.raises(QuorumError, match="'Ada' is to answer for assumptions, and none"):
        acceptance(TRAINING, [], "Ada", "research")


def test_the_command_shows_the_name_as_it_is(quorum: Quorum, tmp_path: Path) -> None:
    entry = charge(TRAINING, 1, **ACCEPTED, **answered("Ada [bold]:cat:[/x]", "one-expert-each"))
    content = ledger_of(entry)
    (tmp_path / "ledger.jsonl").write_bytes(content)
    (tmp_path / "certificate.json").write_text(certificate_in(content).to_json())
    said = quorum("certificate", "show", str(tmp_path))
    assert f"one-expert-each (accepted by Ada [bold]:cat:[/x] on {AT}):" in said
    quorum("certificate", "verify", str(tmp_path))
    facts = json.loads((tmp_path / "certificate.json").read_text())
    assert facts["assumptions"][0]["accepted_by"] == [{"name": "Ada [bold]:cat:[/x]", "at": AT}]
    assert read_certificate(tmp_path / "certificate.json") == certificate_in(content)
