"""The published schema: every certificate keeps to it, and what does not is no certificate."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from commands import Quorum
from hypothesis import given, settings, strategies as st
from json_trees import changed, leaves, value_at
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from ledger_files import (
    DELTA,
    EXAMPLES,
    FLOOR,
    PAPER,
    STOPPING,
    TRAINING,
    certificate_in,
    charge,
    ledger_of,
    mark,
    pool,
)
from refusals import refusal

from quorum_rl.budget import ASSUMPTIONS
from quorum_rl.budget.schema import certificate_of, schema_text
from quorum_rl.errors import QuorumError

SCHEMA: dict[str, Any] = json.loads(schema_text())
VALIDATOR = Draft202012Validator(SCHEMA)
HERE = Path("certificate.json")


def facts_of(name: str = "both") -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(certificate_in(EXAMPLES[name], DELTA).to_json())
    return facts


def fault_in(facts: Any) -> str:
    return refusal(certificate_of, json.dumps(facts).encode(), HERE)


def test_the_schema_is_one_and_its_command_prints_it(quorum: Quorum) -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert quorum("certificate", "schema") == schema_text()


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_kind_of_certificate_keeps_to_the_schema_and_is_read_as_it_was(name: str) -> None:
    made = certificate_in(EXAMPLES[name], DELTA)
    VALIDATOR.validate(json.loads(made.to_json()))
    assert certificate_of(made.to_json().encode(), HERE) == made


accepted = st.lists(st.sampled_from(sorted(ASSUMPTIONS)), unique=True)
charges = st.builds(
    lambda event, number, names: charge(event, number, accepted=names),
    st.sampled_from([FLOOR, STOPPING, PAPER, TRAINING]),
    st.integers(0, 2),  # few: pools repeat
    accepted,
)


@settings(max_examples=150)
@given(
    entries=st.lists(charges, max_size=3),
    texts=st.lists(st.text(min_size=1), max_size=2, unique=True),
    kind=st.sampled_from(["production", "research"]),
    budget=st.sampled_from([1, 7.5, 1e6]),
    torn=st.sampled_from([b"", b"x"]),
    delta=st.sampled_from([None, 1e-5]),
)
def test_no_ledger_has_a_certificate_outside_the_schema(
    entries: list[Any], texts: list[str], kind: Any, budget: float, torn: bytes, delta: float | None
) -> None:
    content = ledger_of(*entries, *map(mark, texts), kind=kind, epsilon=budget, torn=torn)
    made = certificate_in(content, delta)
    facts = json.loads(made.to_json())
    VALIDATOR.validate(facts)
    assert certificate_of(json.dumps(facts).encode(), HERE) == made
    assert (facts["epsilon"] is None) == math.isinf(made.epsilon)


def test_every_field_is_described_and_none_may_be_missing_or_unknown() -> None:
    facts = facts_of()
    assert set(facts) == set(SCHEMA["properties"]) == set(SCHEMA["required"])
    parts = {"release": facts["events"][0], "training": facts["events"][1]}
    parts["parted"] = facts_of("two parts")["events"][1]
    parts["assumption"] = facts["assumptions"][0]
    parts["acceptance"] = facts_of("answered for")["assumptions"][0]["accepted_by"][0]
    parts["published"] = facts_of("mode paper")["published"]
    for name, part in parts.items():
        definition = SCHEMA["$defs"][name]
        required = set(definition["required"])
        assert set(part) == required == set(definition["properties"]) - {"accepted_by"}
        assert definition["additionalProperties"] is False
    names = SCHEMA["$defs"]["assumption"]["properties"]["name"]["enum"]
    assert names == list(ASSUMPTIONS)
    for name in facts:
        assert not VALIDATOR.is_valid({key: facts[key] for key in facts if key != name}), name
        assert name in fault_in({key: facts[key] for key in facts if key != name})
    assert "surprise" in fault_in(facts | {"surprise": 1})


@pytest.mark.parametrize("name", ["both", "mode paper", "answered for"])
@pytest.mark.parametrize("wrong", [[], {}, "no", -1, 1.5, True])
def test_no_leaf_may_have_another_type(name: str, wrong: Any) -> None:
    facts = facts_of(name)
    wrong_is_number = type(wrong) in (int, float)
    for place in leaves(facts):
        value = value_at(facts, place)
        if type(value) is type(wrong) or (wrong_is_number and type(value) in (int, float)):
            continue
        if value is None and wrong_is_number:  # where there may be a number
            continue
        made = changed(facts, place, lambda _: wrong)
        assert not VALIDATOR.is_valid(made), place
        fault_in(made)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("epsilon",), -0.1),
        (("delta",), 0),
        (("delta",), 1),
        (("budget_epsilon",), None),
        (("identity",), "AB" * 16),
        (("ledger_head",), "0" * 63),
        (("kind",), "test"),
        (("modes", 0), "loose"),
        (("modes",), ["paper"]),
        (("published",), {"epsilon": 1, "delta": 0.1, "complete": True, "text": "so"}),
        (("marks",), ["one", "one"]),
        (("events", 0, "at"), "yesterday"),
        (("events", 0, "experts"), 1),
        (("events", 0, "p_min"), 0.6),
        (("events", 1, "sampling_rate"), 1.5),
        (("events", 1, "steps"), 0),
        (("events", 1, "event"), "release"),
        (("assumptions", 0, "name"), "trust-me"),
    ],
)
def test_values_that_no_certificate_has_are_refused(path: tuple[Any, ...], value: Any) -> None:
    fault_in(changed(facts_of(), path, lambda _: value))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_json_does_not_have_are_refused(number: str) -> None:
    text = json.dumps(facts_of() | {"epsilon": 4242}).replace("4242", number)
    with pytest.raises(QuorumError, match="number"):
        certificate_of(text.encode(), HERE)


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"null", b"{", b"\xff", b"[" * 100_000, b'{"epsilon": 1, "epsilon": 9}'],
)
def test_what_is_no_json_object_is_no_certificate(content: bytes) -> None:
    with pytest.raises(QuorumError, match="is not a JSON object"):
        certificate_of(content, HERE)


def test_a_certificate_of_another_format_is_refused_by_its_number() -> None:
    said = fault_in(facts_of() | {"format": 1})
    assert "has format 1, and this version of Quorum reads 2: make it again" in said


def test_the_name_of_a_pool_is_in_no_certificate_unless_it_was_used_twice() -> None:
    assert pool(1) not in json.dumps(facts_of("both"))
    assert pool(1) in json.dumps(facts_of("a pool used twice"))
