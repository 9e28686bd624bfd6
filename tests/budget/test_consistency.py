"""A certificate beside its ledger: no fact of either may be changed unnoticed."""

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from commands import Quorum
from json_trees import Place, changed, leaves, value_at
from ledger_files import (
    ACCEPTED,
    BOTH,
    DELTA,
    EXAMPLES,
    FLOOR,
    SOMEWHERE,
    TRAINING,
    certificate_in,
    charge,
    ledger_of,
    mark,
    record_in,
)
from refusals import refusal

from quorum_rl.budget import Certificate, checking
from quorum_rl.budget.checking import check_certificate, check_consistent
from quorum_rl.budget.record import START, line_of, read_lines
from quorum_rl.budget.schema import certificate_of
from quorum_rl.budget.verifier import TOLERANCE, independent_epsilon
from quorum_rl.errors import QuorumError
from quorum_rl.privacy import TrainingEvent


@pytest.fixture(autouse=True, scope="module")
def composed_once() -> Iterator[None]:
    """The second route takes a moment, and most changes do not concern it."""
    kept = cache(independent_epsilon)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checking, "independent_epsilon", lambda events, at: kept(tuple(events), at))
        yield


def facts_in(content: bytes) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(certificate_in(content, DELTA).to_json())
    return facts


def disagreement(facts: dict[str, Any], ledger: bytes) -> str:
    """Why these facts are not a certificate of that ledger; they must not be."""

    def compared() -> None:
        check_consistent(certificate_of(json.dumps(facts).encode(), SOMEWHERE), ledger, SOMEWHERE)

    return refusal(compared)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_certificate_agrees_with_the_ledger_it_was_made_from(name: str) -> None:
    ledger = EXAMPLES[name]
    made = certificate_in(ledger, DELTA)
    found = check_consistent(made, ledger, SOMEWHERE)
    assert found.current
    assert found.record == record_in(ledger)
    if not made.torn and made.epsilon < float("inf"):
        assert found.epsilon == pytest.approx(made.epsilon, rel=TOLERANCE, abs=1e-4)


def other_values(value: Any) -> list[Any]:
    """Changes of one fact, small ones among them."""
    match value:
        case bool():
            return [not value]
        case int():
            return [value + 1, value - 1, 2 * value, value + 0.5]
        case float():
            return [value * 1.01, value * 0.99, value + 1e-4, 2 * value, None]
        case str():
            return [value + "x", value[:-1], "", value.swapcase(), value.replace("0", "1")]
        case None:
            return [0, 1.0, "none", {}]
        case []:
            return [["tight"], ["new"], [{}], None]
    raise AssertionError(f"{value!r} is no leaf")


@pytest.mark.parametrize("name", EXAMPLES)
def test_no_leaf_of_a_certificate_can_be_changed(name: str) -> None:
    """Every leaf, without exception."""
    ledger = EXAMPLES[name]
    facts = facts_in(ledger)
    for place in leaves(facts):
        value = value_at(facts, place)
        for other in other_values(value):
            if other != value or type(other) is not type(value):
                disagreement(changed(facts, place, lambda _, other=other: other), ledger)  # type: ignore[misc]


@pytest.mark.parametrize("name", EXAMPLES)
def test_no_list_of_a_certificate_can_be_shortened_lengthened_or_turned_round(name: str) -> None:
    ledger = EXAMPLES[name]
    facts = facts_in(ledger)
    for field in (key for key, value in facts.items() if isinstance(value, list) and value):
        listed = facts[field]
        changes: list[Any] = [listed[1:], listed[:-1], [*listed, listed[0]], listed[::-1]]
        for other in changes:
            if other != listed:
                disagreement(facts | {field: other}, ledger)
    for field in facts:
        disagreement({key: facts[key] for key in facts if key != field}, ledger)
    disagreement(facts | {"note": "audited"}, ledger)


def test_what_does_not_agree_is_named() -> None:
    ledger = EXAMPLES["seeded"]
    facts = facts_in(ledger)

    def said(*place: str | int, value: Any) -> str:
        return disagreement(changed(facts, place, lambda _: value), ledger)

    assert "epsilon does not agree: the certificate says 0.1" in said("epsilon", value=0.1)
    assert "epsilon does not agree" in said("epsilon", value=40.0)
    assert "at delta = 0.1" in said("delta", value=0.1)
    assert 'kind is "research", not "production"' in said("kind", value="research")
    assert "events[1].steps is 99, not 100" in said("events", 1, "steps", value=99)
    assert "assumptions[0].accepted is false, not true" in said(
        "assumptions", 0, "accepted", value=False
    )
    assert "budget_epsilon is 60, not 50.0" in said("budget_epsilon", value=60)
    assert "it has 0 marks, the ledger 2" in said("marks", value=[])
    assert "limitations[0] is another text" in said("limitations", 0, value="none at all")
    assert "torn is true, not false" in said("torn", value=True)
    assert "of another ledger" in said("identity", value="cd" * 16)
    assert "ledger_head does not agree" in said("ledger_head", value="0" * 64)


