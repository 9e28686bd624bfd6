"""Safetensors files: written whole or not at all, and checked before anything is read.

Any safetensors reader opens what is written here.
"""

import hashlib
import json
import math
import os
import reprlib
import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import save_file

from quorum_rl.errors import QuorumError
from quorum_rl.files import replacing, require_file

DTYPES: Final = {
    "F32": "float32", "BF16": "bfloat16", "I32": "int32", "F64": "float64", "I64": "int64",
    "BOOL": "bool", "U32": "uint32", "U64": "uint64", "F16": "float16", "I8": "int8",
    "U8": "uint8", "I16": "int16", "U16": "uint16",
}  # fmt: skip

MOST_HEADER: Final = 100_000_000  # bytes: as the format's own library has it

Tensors = dict[str, npt.NDArray[Any]]


def numbered_leaves(leaves: Iterable[Any], prefix: str = "") -> Tensors:
    """The leaves of a tree as tensors, named by their number in it."""
    return {f"{prefix}{number}": np.asarray(leaf) for number, leaf in enumerate(leaves)}


def write_tensors(tensors: Tensors, path: str | Path, metadata: dict[str, str]) -> None:
    """Write a safetensors file that appears under its name only when it is complete.

    Raises:
        QuorumError: if it cannot be written.
    """
    # The library writes memory as it lies: only row-major arrays come out right.
    in_rows = {name: np.asarray(tensor, order="C") for name, tensor in tensors.items()}
    with replacing(Path(path)) as temporary:
        try:
            save_file(in_rows, str(temporary), metadata=metadata)
        except SafetensorError as error:
            raise QuorumError(f"{str(path)!r} cannot be written: {error}.") from error


def map_tensors(
    path: str | Path, what: str = "file", complaint: str = "", fix: str = "make it again"
) -> tuple[Tensors, dict[str, str]]:
    """The tensors of a safetensors file, mapped and not read, and its metadata.

    `what` the file should hold, the `complaint` about a damaged one and its `fix` are for messages.

    Raises:
        QuorumError: if the file is not there or is not a whole safetensors file.
    """
    require_file(path, what)
    complaint = complaint or f"{str(path)!r} is not a whole safetensors file"
    with refusing_damage(complaint, fix=fix), Path(path).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        (length,) = struct.unpack("<Q", file.read(8))
        start = 8 + length
        if start > size:
            raise ValueError("its header would be longer than the file")
        if length > MOST_HEADER:
            raise ValueError(f"its header would have {length:,} bytes, the most is {MOST_HEADER:,}")
        header = parsed_object(file.read(length), "its header")
        metadata = header.pop("__metadata__", {})
        if not isinstance(metadata, dict) or not all(
            isinstance(text, str) for text in metadata.values()
        ):
            raise ValueError("its metadata is not an object of texts")
        places = {name: _place(name, about) for name, about in header.items()}
        _check_tiling(places.values(), size - start)
        tensors: Tensors = {
            name: np.zeros(shape, dtype)  # what is empty cannot be mapped
            if first == last
            else np.memmap(file, dtype, "r", offset=start + first, shape=shape)
            for name, (dtype, shape, first, last) in places.items()
        }
    return tensors, metadata


def checksum(said: dict[str, Any], tensors: Tensors) -> str:
    """A digest of what is said about tensors, apart from the digest itself, and of their bytes."""
    facts = {name: fact for name, fact in said.items() if name != "sha256"}
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(np.ascontiguousarray(tensors[name]).reshape(-1).view(np.uint8))
    return digest.hexdigest()


class _Extent(NamedTuple):
    """Where a tensor lies, in bytes after the header, and what it is."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    first: int
    last: int


def _place(name: str, about: Any) -> _Extent:
    """What the header says about a tensor.

    Raises:
        ValueError: if that is not a known type, a shape, and as many bytes as they need.
    """
    if not isinstance(about, dict) or about["dtype"] not in DTYPES:
        raise ValueError(f"tensor {name!r} is of no known type")
    shape, offsets = about["shape"], about["data_offsets"]
    if not _are_whole(shape) or not _are_whole(offsets) or len(offsets) != 2:
        raise ValueError(f"tensor {name!r} has no shape or no place")
    if about["dtype"] == "BF16":
        import ml_dtypes  # noqa: F401 - makes the type known to NumPy; a policy needs it not
    dtype, (first, last) = np.dtype(DTYPES[about["dtype"]]), offsets
    if last - first != dtype.itemsize * math.prod(shape):
        raise ValueError(f"tensor {name!r} has another size than its shape says")
    return _Extent(dtype, tuple(shape), first, last)


def _are_whole(numbers: Any) -> bool:
    return isinstance(numbers, list) and all(
        type(number) is int and number >= 0 for number in numbers
    )


def _check_tiling(places: Iterable[_Extent], size: int) -> None:
    """Tensors must follow each other without a gap up to the end: else bytes mean two things."""
    end = 0
    for first, last in sorted((place.first, place.last) for place in places):
        if first != end:
            raise ValueError(f"its tensors overlap or leave a gap at byte {end} of its data")
        end = last
    if end != size:
        raise ValueError(f"its tensors take {end} bytes, but it holds {size}")


def parsed_object(text: str | bytes, what: str) -> dict[str, Any]:
    """The JSON object in `text`.

    Raises:
        ValueError: if there is none.
    """
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError(f"{what} is no JSON object")
    return found


def whole_number(header: dict[str, Any], name: str, *, least: int = 0) -> int:
    """The number under `name` in a file's header.

    Raises:
        KeyError, ValueError: if there is none, or it is below `least`.
    """
    number = header[name]
    if type(number) is not int or number < least:
        raise ValueError(f"its {name} is {reprlib.repr(number)}")
    return number


@contextmanager
def refusing_damage(complaint: str, *, fix: str = "make it again") -> Iterator[None]:
    """Say `complaint`, the reason and the fix when what a file holds makes no sense.

    Raises:
        QuorumError: instead of whatever parsing foreign bytes can raise.
    """
    try:
        yield
    except QuorumError:
        raise
    except (
        OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError,
        EOFError, NotImplementedError, BadZipFile, struct.error, zlib.error,
    ) as error:  # fmt: skip
        reason = f"it lacks {error}" if isinstance(error, KeyError) else error
        raise QuorumError(f"{complaint} ({reason}): {fix}.") from error
