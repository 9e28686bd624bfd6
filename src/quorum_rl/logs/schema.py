"""What a table says about itself without its rows: the columns it has and of which types."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as types

from quorum_rl.errors import QuorumError, unknown_name
from quorum_rl.files import require_file


@dataclass(frozen=True)
class Schema:
    """The columns of a table in their order, of which a CSV file knows no types; and whose."""

    where: str
    kinds: Mapping[str, Any]

    def check_has(self, name: str) -> None:
        """Fail unless there is such a column."""
        if name not in self.kinds:
            error = unknown_name("column", name, self.kinds)
            raise QuorumError(f"{self.where} lacks a column: {error}")


def schema_of(path: str | Path) -> Schema:
    """The schema of a Parquet file, or the header of a CSV file. No row is read.

    Columns of structures are their fields, such as `vitals.glucose`.

    Raises:
        QuorumError: if there is no such file, or none of the two.
    """
    file = Path(path)
    require_file(file, "table")
    if not is_parquet(file):
        return Schema(repr(str(file)), dict.fromkeys(csv_header(file)))
    try:
        empty = flattened(pq.read_schema(str(file)).empty_table())
    except (pa.ArrowException, OSError) as error:
        raise not_whole(file, error) from error
    return Schema(repr(str(file)), {field.name: field.type for field in empty.schema})


def csv_header(file: Path) -> list[str]:
    """The names in the first line of a CSV file.

    Raises:
        QuorumError: if there is none, or it cannot be read.
    """
    try:
        with file.open(encoding="utf-8-sig", newline="") as opened:
            names = next(csv.reader(opened), [])
    except UnicodeDecodeError as error:
        raise QuorumError(f"{str(file)!r} is no text in UTF-8: save it as such.") from error
    except (OSError, csv.Error) as error:
        raise QuorumError(f"{str(file)!r}: {error}: correct the file.") from error
    if not any(name.strip() for name in names):
        raise QuorumError(f"{str(file)!r} has no header: give the names of the columns first.")
    return names


def flattened(table: Any) -> Any:
    """A table without structures: their fields are columns, such as `vitals.glucose`."""
    while any(types.is_struct(field.type) for field in table.schema):
        table = table.flatten()
    return table


def two_columns(where: str, name: str) -> QuorumError:
    return QuorumError(f"{where} has two columns {name!r}: rename one.")


def not_whole(file: Path, error: Exception) -> QuorumError:
    why = " ".join(str(error).partition(". ")[0].split())
    return QuorumError(f"{str(file)!r} is not a whole Parquet file ({why}): get it anew.")


def is_parquet(file: Path) -> bool:
    """Whether it is Parquet; else it is CSV.

    Raises:
        QuorumError: if its name says that it is none of the two.
    """
    if file.suffix.lower() not in (".parquet", ".csv"):
        raise QuorumError(f"table {str(file)!r}: its name must end in .parquet or .csv.")
    return file.suffix.lower() == ".parquet"


def is_number(kind: Any) -> bool:
    """Whether values of this type are numbers; true and false are 1 and 0."""
    return bool(
        types.is_floating(kind) or types.is_decimal(kind) or is_whole(kind) or is_flag(kind)
    )


def is_whole(kind: Any) -> bool:
    return bool(types.is_integer(kind))


def is_flag(kind: Any) -> bool:
    return bool(types.is_boolean(kind))


def is_text(kind: Any) -> bool:
    """Whether values of this type are texts, or categories."""
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_string_view(kind)
        or types.is_dictionary(kind)
    )


def is_time(kind: Any) -> bool:
    return bool(types.is_temporal(kind))


def is_date(kind: Any) -> bool:
    return bool(types.is_date(kind))


def is_list(kind: Any) -> bool:
    return bool(
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
        or isinstance(kind, pa.FixedShapeTensorType)
    )


def depth_of(kind: Any) -> int:
    """How many lists lie in one another."""
    if isinstance(kind, pa.FixedShapeTensorType):
        return 1  # as it is stored
    return 1 + depth_of(kind.value_type) if is_list(kind) else 0


def shape_in(kind: Any) -> tuple[int, ...] | None:
    """The shape that a type says its values have; None for lists of any length."""
    if isinstance(kind, pa.FixedShapeTensorType):
        return tuple(kind.shape)
    if kind is None or not is_list(kind):
        return ()
    inner = shape_in(kind.value_type)
    if inner is None or not types.is_fixed_size_list(kind):
        return None
    return (kind.list_size, *inner)