def test_an_epsilon_that_was_changed_everywhere_is_found_by_the_second_route() -> None:
    ledger = EXAMPLES["both"]
    text = certificate_in(ledger).to_json()
    shown = json.loads(text)["epsilon"]
    for other in (round(shown * 0.99, 4), round(shown * 1.01, 4), round(shown / 2, 4)):
        lie = json.loads(text.replace(f"{shown}", f"{other}"))
        lie["statement"] = lie["statement"].replace(f"ε = {shown:.4f}", f"ε = {other:.4f}")
        assert "epsilon does not agree" in disagreement(lie, ledger)


NOISES = (20_000.0, 1_000.0, 100.0, 16.0, 2.2, 0.42)  # for an ε of 0.001 to 100


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("part", [0.9991, 1.0009])
def test_an_epsilon_that_was_changed_by_less_than_a_thousandth_is_found(
    noise: float, part: float, files: Callable[..., Path], quorum: Quorum
) -> None:
    event = TrainingEvent(sampling_rate=1.0, noise_multiplier=noise, steps=20)
    ledger = ledger_of(charge(event, 1, **ACCEPTED), epsilon=500.0)
    path = files(ledger)
    assert "the bound is epsilon = " in quorum("certificate", "verify", path)
    text = path.read_text()
    shown = json.loads(text)["epsilon"]
    for other in {shown * part, round(shown * part, 4)} - {shown}:
        lie = json.loads(text) | {"epsilon": other}
        lie["statement"] = lie["statement"].replace(f"ε = {shown:.4f}", f"ε = {other:.4f}")
        path.write_text(json.dumps(lie))
        assert "agree" in quorum.refused("certificate", "verify", path, status=1)


