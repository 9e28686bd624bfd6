"""Transitions as a plain table, Parquet or CSV: one row per step, named columns."""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from quorum_rl.errors import QuorumError, unknown_name
from quorum_rl.files import replacing, require_file
from quorum_rl.logs.declared import METADATA_KEY, Declared, declared_to_json, settled
from quorum_rl.logs.demonstrations import Demonstrations, first_true
from quorum_rl.logs.digest import DIGEST_KEY, check_said, digests_of
from quorum_rl.logs.parquet import read_parquet
from quorum_rl.logs.rows import Rows, from_rows

BATCH = 1 << 19  # transitions written together


@dataclass(frozen=True)
class TableColumns:
    """What the columns are called in the file.

    An observation is a list column, or columns NAME_0, NAME_1, …, or the columns of a tuple of
    names. `truncated` and `next_observation` may be absent, if not renamed here.
    """

    expert: str = "expert"
    episode: str = "episode"
    step: str = "step"
    observation: str | tuple[str, ...] = "observation"
    action: str = "action"
    reward: str = "reward"
    terminated: str = "terminated"
    truncated: str = "truncated"
    next_observation: str | tuple[str, ...] = "next_observation"


DEFAULT_COLUMNS = TableColumns()


def columns_named(names: Mapping[str, str | Sequence[str]]) -> TableColumns:
    """The columns of a file, from the names of those that are called otherwise.

    Raises:
        QuorumError: for a column that there is not.
    """
    known = [column.name for column in fields(TableColumns)]
    for name in names:
        if name not in known:
            raise unknown_name("column of logs", name, known)
    chosen: dict[str, Any] = {
        name: given if isinstance(given, str) else tuple(given) for name, given in names.items()
    }
    return TableColumns(**chosen)


def read_table(
    path: str | Path, declared: Declared | None = None, columns: TableColumns = DEFAULT_COLUMNS
) -> Demonstrations:
    """Import a Parquet or CSV file of transitions, its rows in any order.

    Experts and episodes may be named by integers, which order them, or by strings, which are
    numbered in their sorted order. `declared` may be left out for a Parquet file Quorum wrote;
    if it is given, it must not contradict what the file says.
    What happens when next observations are absent is said in `quorum_rl.logs.rows`.

    Raises:
        QuorumError: naming the file, the data row (counted from 1) and the fix.
    """
    file = Path(path)
    require_file(file, "table")
    try:
        return _read(file, declared, columns)
    except (pa.ArrowException, ValueError, TypeError, ArithmeticError) as error:
        if isinstance(error, QuorumError):
            raise
        why = " ".join(str(error).split())
        raise QuorumError(f"{str(file)!r} cannot be read ({why}): correct the file.") from error


def _read(file: Path, declared: Declared | None, columns: TableColumns) -> Demonstrations:
    table = _read_parquet(file) if _is_parquet(file) else _read_csv(file, columns)
    metadata = table.schema.metadata or {}
    embedded = metadata.get(METADATA_KEY)
    if embedded is not None:
        check_said({METADATA_KEY: embedded}, metadata.get(DIGEST_KEY), file)
    known = settled(declared, embedded, repr(str(file)))
    if table.num_rows == 0:
        raise QuorumError(f"{str(file)!r}: there is no row; give at least one episode.")
    reader = _Reader(file, table)
    made = from_rows(_rows(reader, known, columns), known, _place(file))
    return replace(made, expert_names=reader.names(columns.expert))


def write_table(demonstrations: Demonstrations, path: str | Path) -> None:
    """Export to Parquet or CSV, by the ending of the name, with successors in next_observation_*.

    Raises:
        QuorumError: if the ending is another or the file cannot be written.
    """
    file = Path(path)
    parquet = _is_parquet(file)
    size = demonstrations.declared.observation_size
    said = {METADATA_KEY: declared_to_json(demonstrations.declared)}
    metadata = said | {DIGEST_KEY: digests_of(said)}
    schema = pa.schema(
        [("expert", pa.int64()), ("episode", pa.int64()), ("step", pa.int64())]
        + [(f"observation_{i}", pa.float32()) for i in range(size)]
        + [("action", pa.int32()), ("reward", pa.float32())]
        + [("terminated", pa.bool_()), ("truncated", pa.bool_())]
        + [(f"next_observation_{i}", pa.float32()) for i in range(size)],
        metadata=metadata if parquet else None,
    )
    writer_of = pa.parquet.ParquetWriter if parquet else pa.csv.CSVWriter
    with replacing(file) as temporary, writer_of(str(temporary), schema) as writer:
        for batch in _batches(demonstrations, schema):
            writer.write_batch(batch)


