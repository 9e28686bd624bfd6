"""The columns of one table as arrays, with errors that name file and row."""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from quorum_rl.dictionary import Column
from quorum_rl.errors import QuorumError
from quorum_rl.logs.assemble import continuous_actions
from quorum_rl.logs.demonstrations import first_true
from quorum_rl.logs.names import numbered
from quorum_rl.logs.schema import (
    Schema,
    depth_of,
    is_list,
    is_number,
    is_text,
    is_time,
    two_columns,
)


@dataclass(frozen=True)
class Reader:
    """The columns of one table, each converted with errors that name file and row."""

    file: Path
    table: Any

    @cached_property
    def schema(self) -> Schema:
        kinds = {field.name: field.type for field in self.table.schema}
        return Schema(repr(str(self.file)), kinds)

    @property
    def place(self) -> Callable[[int], str]:
        return lambda row: f"{str(self.file)!r}, row {row + 1}"

    def has(self, name: str) -> bool:
        return name in self.schema.kinds

    def column(self, name: str) -> Any:
        self.schema.check_has(name)
        if self.table.column_names.count(name) > 1:
            raise two_columns(self.schema.where, name)
        return self.table.column(name).combine_chunks()

    def complete(self, name: str) -> Any:
        """A column in which no value is missing; of categories, their names."""
        column = self.column(name)
        if (row := first_true(column.is_null().to_numpy(zero_copy_only=False))) is not None:
            raise QuorumError(
                f"{self.place(row)}: the value of column {name!r} is missing: fill it in or "
                "leave out the whole episode."
            )
        if types.is_dictionary(column.type):
            return column.cast(column.type.value_type)
        return column

    def wrong_type(self, name: str, kind: Any, needed: str) -> QuorumError:
        return QuorumError(
            f"{str(self.file)!r}: column {name!r} holds {kind}, but {needed} are needed: "
            "convert it."
        )

    def identities(self, name: str) -> Any:
        """Integers as they are; other names as their rank in sorted order."""
        whole, text = self._whole_or_text(name)
        if whole is not None:
            return whole.to_numpy()
        names = text.dictionary_encode()
        return numbered(names.dictionary.to_pylist())[0][names.indices.to_numpy()]

    def names(self, name: str) -> tuple[str, ...]:
        """The names of those who have one, in the order of their identities."""
        whole, text = self._whole_or_text(name)
        return () if whole is not None else numbered(text.unique().to_pylist())[1]

    def _whole_or_text(self, name: str) -> tuple[Any, Any]:
        """The column as integers, if that is what it holds, and as text."""
        column = self.complete(name)
        text = column.cast(pa.string())
        with suppress(pa.ArrowException):
            whole = column.cast(pa.int64())
            if is_number(column.type) or whole.cast(pa.string()).equals(text):
                return whole, text  # but "7" and "007" stay two
        return None, text

    def flags(self, name: str) -> Any:
        column = self.complete(name)
        if is_number(column.type):
            values = self._plain(column)
            if (row := first_true((values != 0) & (values != 1))) is not None:
                raise QuorumError(
                    f"{self.place(row)}: the flag {name!r} is {values[row]}: give true or false, "
                    "1 or 0."
                )
        try:
            return column.cast(pa.bool_()).to_numpy(zero_copy_only=False)
        except pa.ArrowException as error:
            raise self.wrong_type(name, column.type, "true and false (or 1 and 0)") from error

    def floats(self, name: str) -> Any:
        """Float32, a missing value as NaN."""
        return self._floats(self.column(name), name)

    def _floats(self, column: Any, name: str) -> Any:
        if not (is_number(column.type) or types.is_null(column.type)):
            raise self.wrong_type(name, column.type, "numbers")
        if types.is_decimal(column.type):
            column = column.cast(pa.float64())
        return pc.cast(column, pa.float32(), safe=False).to_numpy(zero_copy_only=False)

    # --- steps ---

    def steps(self, name: str, *, orders: bool) -> tuple[npt.NDArray[Any], bool]:
        """What sorts the rows of an episode, and whether that is all: else it counts from 0."""
        column = self.complete(name)
        if is_time(column.type):
            return _ranks(column), True
        if is_text(column.type):
            column = self._from_text(name, column, orders=orders)
        elif not is_number(column.type):
            raise self.wrong_type(name, column.type, "whole numbers")
        if not orders:
            return column.to_numpy(zero_copy_only=False), False
        if types.is_floating(column.type):
            endless = first_true(~pc.is_finite(column).to_numpy(zero_copy_only=False))
            if endless is not None:
                raise QuorumError(
                    f"{self.place(endless)}: the step {name!r} is not finite: correct it or leave "
                    "out the whole episode."
                )
        return _ranks(column), True

    def _from_text(self, name: str, column: Any, *, orders: bool) -> Any:
        """Steps that are written: whole numbers or, where they only order, other things."""
        kinds = (pa.int64(), pa.float64(), pa.timestamp("ns"), pa.timestamp("ns", "UTC"))
        for kind in kinds[: None if orders else 1]:
            with suppress(pa.ArrowException):
                return column.cast(kind)
        if not orders:
            row = _first_unlike(column, r"-?\d{1,18}")
            raise QuorumError(
                f"{self.place(row)}: the step {name!r} is {column[row].as_py()!r}: number the "
                "steps of every episode 0, 1, 2, … or, if they are times, say so (--step-orders)."
            )
        lengths = pc.utf8_length(column).to_numpy(zero_copy_only=False)
        longer = first_true(lengths != lengths[0])
        if longer is not None:
            raise QuorumError(
                f"{self.place(longer)}: the step {name!r} is no number, no ISO 8601 time and not "
                "as long as the first, so as text it would be sorted wrongly: write it as one of "
                "these."
            )
        return column

    # --- actions ---

    def categories(self, name: str) -> tuple[str, ...]:
        """The categories of a column whose type has them in an order, and so was declared.

        Those of others are mostly what occurred in the rows, which is private.
        """
        column = self.column(name)
        if not (types.is_dictionary(column.type) and column.type.ordered):
            return ()
        return tuple(map(str, column.dictionary.cast(pa.string()).to_pylist()))

    def actions(self, name: str, labels: Sequence[str]) -> npt.NDArray[Any]:
        """Actions as numbers: those of their `labels`, or as they are."""
        column = self.complete(name)
        if is_list(column.type):
            raise continuous_actions(self.schema.where, f"column {name!r} holds {column.type}")
        if not (is_number(column.type) or is_text(column.type)):
            raise self.wrong_type(name, column.type, "whole numbers or labels")
        if is_text(column.type):
            column = column.cast(pa.string())
            found = pc.index_in(column, value_set=pa.array(labels, pa.string()))
            if found.null_count == 0:
                return np.asarray(found)
            column = self._numbers_of(name, column, found, labels)
        numbers = self._plain(column)
        try:
            values = np.array([float(label) for label in labels])
        except ValueError:
            return numbers  # labels are words, so numbers are numbers of actions
        if not len(values):
            return numbers
        matches = numbers[:, None] == values
        unknown = first_true(~matches.any(axis=1))
        if unknown is not None:
            raise self._unlabelled(unknown, numbers[unknown], labels)
        return np.asarray(matches.argmax(axis=1))

    def _plain(self, column: Any) -> npt.NDArray[Any]:
        if types.is_boolean(column.type):
            column = column.cast(pa.int8())
        elif types.is_decimal(column.type):
            column = column.cast(pa.float64())
        numbers: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
        return numbers

    def _numbers_of(self, name: str, column: Any, found: Any, labels: Sequence[str]) -> Any:
        """Actions that are written as numbers."""
        for kind in (pa.int64(), pa.float64()):
            with suppress(pa.ArrowException):
                return column.cast(kind)
        if labels:
            unknown = int(np.flatnonzero(found.is_null())[0])
            raise self._unlabelled(unknown, column[unknown].as_py(), labels)
        row = _first_unlike(column, r"-?[\d.]+(e-?\d+)?")
        raise QuorumError(
            f"{self.place(row)}: the action {name!r} is {column[row].as_py()!r}: declare all that "
            "there are (--action-labels), or number them."
        )

    def _unlabelled(self, row: int, action: Any, labels: Sequence[str]) -> QuorumError:
        return QuorumError(
            f"{self.place(row)}: the action is {action!r}, none of the declared labels "
            f"{', '.join(labels)}: correct it or declare them all."
        )

    # --- observations ---

    def vectors(self, columns: Sequence[Column]) -> npt.NDArray[np.float32]:
        """These columns beside one another; what is missing is NaN. Shapes: (rows, size)."""
        vectors = np.empty((self.table.num_rows, sum(c.size for c in columns)), np.float32)
        start = 0
        for column in columns:
            part = vectors[:, start : start + column.size]
            is_flat = not is_list(self.column(column.name).type)
            part[:] = self.floats(column.name)[:, None] if is_flat else self._lists(column)
            start += column.size
        return vectors

    def _lists(self, column: Column) -> npt.NDArray[np.float32]:
        """Lists of the column's shape, or lists in one another; a missing one is all NaN."""
        whole = self.column(column.name)
        if isinstance(whole, pa.ExtensionArray):
            whole = whole.storage
        levels = column.shape if depth_of(whole.type) == len(column.shape) else (column.size,)
        if depth_of(whole.type) != len(levels):
            raise self.wrong_type(column.name, whole.type, f"lists of shape {column.shape}")
        rows = np.flatnonzero(whole.is_valid().to_numpy(zero_copy_only=False))
        inner, each = whole.drop_null(), 1
        for wanted in levels:
            lengths = pc.fill_null(pc.list_value_length(inner), 0).to_numpy(zero_copy_only=False)
            if (index := first_true(lengths != wanted)) is not None:
                raise QuorumError(
                    f"{self.place(int(rows[index // each]))}: {column.name!r} has {lengths[index]} "
                    f"numbers, but {wanted} are declared: correct one of the two."
                )
            inner, each = inner.flatten(), each * wanted
        made = np.full((len(whole), column.size), np.nan, np.float32)
        made[rows] = self._floats(inner, column.name).reshape(-1, column.size)
        return made


def _ranks(column: Any) -> npt.NDArray[Any]:
    """Numbers in the order of the values, equal ones of equal values."""
    ranks: npt.NDArray[Any] = pc.rank(column, tiebreaker="dense").to_numpy().astype(np.int64)
    return ranks


def _first_unlike(column: Any, pattern: str) -> int:
    """The first text that does not look like that; the first of all if none does."""
    texts = enumerate(column.to_pylist())
    return next((row for row, text in texts if not re.fullmatch(pattern, text)), 0)
