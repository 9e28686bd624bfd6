"""Files: asking for one that is there, and writing so that a reader never sees half of one."""

import errno
import fcntl
import importlib.util
import json
import os
import stat
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import Any, Final

from quorum_rl.errors import QuorumError

MEMORY: Final = "QUORUM_MEMORY_GIB"  # how much a table, or an ONNX model, may take in memory
MEMORY_GIB: Final = 4
UNFINISHED: Final = ".unfinished-"  # in the names of temporary files


def require_file(path: str | Path, what: str) -> None:
    """Fail unless there is a file; `what` is what it should hold.

    Raises:
        QuorumError: naming the path.
    """
    if Path(path).is_dir():
        raise QuorumError(f"{what} {str(path)!r}: this is a folder, give a file.")
    if not Path(path).is_file():
        raise QuorumError(f"{what} {str(path)!r}: there is no such file.")


def allowed(variable: str, usual: float, unit: str) -> float:
    """How much the user allows by an environment variable.

    Raises:
        QuorumError: if it holds no positive number.
    """
    text = os.environ.get(variable, str(usual))
    try:
        most = float(text)
    except ValueError:
        most = 0.0
    if not 0 < most < float("inf"):
        raise QuorumError(f"{variable} is {text!r}: give a number of {unit}.")
    return most


def check_memory(path: str | Path, needed: int) -> None:
    """Refuse a file that says it would take more memory than is allowed, before any is taken.

    Raises:
        QuorumError: naming the variable that allows more.
    """
    most = allowed(MEMORY, MEMORY_GIB, "GiB")
    if not needed <= most * 2**30:
        raise QuorumError(
            f"{str(path)!r} says that it holds {needed / 2**30:.1f} GiB, and {most:g} are taken at "
            f"most: if you trust it, allow more with the environment variable {MEMORY}, in GiB."
        )


def plain_bytes(path: Path) -> bytes:
    """The content of a plain file, which takes no more memory than is allowed.

    A pipe would keep its reader waiting, and a device has no end.

    Raises:
        OSError: if there is none, or it cannot be read.
        QuorumError: if it is too large.
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
        raise OSError(errno.EINVAL, "it is no plain file", str(path))
    check_memory(path, found.st_size)
    return path.read_bytes()


def read_file(path: Path, what: str) -> bytes:
    """The content of a file, which is the user's `what`.

    Raises:
        QuorumError: if it cannot be read.
    """
    try:
        return plain_bytes(path)
    except FileNotFoundError as error:
        raise QuorumError(f"there is no {what} at {str(path)!r}: give its file.") from error
    except OSError as error:
        raise QuorumError(f"the {what} {str(path)!r} cannot be read: {error.strerror}.") from error


def attribute_in_file(kind: str, name: str) -> Any:
    """What `path/to/file.py:NAME` means: the file is run, so only a user may name it; None if it
    has no such attribute.

    Raises:
        QuorumError: if there is no such file, or it cannot be run.
    """
    path, _, attribute = name.rpartition(":")
    if not Path(path).is_file():
        raise QuorumError(f"{kind} {name!r}: there is no file {path!r}.")
    spec = importlib.util.spec_from_file_location(f"own_{Path(path).stem}", path)
    if spec is None or spec.loader is None:
        raise QuorumError(f"{kind} {name!r}: {path!r} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for their module while it runs
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever a user's file raises
        raise QuorumError(
            f"{kind} {name!r}: {path!r} cannot be run ({type(error).__name__}: {error})."
        ) from error
    finally:
        del sys.modules[spec.name]  # so that other processes get its classes by value
    return getattr(module, attribute, None)


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """The tables of a TOML file, which is the user's `what`.

    Raises:
        QuorumError: if it cannot be read or is no TOML.
    """
    try:
        return tomllib.loads(plain_bytes(path).decode())
    except OSError as error:
        raise QuorumError(f"{what} {str(path)!r} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:  # of TOML, of UTF-8, of too long a number
        raise QuorumError(f"{what} {str(path)!r} is no valid TOML: {error}.") from error


def toml_text(text: str) -> str:
    """A text as a TOML file has it."""
    # JSON's texts are TOML's, but for one character.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file beside `path` that takes its name if the block succeeds, else vanishes.

    Guarantee: once the block has ended the file is on the disk under its name.

    Raises:
        QuorumError: if the file cannot be written there.
    """
    try:
        descriptor, temporary = _temporary_for(path)
    except OSError as error:
        raise QuorumError(f"{str(path)!r} cannot be written: {error.strerror}.") from error
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
        flush_folder(path.parent)
    except OSError as error:
        raise QuorumError(f"{str(path)!r} cannot be written: {error}.") from error
    finally:
        os.close(descriptor)
        temporary.unlink(missing_ok=True)


def flush_folder(folder: Path) -> None:
    """Have the names in a folder on the disk, as after a rename."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_unfinished(path: Path) -> None:
    """Remove the temporary files that processes which died while they wrote `path` left beside it.

    Who still writes holds a lock on its own, and that one stays.
    """
    for left in path.parent.glob(f".{escape(path.stem)}{UNFINISHED}*{escape(path.suffix)}"):
        with suppress(OSError), left.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left.unlink()


def _temporary_for(path: Path) -> tuple[int, Path]:
    """A new file beside `path`, for its owner only, and its descriptor, which holds a lock on it.

    Raises:
        OSError: if there can be none.
    """
    remove_unfinished(path)
    descriptor, name = tempfile.mkstemp(
        dir=path.parent, prefix=f".{path.stem}{UNFINISHED}", suffix=path.suffix
    )
    with suppress(OSError):  # a file system without locks: nobody removes anything there
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor, Path(name)


def write_json(path: Path, facts: Any) -> None:
    """Facts as an indented JSON file, in place of an earlier one.

    Raises:
        QuorumError: if it cannot be written.
    """
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(facts, indent=2) + "\n")


def create_file(path: Path, content: bytes, exists: str) -> None:
    """As `write_new`, for a file that the user asked for; `exists` is what to say of another one.

    Raises:
        QuorumError: if there is one of that name, or it cannot be written there.
    """
    try:
        write_new(path, content)
    except FileExistsError as error:
        raise QuorumError(exists) from error
    except OSError as error:
        raise QuorumError(f"{str(path)!r} cannot be written: {error.strerror}.") from error


def write_new(path: Path, content: bytes) -> None:
    """A new file with this content, for its owner only, on the disk and under its name.

    It appears whole or not at all, and never replaces another.

    Raises:
        FileExistsError: if there is one of that name.
        OSError: if it cannot be written there.
    """
    descriptor, temporary = _temporary_for(path)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            os.link(temporary, path)  # unlike a rename this never replaces
    finally:
        temporary.unlink(missing_ok=True)
    flush_folder(path.parent)