def _batches(demonstrations: Demonstrations, schema: Any) -> Iterator[Any]:
    offsets = demonstrations.expert_episode_offsets
    position = np.arange(len(demonstrations)) - np.repeat(offsets[:-1], np.diff(offsets))
    for start in range(0, demonstrations.transition_count, BATCH):
        index = np.arange(start, min(start + BATCH, demonstrations.transition_count))
        episode = np.searchsorted(demonstrations.transition_offsets, index, side="right") - 1
        steps = demonstrations.transitions(index)
        values: list[Any] = [demonstrations.episodes.expert[episode], position[episode]]
        values.append(index - demonstrations.transition_offsets[episode])
        values.extend(np.asarray(steps.observation).T)
        values.extend([steps.action, steps.reward, steps.terminated, steps.truncated])
        values.extend(np.asarray(steps.next_observation).T)
        arrays = [pa.array(v, f.type) for v, f in zip(values, schema, strict=True)]
        yield pa.record_batch(arrays, schema=schema)


@dataclass(frozen=True)
class _Reader:
    """The columns of one table, each converted with errors that name file and row."""

    file: Path
    table: Any

    def has(self, name: str) -> bool:
        return name in self.table.column_names

    def column(self, name: str) -> Any:
        if not self.has(name):
            error = unknown_name("column", name, self.table.column_names)
            raise QuorumError(f"{str(self.file)!r} lacks a column: {error}")
        return self.table.column(name).combine_chunks()

    def complete(self, name: str) -> Any:
        """A column in which no value is missing."""
        column = self.column(name)
        if (row := first_true(column.is_null().to_numpy(zero_copy_only=False))) is not None:
            raise QuorumError(
                f"{_place(self.file)(row)}: the value of column {name!r} is missing: fill it in or "
                "leave out the whole episode."
            )
        return column

    def wrong_type(self, name: str, kind: Any, needed: str) -> QuorumError:
        return QuorumError(
            f"{str(self.file)!r}: column {name!r} holds {kind}, but {needed} are needed: "
            "convert it."
        )

    def numbers(self, name: str) -> Any:
        """Numbers as they are, none missing."""
        column = self.complete(name)
        if not _is_number(column.type):
            raise self.wrong_type(name, column.type, "whole numbers")
        return column.to_numpy(zero_copy_only=False)

    def identities(self, name: str) -> Any:
        """Integers as they are; other names as their rank in sorted order."""
        whole, text = self._whole_or_text(name)
        if whole is not None:
            return whole.to_numpy()
        names = text.dictionary_encode()
        rank = np.argsort(np.argsort(np.array(names.dictionary.to_pylist())))
        return rank[names.indices.to_numpy()]

    def names(self, name: str) -> tuple[str, ...]:
        """The names of those who have one, in the order of their identities."""
        whole, text = self._whole_or_text(name)
        return () if whole is not None else tuple(np.unique(text.to_pylist()).tolist())

    def _whole_or_text(self, name: str) -> tuple[Any, Any]:
        """The column as integers, if that is what it holds, and as text."""
        column = self.complete(name)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        text = column.cast(pa.string())
        with suppress(pa.ArrowException):
            whole = column.cast(pa.int64())
            if _is_number(column.type) or whole.cast(pa.string()).equals(text):
                return whole, text  # but "7" and "007" stay two
        return None, text

    def flags(self, name: str) -> Any:
        column = self.complete(name)
        try:
            return column.cast(pa.bool_()).to_numpy(zero_copy_only=False)
        except pa.ArrowException as error:
            raise self.wrong_type(name, column.type, "true and false (or 1 and 0)") from error

    def floats(self, name: str) -> Any:
        """Float32, a missing value as NaN."""
        column = self.column(name)
        if not _is_number(column.type):
            raise self.wrong_type(name, column.type, "numbers")
        return pc.cast(column, pa.float32(), safe=False).to_numpy(zero_copy_only=False)

    def vectors(self, name: str | tuple[str, ...], size: int) -> Any:
        """A list column or several number columns as an array (rows, size)."""
        if isinstance(name, str) and self.has(name) and _is_list(self.column(name).type):
            return self._lists(name, size)
        names = _vector_names(name, self.table.column_names) or [f"{name}_0"]
        self.column(names[0])
        if len(names) != size:
            raise QuorumError(
                f"{str(self.file)!r} has {len(names)} columns for {name!r}, but "
                f"observation_size {size} was declared: correct one of the two."
            )
        vectors = np.empty((self.table.num_rows, size), dtype=np.float32)
        for index, column in enumerate(names):
            vectors[:, index] = self.floats(column)
        return vectors

    def _lists(self, name: str, size: int) -> Any:
        column = self.complete(name)
        lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
        if (row := first_true(lengths != size)) is not None:
            raise QuorumError(
                f"{_place(self.file)(row)}: {name!r} has {lengths[row]} numbers, "
                f"but observation_size {size} was declared: correct one of the two."
            )
        values = pc.cast(column.flatten(), pa.float32(), safe=False)
        return values.to_numpy(zero_copy_only=False).reshape(-1, size)


