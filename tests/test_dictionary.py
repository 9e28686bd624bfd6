"""What observations and actions are called: filled in, cut off, and asked for by name."""

import json
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays

from quorum_rl.dictionary import Column, Dictionary, dictionary_of
from quorum_rl.errors import QuorumError

FEW = settings(max_examples=60, derandomize=True)
SUGAR = Column("glucose", "mg/dL", fill=120, low=40, high=400)
NAMED = Dictionary((SUGAR, Column("weight"), Column("scan", shape=(2, 3))), ("wait", "treat"))


class Frame:
    """A data frame as far as we need one: columns, and each by its name."""

    def __init__(self, **columns: Any) -> None:
        self.data = columns
        self.columns = list(columns)

    def __getitem__(self, name: str) -> Any:
        return self.data[name]


def values_of(count: int) -> st.SearchStrategy[Any]:
    numbers = st.floats(width=32, allow_nan=True, allow_infinity=True)
    return arrays(np.float32, (count, 3), elements=numbers)


@FEW
@given(
    values_of(4),
    st.lists(st.tuples(st.floats(-5, 5), st.floats(0.5, 5), st.booleans()), min_size=3, max_size=3),
)
def test_missing_values_are_filled_and_others_cut_off_once_and_for_all(
    values: Any, ranges: list[tuple[float, float, bool]]
) -> None:
    columns = tuple(
        Column(f"c{i}", fill=low if filled else None, low=low, high=low + width)
        for i, (low, width, filled) in enumerate(ranges)
    )
    made = Dictionary(columns).prepared(values)
    assert made.dtype == np.float32
    np.testing.assert_array_equal(Dictionary(columns).prepared(made), made)
    for number, column in enumerate(columns):  # one number at a time, in Python's own arithmetic
        for raw, found in zip(values[:, number].tolist(), made[:, number].tolist(), strict=True):
            wanted = raw
            if np.isnan(raw):
                wanted = float("nan") if column.fill is None else column.fill
            if not np.isnan(wanted):
                wanted = min(max(wanted, np.float32(column.least)), np.float32(column.most))
            assert np.float32(found) == np.float32(wanted) or np.isnan([found, wanted]).all()


def test_without_fills_and_ranges_observations_are_not_even_copied() -> None:
    values = np.full((2, 3), np.nan, np.float32)
    assert Dictionary((Column("a", shape=(3,)),)).prepared(values) is values


@pytest.mark.parametrize("kind", [dict, Frame, lambda **c: pa.table(c)])
def test_names_find_their_columns_whatever_else_there_is(kind: Any) -> None:
    scan = [[[1.0, 2, 3], [4, 5, 6]], [[7, 8, 9], [0, 0, 0]]]
    seen = kind(patient=["a", "b"], scan=scan, weight=[80, 90], glucose=[None, 500.0])
    made = NAMED.vectors_of(seen)
    np.testing.assert_array_equal(
        made, [[np.nan, 80, 1, 2, 3, 4, 5, 6], [500, 90, 7, 8, 9, 0, 0, 0]]
    )


def test_one_observation_is_a_mapping_of_numbers() -> None:
    one = {"glucose": 100, "weight": None, "scan": np.zeros((2, 3))}
    assert NAMED.vectors_of(one).shape == (8,)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"glucose": None}, None),
        ({"glucos": 3}, None),
        ({"weight": "80"}, "'weight' of the observations holds something else than numbers"),
        ({"weight": [1, 2]}, "have different shapes"),
        ({"scan": [1, 2, 3]}, r"'scan' .* arrays of shape \(2, 3\)"),
        ({"weight": object()}, "'weight' of the observations holds something else"),
    ],
)
def test_what_is_no_observation_is_refused_by_name(
    change: dict[str, Any], said: str | None
) -> None:
    one = {"glucose": 100, "weight": 80, "scan": np.zeros((2, 3))} | change
    if said is None:
        assert NAMED.vectors_of(one).shape == (8,)
        return
    with pytest.raises(QuorumError, match=said):
        NAMED.vectors_of(one)


def test_a_column_that_lacks_is_named_with_the_nearest() -> None:
    with pytest.raises(QuorumError, match=r"unknown column 'glucose' \(did you mean glucos\?\)"):
        NAMED.vectors_of({"glucos": 1, "weight": 1, "scan": np.zeros((2, 3))})
    with pytest.raises(QuorumError, match="have no names: give an array"):
        Dictionary().vectors_of({"glucose": 1})


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no name": ({"name": ""}, "the name of a column is ''"),
    "two lines": ({"name": "a\nb"}, "give a text of one line"),
    "a number": ({"name": 3}, "the name of a column is 3"),
    "endless": ({"name": "x" * 5000}, "give a text of one line"),
    "unit": ({"unit": "\x1b[31m"}, "the unit of column 'a'"),
    "fill": ({"fill": float("nan")}, "the fill of column 'a' is nan: give a number"),
    "text": ({"fill": "3"}, "the fill of column 'a' is '3'"),
    "flag": ({"fill": True}, "the fill of column 'a' is True"),
    "huge": ({"high": 1e39, "low": 0}, r"the high of column 'a' is 1e\+39"),
    "half": ({"low": 3}, "the range of column 'a' is 3 to None: give two numbers"),
    "empty": ({"low": 3, "high": 3}, "the range of column 'a' is 3 to 3"),
    "outside": ({"fill": 9, "low": 0, "high": 1}, "the fill of column 'a' is 9, outside its range"),
    "shape": ({"shape": (0,)}, "the shape of column 'a'"),
}


@pytest.mark.parametrize("fault", BAD)
def test_what_cannot_be_a_column_is_refused(fault: str) -> None:
    facts, said = BAD[fault]
    with pytest.raises(QuorumError, match=said):
        Column(**({"name": "a"} | facts))


def test_names_are_different_and_of_as_many_numbers_as_are_declared() -> None:
    with pytest.raises(QuorumError, match="two columns are called 'a'"):
        Dictionary((Column("a"), Column("a")))
    with pytest.raises(QuorumError, match="two actions are called 'x'"):
        Dictionary((), ("x", "y", "x"))
    with pytest.raises(QuorumError, match="have 8 numbers together, but observation_size 3"):
        NAMED.check_sizes(3, 2)
    with pytest.raises(QuorumError, match=r"2 actions have labels .* but action_count 3"):
        NAMED.check_sizes(8, 3)


def test_a_dictionary_survives_json() -> None:
    assert dictionary_of(json.loads(json.dumps(asdict(NAMED)))) == NAMED
    assert dictionary_of(None) is None


@pytest.mark.parametrize("facts", [[], {"columns": 3}, {"columns": [{}], "action_labels": []}])
def test_another_object_is_no_dictionary(facts: Any) -> None:
    with pytest.raises((KeyError, ValueError, TypeError)):
        dictionary_of(facts)


def test_units_put_ranges_between_minus_two_and_two_and_leave_the_rest() -> None:
    assert NAMED.units is not None
    centre, scale = map(np.array, NAMED.units)
    assert (len(centre), len(scale)) == (8, 8)
    np.testing.assert_allclose((np.array([40.0, 400.0]) - centre[0]) / scale[0], [-2, 2])
    assert (centre[1:] == 0).all()
    assert (scale[1:] == 1).all()
    assert Dictionary((Column("a"),)).units is None