def test_the_accounting_may_be_wrong_and_the_second_route_notices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A certificate made by an accountant that forgets a tenth of the cost."""
    from quorum_rl.budget import ledger
    from quorum_rl.privacy.accounting import total_epsilon

    monkeypatch.setattr(ledger, "total_epsilon", lambda *given: 0.9 * total_epsilon(*given))
    assert "epsilon does not agree" in disagreement(facts_in(EXAMPLES["both"]), EXAMPLES["both"])


Tamper = Callable[[list[bytes]], bytes]
TAMPERED: dict[str, Tamper] = {
    "cut shorter by a line": lambda lines: b"".join(lines[:-1]),
    "cut shorter by some bytes": lambda lines: b"".join(lines)[:-9],
    "a line is missing": lambda lines: b"".join([*lines[:1], *lines[2:]]),
    "swapped lines": lambda lines: b"".join([lines[0], lines[2], lines[1]]),
    "a constant was changed": lambda lines: b"".join(lines).replace(b'"steps":100', b'"steps":1'),
    "hashed anew": lambda _: ledger_of(BOTH[0], charge(TRAINING, 2, **ACCEPTED)),
    "another budget, hashed anew": lambda _: ledger_of(*BOTH, epsilon=10.0),
    "of other experts": lambda _: ledger_of(*BOTH, identity="cd" * 16),
    "empty": lambda _: b"",
}


@pytest.mark.parametrize("how", TAMPERED)
def test_a_ledger_that_was_tampered_with_bears_no_certificate_out(how: str) -> None:
    ledger = EXAMPLES["both"]
    tampered = TAMPERED[how](ledger.splitlines(keepends=True))
    assert tampered != ledger
    disagreement(facts_in(ledger), tampered)


@pytest.mark.parametrize(
    ("added", "later", "torn"),
    [
        ((charge(TRAINING, 9),), 1, b""),
        ((charge(TRAINING, 9), mark("diagnostics")), 2, b""),
        ((), 0, b'{"en'),
        ((), 0, b"rubbish\n"),
        ((charge(TRAINING, 9),), 1, b"rubbish\n"),
    ],
)
def test_an_older_certificate_is_judged_by_the_ledger_as_it_was(
    added: tuple[Any, ...], later: int, torn: bytes
) -> None:
    before, after = ledger_of(*BOTH), ledger_of(*BOTH, *added, torn=torn)
    found = check_consistent(certificate_in(before), after, SOMEWHERE)
    assert (found.later_entries, found.torn_since) == (later, bool(torn))
    assert not found.current
    assert found.covered == before
    lie = facts_in(before) | {"events": facts_in(before)["events"][:1]}
    assert "it has 1 events, the ledger 2" in disagreement(lie, after)


def test_what_is_covered_of_a_torn_ledger_says_nothing_of_the_torn_line() -> None:
    ledger = EXAMPLES["torn"]
    found = check_consistent(certificate_in(ledger), ledger, SOMEWHERE)
    assert found.covered != ledger
    assert record_in(found.covered) == record_in(ledger)


@pytest.fixture
def files(tmp_path: Path) -> Callable[[bytes, Certificate | None], Path]:
    def write(ledger: bytes, made: Certificate | None = None) -> Path:
        (tmp_path / "ledger.jsonl").write_bytes(ledger)
        path = tmp_path / "certificate.json"
        path.write_text((made or certificate_in(ledger, DELTA)).to_json())
        return path

    return write


def test_the_command_compares_a_certificate_with_the_ledger_beside_it(
    files: Callable[..., Path], quorum: Quorum
) -> None:
    path = files(EXAMPLES["both"])
    assert "holds and agrees with its ledger" in quorum("certificate", "verify", path)
    facts = quorum.facts("certificate", "verify", path)
    assert facts["epsilon"] == certificate_in(EXAMPLES["both"]).epsilon
    assert (facts["later_entries"], facts["torn_since"], facts["signed"]) == (0, False, [])
    for shown in (path, path.parent):
        assert quorum.facts("certificate", "show", shown) == json.loads(path.read_text())
    assert "holds and agrees with its ledger" in quorum("certificate", "verify", path.parent)
    path.write_text(path.read_text().replace('"steps": 100', '"steps": 10'))
    said = quorum.refused("certificate", "verify", path, status=1)
    assert "events[1].steps is 10, not 100" in said


def test_the_command_takes_the_ledger_from_elsewhere(
    files: Callable[..., Path], tmp_path: Path, quorum: Quorum
) -> None:
    path = files(EXAMPLES["both"])
    book = (tmp_path / "ledger.jsonl").rename(tmp_path / "desks.ledger")
    words = ("certificate", "verify", path)
    assert "say with --ledger where" in quorum.refused(*words)
    assert "there is no ledger" in quorum.refused(*words, "--ledger", tmp_path / "none")
    assert "agrees" in quorum(*words, "--ledger", book)
    assert "has its own delta" in quorum.refused(*words, "--delta", "0.1")


def test_the_command_says_that_a_ledger_has_gone_on_since(
    files: Callable[..., Path], quorum: Quorum
) -> None:
    older = certificate_in(ledger_of(*BOTH))
    path = files(ledger_of(*BOTH, charge(FLOOR, 5)), older)
    said = quorum("certificate", "verify", path)
    assert "older than the ledger, which has 1 more entries since" in said
    assert "not covered" in said


@pytest.mark.parametrize(
    "name", ["mode paper", "a pool used twice", "a pool trained on", "torn research"]
)
def test_a_certificate_that_agrees_and_guarantees_nothing_is_no_success(
    name: str, files: Callable[..., Path]
) -> None:
    with pytest.raises(QuorumError, match="does not hold"):
        check_certificate(files(EXAMPLES[name]))


@pytest.mark.parametrize(
    ("fact", "said"), [("relation", "any two sets of experts at all"), ("kind", "audited")]
)
def test_a_ledger_that_promises_what_nobody_accounts_for_is_refused(fact: str, said: str) -> None:
    """All of its hashes are good: whoever wrote it computed them."""
    entries = read_lines(EXAMPLES["both"], "").entries
    content, head = b"", START
    for entry in (entries[0] | {fact: said}, *entries[1:]):
        content += line_of(entry, head)
        head = read_lines(content, "").head
    with pytest.raises(QuorumError, match="does not account for"):
        certificate_in(content)


def test_marks_and_research_are_said(files: Callable[..., Path]) -> None:
    assert any(
        "reproducible noise" in sentence for sentence in _sentences(files(EXAMPLES["seeded"]))
    )
    assert any("not enforced" in sentence for sentence in _sentences(files(EXAMPLES["research"])))


def _sentences(path: Path) -> list[str]:
    return check_certificate(path).sentences()


def test_places_are_all_leaves() -> None:
    """The walk that the tests above rest on misses nothing."""
    places: list[Place] = leaves({"a": [1, {"b": None}], "c": [], "d": "x"})
    assert places == [("a", 0), ("a", 1, "b"), ("c",), ("d",)]