def _rows(reader: _Reader, declared: Declared, columns: TableColumns) -> Rows:
    size = declared.observation_size
    successors = _vector_names(columns.next_observation, reader.table.column_names)
    has_successors = bool(successors) or columns.next_observation != "next_observation"
    has_truncated = reader.has(columns.truncated) or columns.truncated != "truncated"
    return Rows(
        expert=reader.identities(columns.expert),
        episode=reader.identities(columns.episode),
        step=reader.numbers(columns.step),
        observation=reader.vectors(columns.observation, size),
        action=reader.numbers(columns.action),
        reward=reader.floats(columns.reward),
        terminated=reader.flags(columns.terminated),
        truncated=reader.flags(columns.truncated) if has_truncated else None,
        next_observation=reader.vectors(columns.next_observation, size) if has_successors else None,
    )


def _vector_names(name: str | tuple[str, ...], present: list[str]) -> list[str]:
    """The columns that make up a vector: as listed, or NAME_0, NAME_1, … without a gap."""
    if not isinstance(name, str):
        return list(name)
    if name in present:
        return [name]
    numbered = [other for other in present if re.fullmatch(re.escape(name) + r"_\d+", other)]
    return [f"{name}_{index}" for index in range(len(set(numbered)))]


def _is_number(kind: Any) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


def _is_list(kind: Any) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _is_parquet(file: Path) -> bool:
    if file.suffix.lower() not in (".parquet", ".csv"):
        raise QuorumError(f"table {str(file)!r}: its name must end in .parquet or .csv.")
    return file.suffix.lower() == ".parquet"


def _place(file: Path) -> Any:
    return lambda row: f"{str(file)!r}, row {row + 1}"


def _read_parquet(file: Path) -> Any:
    try:
        return read_parquet(file)
    except (pa.ArrowException, OSError) as error:
        why = " ".join(str(error).partition(". ")[0].split())
        raise QuorumError(
            f"{str(file)!r} is not a whole Parquet file ({why}): get it anew."
        ) from error


def _read_csv(file: Path, columns: TableColumns) -> Any:
    """Read a CSV file with every type fixed beforehand, so that none is guessed from the top."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as opened:
            names = next(csv.reader(opened), [])
        types = dict.fromkeys(names, pa.float32())
        types |= {columns.expert: pa.string(), columns.episode: pa.string()}
        types |= {columns.step: pa.int64(), columns.action: pa.int64()}
        types |= {columns.terminated: pa.bool_(), columns.truncated: pa.bool_()}
        used = _used(columns, names)
        doubled = [name for name in used if names.count(name) > 1]
        if doubled:
            raise QuorumError(f"{str(file)!r} has two columns {doubled[0]!r}: rename one.")
        return pa.csv.read_csv(
            str(file),
            read_options=pa.csv.ReadOptions(use_threads=False),  # threads lose the row number
            convert_options=pa.csv.ConvertOptions(
                column_types=types, include_columns=used, strings_can_be_null=True
            ),
        )
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        # Arrow counts the header as a row; we count rows of data.
        found = re.search(r"Row #(\d+): (.*)", str(error))
        where = f", row {int(found[1]) - 1}: {found[2]}" if found else f": {error}"
        raise QuorumError(f"{str(file)!r}{where}: correct the file.") from error


def _used(columns: TableColumns, present: list[str]) -> list[str]:
    """The columns of the file that mean something to us; others may hold anything."""
    wanted: list[str] = []
    for column in fields(columns):
        name = getattr(columns, column.name)
        wanted += _vector_names(name, present) if "observation" in column.name else [name]
    return [name for name in wanted if name in present]
