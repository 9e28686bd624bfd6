"""Parquet files of anybody's: a small one may say that it holds more than all memory."""

from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from quorum_rl.files import check_memory

ROWS: Final = 1 << 16  # read together
WIDTH: Final = 8  # bytes of a number


def read_parquet(path: Path, *, verify: bool = False) -> Any:
    """The table in a Parquet file, whose pages' checksums are looked at if `verify`.

    Guarantee: takes no more memory than `files.check_memory` allows, and `ROWS` rows. The number of
    rows that a file declares is looked at before anything is read.

    Raises:
        QuorumError: if it holds more.
        ArrowInvalid, OSError: if it cannot be read.
    """
    try:
        return _read(path, verify=verify)
    except pa.ArrowException as error:  # of many kinds, some of several lines
        raise pa.ArrowInvalid(" ".join(str(error).split())) from error


def _read(path: Path, *, verify: bool) -> Any:
    with pq.ParquetFile(str(path), page_checksum_verification=verify) as file:
        check_memory(path, file.metadata.num_rows * file.metadata.num_columns * WIDTH)
        batches, taken = [], 0
        for batch in file.iter_batches(ROWS, use_threads=False):
            taken += batch.nbytes
            check_memory(path, taken)
            batches.append(batch)
        table = pa.Table.from_batches(batches, file.schema_arrow)
        if table.num_rows != file.metadata.num_rows:
            raise pa.ArrowInvalid("it has another number of rows than it says")
    return table
