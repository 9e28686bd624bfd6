"""columns.toml: what a sketch says, what is read back, and that nothing in it breaks the reader."""

import tomllib
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings, strategies as st

from quorum_rl.dictionary import Column, Dictionary
from quorum_rl.errors import QuorumError
from quorum_rl.logs import (
    TableColumns,
    read_columns,
    schema_of,
    sketch_columns,
    with_facts,
)
from quorum_rl.logs.schema import Schema

WHOLE = """
expert = "doctor"
episode = "patient"
step = "at"
step_orders = true
action = "order"
action_labels = ["hold", "treat"]
reward = "reward"
terminated = "moved"
truncated = ""

[observation]
glucose = { unit = "mg/dL", fill = 120, clip = [40, 400.5], next = "glucose_after" }
"a scan" = { shape = [2, 3], unit = "", next = "scan_after" }
"""
KINDS: list[Any] = [
    None, pa.float32(), pa.int64(), pa.bool_(), pa.string(), pa.timestamp("ns"), pa.decimal128(9),
    pa.list_(pa.float32()), pa.list_(pa.float32(), 3), pa.dictionary(pa.int8(), pa.string()),
    pa.map_(pa.string(), pa.int8()), pa.fixed_shape_tensor(pa.float32(), (2, 2)),
]  # fmt: skip


def read(folder: Path, text: str) -> tuple[TableColumns, Dictionary]:
    (folder / "columns.toml").write_text(text, encoding="utf-8")
    return read_columns(folder / "columns.toml")


def test_all_that_the_file_says_is_read(tmp_path: Path) -> None:
    columns, named = read(tmp_path, WHOLE)
    assert columns == TableColumns(
        expert="doctor", episode="patient", step="at", observation=("glucose", "a scan"),
        action="order", reward="reward", terminated="moved", truncated="truncated",
        next_observation=("glucose_after", "scan_after"), step_orders=True,
    )  # fmt: skip
    assert named == Dictionary(
        (Column("glucose", "mg/dL", 120, 40, 400.5), Column("a scan", shape=(2, 3))),
        ("hold", "treat"),
    )


def test_what_is_left_out_stays_as_it_is_usually_called(tmp_path: Path) -> None:
    assert read(tmp_path, "") == (TableColumns(), Dictionary())


FAULTS = {
    "no TOML": ("expert = ", "is no valid TOML"),
    "typo": ('expret = "a"', r"unknown name 'expret' \(did you mean expert\?\)"),
    "number": ("expert = 3", "expert is 3: give the name of a column"),
    "open": ('expert = ""', "does not say which column is the expert"),
    "orders": ("step_orders = 1", "step_orders is 1: give true or false"),
    "labels": ('action_labels = "a,b"', "action_labels is 'a,b': give a list of texts"),
    "twice": ('action_labels = ["a", "a"]', "two actions are called 'a'"),
    "list": ("observation = [1]", "observation is no table of columns"),
    "plain": ('[observation]\na = "mg"', "observation is no table of columns"),
    "fact": ("[observation]\na = { fil = 3 }", r"unknown fact 'fil' \(did you mean fill\?\)"),
    "fill": ('[observation]\na = { fill = "3" }', "the fill of column 'a' is '3'"),
    "clip": ("[observation]\na = { clip = 3 }", "clip is 3: give two numbers"),
    "clipped": ("[observation]\na = { clip = [4, 3] }", "range of column 'a' is 4 to 3"),
    "shape": ("[observation]\na = { shape = 3 }", "shape is 3: give lengths"),
    "lengths": ("[observation]\na = { shape = [2.5] }", "the shape of column 'a'"),
    "unit": ("[observation]\na = { unit = 3 }", "unit is 3: give a text"),
    "next": ('[observation]\na = { next = "b" }\nb = {}', "some columns have a next and others"),
    "endless": ("[observation]\na = { fill = inf }", "the fill of column 'a' is inf"),
    "huge": (f"[observation]\na = {{ fill = {10**400} }}", "the fill of column 'a' is 1000"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_wrong_is_named(tmp_path: Path, fault: str) -> None:
    text, said = FAULTS[fault]
    with pytest.raises(QuorumError, match=r"columns.*columns\.toml'.*" + said) as refused:
        read(tmp_path, text)
    assert "\n" not in str(refused.value)


@settings(max_examples=100, derandomize=True)
@given(st.dictionaries(st.text(min_size=1, max_size=12), st.sampled_from(KINDS), max_size=8))
def test_a_sketch_is_toml_of_the_columns_whatever_they_are_called(kinds: dict[str, Any]) -> None:
    said = tomllib.loads(sketch_columns(Schema("'t'", kinds), "t\n.parquet"))
    observed = said.pop("observation")
    assert set(observed) <= set(kinds)
    assert all(not found or found in kinds for name, found in said.items() if name in SINGLE)
    numbers = {
        name for name, kind in kinds.items() if kind in (pa.float32(), pa.list_(pa.float32()))
    }
    assert numbers - set(observed) <= {*SINGLE, *(facts.get("next") for facts in observed.values())}


SINGLE = ("expert", "episode", "step", "action", "reward", "terminated", "truncated")


def test_a_sketch_finds_what_is_called_as_usual_and_what_comes_after(tmp_path: Path) -> None:
    names = ("expert", "step", "sugar", "sugar_after", "who", "observation_1", "next_observation_1")
    values = {name: [0.5] for name in names} | {"who": ["a"], "step": [0], "expert": ["b"]}
    values |= {"day": [date(2026, 11, 19)]}
    pa.parquet.write_table(pa.table(values), str(tmp_path / "t.parquet"))
    text = sketch_columns(schema_of(tmp_path / "t.parquet"), "t.parquet")
    said = tomllib.loads(text)
    assert (said["expert"], said["step"], said["action"]) == ("expert", "step", "")
    assert said["observation"] == {
        "sugar": {"next": "sugar_after"}, "observation_1": {"next": "next_observation_1"},
    }  # fmt: skip
    assert 'episode = ""  # one of: expert, step, who, day\n' in text
    (tmp_path / "t.csv").write_text("who,sugar\n")
    assert tomllib.loads(sketch_columns(schema_of(tmp_path / "t.csv"), "t.csv"))["observation"] == {
        "who": {}, "sugar": {},
    }  # fmt: skip


def test_facts_of_flags_replace_those_of_the_file() -> None:
    columns = (Column("a", "kg", 5, 0, 10), Column("b"))
    made = with_facts(columns, fill={"a": 50}, clip={"a": "20:90"}, unit={"b": "h"})
    assert made == (Column("a", "kg", 50, 20, 90), Column("b", "h"))
    for facts, said in (
        ({"fill": {"c": 1}}, "unknown column of the observation 'c'"),
        ({"clip": {"a": "20"}}, "the range of column 'a' is '20': give two numbers"),
        ({"clip": {"a": "9:1"}}, "the range of column 'a' is 9.0 to 1.0"),
        ({"clip": {"a": "20:90"}}, "the fill of column 'a' is 5, outside its range"),
        ({"unit": {"a": ""}}, "the unit of column 'a' is ''"),
    ):
        asked: dict[str, Any] = {"fill": {}, "clip": {}, "unit": {}} | facts
        with pytest.raises(QuorumError, match=said):
            with_facts(columns, **asked)
