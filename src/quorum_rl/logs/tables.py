"""Transitions as a plain table, Parquet or CSV: one row per step, named columns."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from quorum_rl.dictionary import Column, Dictionary
from quorum_rl.errors import QuorumError
from quorum_rl.files import replacing, require_file
from quorum_rl.logs.columns import (
    ACTION,
    DEFAULT_COLUMNS,
    NEXT,
    OBSERVATION,
    ROLES,
    TableColumns,
    action_columns,
    action_names,
    observed_columns,
    vector_names,
    worth_keeping,
)
from quorum_rl.logs.declared import METADATA_KEY, Declared, declared_to_json, settled
from quorum_rl.logs.demonstrations import Demonstrations
from quorum_rl.logs.digest import DIGEST_KEY, check_said, digests_of
from quorum_rl.logs.parquet import read_parquet
from quorum_rl.logs.rows import Rows, from_rows
from quorum_rl.logs.schema import Schema, csv_header, flattened, is_parquet, not_whole, two_columns
from quorum_rl.logs.table_reader import Reader

BATCH = 1 << 19  # transitions written together


def read_table(
    path: str | Path, declared: Declared | None = None, columns: TableColumns = DEFAULT_COLUMNS
) -> Demonstrations:
    """Import a Parquet or CSV file of transitions, its rows in any order.

    The dictionary of `declared` names the columns of an observation where `columns` does not, and
    all actions; both are in what is returned. Actions are numbers or labels.

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
    table = _read_parquet(file) if is_parquet(file) else _read_csv(file, declared, columns)
    metadata = table.schema.metadata or {}
    embedded = metadata.get(METADATA_KEY)
    if embedded is not None:
        check_said({METADATA_KEY: embedded}, metadata.get(DIGEST_KEY), file)
    known = settled(declared, embedded, repr(str(file)))
    if table.num_rows == 0:
        raise _without_rows(file)
    reader = Reader(file, table)
    seen = observed_columns(
        reader.schema,
        columns,
        known.dictionary if embedded is None else None,
        known.observation_size,
    )
    if embedded is None:
        known = _named(known, seen, _action_labels(reader, known, columns))
    made = from_rows(_rows(reader, known, seen, columns), known, reader.place)
    return replace(made, expert_names=reader.names(columns.expert))


def _without_rows(file: Path) -> QuorumError:
    return QuorumError(f"{str(file)!r}: there is no row; give at least one episode.")


def _named(declared: Declared, seen: Sequence[Column], labels: tuple[str, ...]) -> Declared:
    """What is declared, with the names that the table has for it where nobody gave others."""
    given = declared.dictionary or Dictionary()
    labels = given.action_labels or labels
    if not (labels or given.action_bounds or worth_keeping(seen)):
        return declared
    named = replace(given, columns=tuple(seen), action_labels=labels)
    return replace(declared, dictionary=named)


def _action_labels(reader: Reader, declared: Declared, columns: TableColumns) -> tuple[str, ...]:
    """What the table itself calls its actions: categories, or columns that somebody named."""
    if declared.continuous:
        return () if isinstance(columns.action, str) else columns.action
    return reader.categories(_action_column(reader, columns))


def _action_column(reader: Reader, columns: TableColumns) -> str:
    """The one column of a finite action."""
    if isinstance(columns.action, str):
        return columns.action
    raise QuorumError(
        f"{reader.schema.where}: the action is {', '.join(columns.action)}: give one column, or "
        "the bounds of a continuous action (--action-bounds)."
    )


def _rows(
    reader: Reader, declared: Declared, seen: Sequence[Column], columns: TableColumns
) -> Rows:
    present = list(reader.schema.kinds)
    successors = vector_names(columns.next_observation, present)
    usual = DEFAULT_COLUMNS
    has_successors = bool(successors) or columns.next_observation != usual.next_observation
    has_truncated = reader.has(columns.truncated) or columns.truncated != usual.truncated
    labels = () if declared.dictionary is None else declared.dictionary.action_labels
    step, orders = reader.steps(columns.step, orders=columns.step_orders)
    following = None
    if has_successors:
        following = reader.vectors(_following(reader, columns, successors, seen))
    return Rows(
        expert=reader.identities(columns.expert),
        episode=reader.identities(columns.episode),
        step=step,
        observation=reader.vectors(seen),
        action=reader.vectors(action_columns(reader.schema, columns, declared.action_bounds))
        if declared.continuous
        else reader.actions(_action_column(reader, columns), labels),
        reward=reader.floats(columns.reward),
        terminated=reader.flags(columns.terminated),
        truncated=reader.flags(columns.truncated) if has_truncated else None,
        next_observation=following,
        step_orders=orders,
    )


def _following(
    reader: Reader, columns: TableColumns, successors: Sequence[str], seen: Sequence[Column]
) -> list[Column]:
    """The columns of the next observation, each with the shape of the one before."""
    names = successors or [f"{columns.next_observation}_0"]
    reader.schema.check_has(names[0])
    if len(names) != len(seen):
        raise QuorumError(
            f"{reader.schema.where} has {len(names)} columns for {columns.next_observation!r}, but "
            f"{len(seen)} for the observation: correct one of the two."
        )
    return [replace(column, name=name) for name, column in zip(names, seen, strict=True)]


