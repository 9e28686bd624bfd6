"""Writing files so that a reader never sees half of one."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quorum_rl.errors import QuorumError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file beside `path` that takes its name if the block succeeds, else vanishes.

    Raises:
        QuorumError: if the file cannot be written there.
    """
    try:
        handle, name = tempfile.mkstemp(
            dir=path.parent, prefix=f".{path.stem}.", suffix=path.suffix
        )
    except OSError as error:
        raise QuorumError(f"{str(path)!r} cannot be written: {error.strerror}.") from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise QuorumError(f"{str(path)!r} cannot be written: {error}.") from error
    finally:
        temporary.unlink(missing_ok=True)
