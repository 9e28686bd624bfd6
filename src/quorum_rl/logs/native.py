"""The file Quorum itself keeps demonstrations in: Arrow IPC, one row per episode, uncompressed.

An episode's observations, actions and rewards are lists, which Arrow stores as one flat array with
offsets: just what `Demonstrations` is made of. Opening a file therefore maps it into memory. Any
Arrow reader opens it as a table of episodes. Its metadata carries a digest of all that is in it.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quorum_rl.errors import QuorumError
from quorum_rl.files import replacing, require_file
from quorum_rl.logs.declared import METADATA_KEY, Declared, declared_from_json, declared_to_json
from quorum_rl.logs.demonstrations import Columns, Demonstrations, Episodes
from quorum_rl.logs.digest import DIGEST_KEY, check_columns, check_said, digests_of
from quorum_rl.logs.names import NAMES_KEY, names_from_json, names_to_json

COLUMNS = ("expert", "terminated", "truncated", "observations", "actions", "rewards")


def save_demonstrations(demonstrations: Demonstrations, path: str | Path) -> None:
    """Write demonstrations to `path`, readable by their owner only.

    The file appears under its name only when it is complete.

    Raises:
        QuorumError: if the file cannot be written.
    """
    whole = demonstrations.compacted()
    offsets = whole.transition_offsets
    columns = {
        "expert": pa.array(whole.episodes.expert, pa.int64()),
        "terminated": pa.array(whole.episodes.terminated),
        "truncated": pa.array(whole.episodes.truncated),
        "observations": _lists(
            offsets + np.arange(len(offsets)), _values(whole.columns.observations)
        ),
        "actions": _lists(offsets, _values(whole.columns.actions)),
        "rewards": _lists(offsets, pa.array(whole.columns.rewards)),
    }
    said = {
        METADATA_KEY: declared_to_json(whole.declared),
        NAMES_KEY: names_to_json(whole.expert_names),
    }
    batch = pa.record_batch(columns)
    batch = batch.replace_schema_metadata(said | {DIGEST_KEY: digests_of(said, whole)})
    with replacing(Path(path)) as temporary, pa.ipc.new_file(str(temporary), batch.schema) as file:
        file.write_batch(batch)


def open_demonstrations(path: str | Path, *, values: bool = True) -> Demonstrations:
    """Map a file of demonstrations into memory.

    What it says and where its episodes lie is compared with the digest that it carries. So are its
    `values` unless told otherwise, in one pass over the file that keeps nothing in memory.

    Raises:
        QuorumError: if the file is not there, is damaged, was changed or is not one that Quorum
            wrote.
    """
    require_file(path, "demonstrations")
    try:
        with pa.memory_map(str(path)) as source:
            reader = pa.ipc.open_file(source)
            metadata = dict(reader.schema.metadata or {})
            unknown = metadata.keys() - {METADATA_KEY, NAMES_KEY, DIGEST_KEY}
            if METADATA_KEY not in metadata or unknown or reader.num_record_batches != 1:
                raise _not_ours(path, "it has other contents")
            digests = metadata.pop(DIGEST_KEY, None)
            check_said(metadata, digests, path)
            assert digests is not None  # check_said raised otherwise
            batch = reader.get_batch(0)
        batch.validate()
        found = _demonstrations(batch, declared_from_json(metadata[METADATA_KEY]))
        check_columns(found, digests, values=values)
        named = names_from_json(metadata.get(NAMES_KEY, b"[]"))
        return replace(found, source=Path(path).resolve(), expert_names=named)
    except QuorumError as error:
        raise QuorumError(f"demonstrations {str(path)!r}: {error}") from error
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, AttributeError,
            OverflowError, RecursionError) as error:  # fmt: skip
        raise _not_ours(path, " ".join(str(error).split())) from error


def _demonstrations(batch: Any, declared: Declared) -> Demonstrations:
    expert, terminated, truncated, observations, actions, rewards = (
        batch.column(batch.schema.get_field_index(name)) for name in COLUMNS
    )
    first_state = observations.offsets.to_numpy()
    first_step = actions.offsets.to_numpy()
    lengths = np.diff(first_step)
    same = np.array_equal(first_step, rewards.offsets.to_numpy())
    if not (same and np.array_equal(np.diff(first_state), lengths + 1)):
        raise QuorumError("the file is damaged, its columns disagree: write it again.")
    return Demonstrations(
        declared,
        Columns(
            observations=_array(observations.values),
            actions=_array(actions.values),
            rewards=rewards.values.to_numpy(zero_copy_only=True),
        ),
        Episodes(
            expert=expert.to_numpy(),
            first_state=first_state[:-1],
            first_step=first_step[:-1],
            length=lengths,
            terminated=terminated.to_numpy(zero_copy_only=False).astype(np.bool_),
            truncated=truncated.to_numpy(zero_copy_only=False).astype(np.bool_),
        ),
    )


def _values(numbers: npt.NDArray[Any]) -> Any:
    """One number a step, or a row of them."""
    if numbers.ndim == 1:
        return pa.array(numbers)
    flat = pa.array(np.ascontiguousarray(numbers).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, numbers.shape[1])


def _array(values: Any) -> npt.NDArray[Any]:
    """What `_values` was made of, without a copy."""
    rows = pa.types.is_fixed_size_list(values.type)
    flat: npt.NDArray[Any] = (values.values if rows else values).to_numpy(zero_copy_only=True)
    return flat.reshape(-1, values.type.list_size) if rows else flat


def _lists(offsets: Any, values: Any) -> Any:
    return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), values)


def _not_ours(path: str | Path, why: str) -> QuorumError:
    return QuorumError(
        f"demonstrations {str(path)!r} cannot be opened ({why}): give a file that Quorum wrote, "
        "or import a table with 'quorum demos import' (in Python, read_table)."
    )
