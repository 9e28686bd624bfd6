"""Released prefixes as a Parquet file: one row per transition, readable by anything."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from quorum_rl.errors import QuorumError
from quorum_rl.files import replacing, require_file
from quorum_rl.json_files import object_of
from quorum_rl.logs import read_parquet
from quorum_rl.privacy import ReleaseEvent, event_from_json
from quorum_rl.tensors import checksum
from quorum_rl.types import Released, Transition

METADATA_KEY: Final = b"quorum_rl.released"
VERSION: Final = 2


def save_released(
    released: Released, path: str | Path, facts: Mapping[str, Any] | None = None
) -> None:
    """Write prefixes to `path`, with `facts` about how they came about and a digest of all that.

    Raises:
        QuorumError: if the file cannot be written.
    """
    found = released.transitions
    steps = np.arange(int(released.offsets[-1]))
    prefix = np.repeat(np.arange(len(released)), released.lengths)
    table = pa.table(
        {
            "prefix": prefix,
            "step": steps - released.offsets[prefix],
            "observation": _vectors(found.observation, released.observation_size),
            "action": np.asarray(found.action),
            "reward": np.asarray(found.reward),
            "next_observation": _vectors(found.next_observation, released.observation_size),
            "terminated": np.asarray(found.terminated),
            "truncated": np.asarray(found.truncated),
        },
        schema=_schema(released.observation_size),
    )
    about: dict[str, Any] = {
        "version": VERSION,
        "observation_size": released.observation_size,
        "action_count": released.action_count,
        "horizon": released.horizon,
        "facts": dict(facts or {}),
    }
    about["sha256"] = checksum(about, _columns(table))
    table = table.replace_schema_metadata({METADATA_KEY: json.dumps(about)})
    with replacing(Path(path)) as temporary:
        pq.write_table(table, temporary, write_page_checksum=True)


def read_released(path: str | Path) -> Released:
    """Prefixes that `save_released` wrote.

    Raises:
        QuorumError: if the file is not there, is damaged or is not one that Quorum wrote.
    """
    return read_released_with_facts(path)[0]


def read_released_with_facts(path: str | Path) -> tuple[Released, dict[str, Any]]:
    """Prefixes that `save_released` wrote, and the facts that were written with them.

    All is compared with the digest that the file carries. Who computes another digest can write
    another file.

    Raises:
        QuorumError: as `read_released`.
    """
    require_file(path, "released prefixes")
    try:
        table = read_parquet(Path(path), verify=True)
        about = object_of((table.schema.metadata or {})[METADATA_KEY])
        if about["version"] != VERSION:
            raise ValueError(f"it has version {about['version']}, this program reads {VERSION}")
        if not table.schema.equals(_schema(about["observation_size"])):
            raise ValueError("its columns are not those of released prefixes")
        columns = _columns(table)
        _check_digest(about, columns)
        released = Released(
            transitions=Transition(*(columns[name] for name in Transition._fields)),
            offsets=_offsets(columns["step"]),
            observation_size=about["observation_size"],
            action_count=about["action_count"],
            horizon=about["horizon"],
        )
        return released, dict(about["facts"])
    except (pa.ArrowException, OSError, KeyError, ValueError, TypeError, RecursionError,
            ArithmeticError) as error:  # fmt: skip
        reason = " ".join(str(error).split())  # some have several lines
        raise QuorumError(
            f"released prefixes {str(path)!r} cannot be read ({reason}): give a file that "
            "'quorum release' wrote."
        ) from error


def released_digest(released: Released) -> str:
    """A hash of all that was released."""
    digest = hashlib.sha256()
    for part in (*released.transitions, released.offsets):
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()


def event_of(facts: Mapping[str, Any]) -> ReleaseEvent | None:
    """The release that prefixes with these facts say they are from, if they do."""
    try:
        event = event_from_json({name: fact for name, fact in facts.items() if name != "ledger"})
    except QuorumError:
        return None
    return event if isinstance(event, ReleaseEvent) else None


def _check_digest(about: dict[str, Any], columns: dict[str, Any]) -> None:
    if about["sha256"] != checksum(about, columns):
        raise ValueError("it was changed after it was written, by the digest that it carries")


def _columns(table: Any) -> dict[str, Any]:
    return {name: _numbers(table.column(name)) for name in table.column_names}


def _schema(observation_size: int) -> Any:
    return pa.schema(
        {
            "prefix": pa.int32(),
            "step": pa.int32(),
            "observation": pa.list_(pa.float32(), observation_size),
            "action": pa.int32(),
            "reward": pa.float32(),
            "next_observation": pa.list_(pa.float32(), observation_size),
            "terminated": pa.bool_(),
            "truncated": pa.bool_(),
        }
    )


def _offsets(step: Any) -> Any:
    """Where each prefix starts, and the end of the last one. Shapes: `step` (transitions,)."""
    starts = np.flatnonzero(step == 0)
    offsets = np.append(starts, len(step)).astype(np.int64)
    if not np.array_equal(step, np.arange(len(step)) - np.repeat(starts, np.diff(offsets))):
        raise ValueError("its rows are not whole prefixes")
    return offsets


def _vectors(values: Any, width: int) -> Any:
    flat = np.ascontiguousarray(values, np.float32).reshape(-1)
    return pa.FixedSizeListArray.from_arrays(pa.array(flat), width)


def _numbers(column: Any) -> Any:
    if pa.types.is_fixed_size_list(column.type):
        flat = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
        return flat.reshape(-1, column.type.list_size)
    return column.to_numpy()