def write_table(demonstrations: Demonstrations, path: str | Path) -> None:
    """Export to Parquet or CSV, by the ending of the name, with successors in next_observation_*.

    Experts who have a name are called by it.

    Raises:
        QuorumError: if the ending is another or the file cannot be written.
    """
    file = Path(path)
    parquet = is_parquet(file)
    size = demonstrations.declared.observation_size
    said = {METADATA_KEY: declared_to_json(demonstrations.declared)}
    metadata = said | {DIGEST_KEY: digests_of(said)}
    schema = pa.schema(
        [("expert", pa.string() if demonstrations.expert_names else pa.int64())]
        + [("episode", pa.int64()), ("step", pa.int64())]
        + [(f"observation_{i}", pa.float32()) for i in range(size)]
        + _action_fields(demonstrations.declared)
        + [("reward", pa.float32())]
        + [("terminated", pa.bool_()), ("truncated", pa.bool_())]
        + [(f"next_observation_{i}", pa.float32()) for i in range(size)],
        metadata=metadata if parquet else None,
    )
    writer_of = pa.parquet.ParquetWriter if parquet else pa.csv.CSVWriter
    with replacing(file) as temporary, writer_of(str(temporary), schema) as writer:
        for batch in _batches(demonstrations, schema):
            writer.write_batch(batch)


def _labels(declared: Declared) -> tuple[str, ...]:
    """The labels of finite actions."""
    named = declared.dictionary
    return () if named is None or declared.continuous else named.action_labels


def _action_fields(declared: Declared) -> list[tuple[str, Any]]:
    if declared.continuous:
        return [(f"action_{i}", pa.float32()) for i in range(declared.action_count)]
    return [("action", pa.string() if _labels(declared) else pa.int32())]


def _batches(demonstrations: Demonstrations, schema: Any) -> Iterator[Any]:
    labels = pa.array(_labels(demonstrations.declared), pa.string())
    offsets, whose = demonstrations.expert_episode_offsets, demonstrations.named_experts
    position = np.arange(len(demonstrations)) - np.repeat(offsets[:-1], np.diff(offsets))
    for start in range(0, demonstrations.transition_count, BATCH):
        index = np.arange(start, min(start + BATCH, demonstrations.transition_count))
        episode = np.searchsorted(demonstrations.transition_offsets, index, side="right") - 1
        steps = demonstrations.transitions(index)
        values: list[Any] = [whose[episode], position[episode]]
        values.append(index - demonstrations.transition_offsets[episode])
        values.extend(np.asarray(steps.observation).T)
        if demonstrations.declared.continuous:
            values.extend(np.asarray(steps.action).T)
        else:
            values.append(labels.take(pa.array(steps.action)) if len(labels) else steps.action)
        values.extend([steps.reward, steps.terminated, steps.truncated])
        values.extend(np.asarray(steps.next_observation).T)
        arrays = [pa.array(v, f.type) for v, f in zip(values, schema, strict=True)]
        yield pa.record_batch(arrays, schema=schema)


def _read_parquet(file: Path) -> Any:
    try:
        return flattened(read_parquet(file))
    except (pa.ArrowException, OSError) as error:
        raise not_whole(file, error) from error


def _read_csv(file: Path, declared: Declared | None, columns: TableColumns) -> Any:
    """Read a CSV file with every type fixed beforehand, so that none is guessed from the top."""
    names = csv_header(file)
    known = None if declared is None else declared.dictionary
    observed = known.names if known is not None else ()
    observed = observed or tuple(vector_names(columns.observation, names))
    types = dict.fromkeys(names, pa.float32())
    done = action_names(Schema(repr(str(file)), dict.fromkeys(names)), columns)
    types |= dict.fromkeys((columns.expert, columns.episode), pa.string())
    if declared is None or not declared.continuous:
        types |= dict.fromkeys(done, pa.string())
    types |= {columns.terminated: pa.bool_(), columns.truncated: pa.bool_()}
    types |= {columns.step: pa.float64() if columns.step in observed else pa.string()}
    single = (getattr(columns, role) for role in ROLES if role not in (OBSERVATION, NEXT, ACTION))
    wanted = {*single, *done, *observed, *vector_names(columns.next_observation, names)}
    used = [name for name in dict.fromkeys(names) if name in wanted]  # others may hold anything
    doubled = [name for name in used if names.count(name) > 1]
    if doubled:
        raise two_columns(repr(str(file)), doubled[0])
    try:
        return pa.csv.read_csv(
            str(file),
            read_options=pa.csv.ReadOptions(use_threads=False),  # threads lose the row number
            parse_options=pa.csv.ParseOptions(newlines_in_values=True),
            convert_options=pa.csv.ConvertOptions(
                column_types=types, include_columns=used, strings_can_be_null=True
            ),
        )
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if "Empty CSV file" in str(error):
            raise _without_rows(file) from error
        # Arrow counts the header as a row; we count rows of data.
        found = re.search(r"Row #(\d+): (.*)", str(error))
        where = f", row {int(found[1]) - 1}: {found[2]}" if found else f": {error}"
        raise QuorumError(f"{str(file)!r}{where}: correct the file.") from error
