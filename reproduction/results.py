"""Results as they are committed: one Parquet file a study.

A study's results have names. A list of rows in a result is rows of the file; the other facts
(configuration, commit, machine, seconds) are JSON in the schema's metadata. Cells that are neither
numbers, words nor lists of them are JSON too.

    quorum audit --only pipeline --out pipeline.json
    python -m reproduction.results pipeline.json results/audit.parquet
"""

import argparse
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from quorum_rl.errors import QuorumError
from quorum_rl.files import replacing
from quorum_rl.pipeline import Result

Facts = dict[str, Any]
FOLDER: Final = Path(__file__).parents[1] / "results"
LONGEST_SHOWN: Final = 60
RESULT, PART = "result", "part"  # columns that say whose row it is


def read(file: Path) -> dict[str, Facts]:
    """Every result of a study by name; none if there is no such file.

    Raises:
        QuorumError: if the file is there and has no results.
    """
    if not file.exists():
        return {}
    try:
        table = pq.read_table(file)
        facts: dict[str, Facts] = json.loads(table.schema.metadata[b"results"])
        texts = set(json.loads(table.schema.metadata[b"json"]))
    except (OSError, pa.ArrowInvalid, KeyError, TypeError, ValueError) as error:
        raise QuorumError(
            f"{str(file)!r} is in the way, and has no results: give another file."
        ) from error
    parts = {name: result.pop("parts") for name, result in facts.items()}
    for name, columns in parts.items():
        facts[name] |= {part: [] for part in columns}
    for row in table.to_pylist():
        columns = parts[row[RESULT]][row[PART]]
        values = {
            name: json.loads(row[name]) if name in texts and row[name] else row[name]
            for name in columns
        }
        facts[row[RESULT]][row[PART]].append(values)
    return facts


@lru_cache
def study(name: str) -> Mapping[str, Facts]:
    """The committed results of a study, which nobody may change."""
    return read(FOLDER / f"{name}.parquet")


def write(file: Path, results: Mapping[str, Facts]) -> None:
    """All results of a study, in place of those before."""
    rows: list[Facts] = []
    heads: dict[str, Facts] = {}
    for name, facts in sorted(results.items()):
        parts = {part: found for part, found in facts.items() if _is_part(found)}
        head = {key: value for key, value in facts.items() if key not in parts}
        columns = {part: list(dict.fromkeys(k for row in found for k in row))
                   for part, found in parts.items()}  # fmt: skip
        heads[name] = head | {"parts": columns}
        rows += [{RESULT: name, PART: part} | row for part, found in parts.items() for row in found]
    columns_of_all = list(dict.fromkeys(key for row in rows for key in row))
    made = {name: _column([row.get(name) for row in rows]) for name in columns_of_all}
    texts = [name for name, (_, is_json) in made.items() if is_json]
    table = pa.table({name: column for name, (column, _) in made.items()})
    metadata = {"results": json.dumps(heads), "json": json.dumps(texts)}
    with replacing(file) as temporary:
        pq.write_table(table.replace_schema_metadata(metadata), temporary, compression="zstd")


def _is_part(found: Any) -> bool:
    return isinstance(found, list) and bool(found) and all(isinstance(row, dict) for row in found)


def _column(values: list[Any]) -> tuple[pa.Array, bool]:
    """A column, and whether its cells are JSON."""
    try:
        column = pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # several types
        column = None
    inner = column.type if column is not None else None
    while inner is not None and pa.types.is_list(inner):
        inner = inner.value_type
    if inner is None or pa.types.is_struct(inner):
        texts = [None if value is None else json.dumps(value) for value in values]
        return pa.array(texts, pa.string()), True
    return column, False


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process at a time: several may add to the same study."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def add(file: Path, name: str, facts: Facts) -> None:
    """One result in place of an earlier one of its name; the study's others stay."""
    with _alone(file.parent):
        write(file, read(file) | {name: json.loads(json.dumps(facts))})


def extend(file: Path, name: str, facts: Facts, **more: list[Any]) -> None:
    """A result with these at the end of its lists, which several processes may do at once."""
    with _alone(file.parent):
        there = read(file)
        before = there.get(name, {})
        lists = {key: before.get(key, []) + json.loads(json.dumps(values))
                 for key, values in more.items()}  # fmt: skip
        write(file, there | {name: json.loads(json.dumps(facts)) | lists})


def name_of(result: Result) -> str:
    return f"{result.world.lower()}-{result.stage}"


def save(result: Result, file: Path, found: Facts) -> None:
    """What was found, with what it took to find it."""
    add(file, name_of(result), result.facts(found))
    print(f"{name_of(result)} in {file}")


def check_place(result: Result, file: Path) -> None:
    """Fail if a result of its name is there and was made in another way: it would be lost.

    Raises:
        QuorumError: naming what differs.
    """
    name = name_of(result)
    before = _flat(read(file).get(name, {}).get("configuration", {}))
    for key, value in _flat(json.loads(json.dumps(result.configuration))).items():
        if before.get(key, value) != value:
            raise QuorumError(
                f"{name} in {str(file)!r} would be lost, for it has {_shown(key, before[key])}, "
                f"and this run {_shown(key, value)}: give another file for results."
            )


def _flat(facts: Facts, before: str = "") -> Facts:
    """The same with a dot between the name of a dictionary and the names in it."""
    made: Facts = {}
    for name, value in facts.items():
        inner = isinstance(value, dict)
        made |= _flat(value, f"{before}{name}.") if inner else {f"{before}{name}": value}
    return made


def _shown(name: str, value: Any) -> str:
    shown = str(value)
    return f"{name} = {shown}" if len(shown) <= LONGEST_SHOWN else f"another {name}"


def main() -> None:
    """Add a JSON file, as `quorum audit --out` writes it, to a study under the file's name."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("json", type=Path)
    parser.add_argument("study", type=Path, help="a Parquet file")
    given = parser.parse_args()
    add(given.study, given.json.stem, json.loads(given.json.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
