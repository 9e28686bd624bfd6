"""A population on disk: safetensors, with what made it as JSON in the header.

Loading maps the file: a weight is read when it is used. Any safetensors reader opens these files.
"""

import json
import math
import os
import reprlib
import secrets
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import jax
import ml_dtypes
import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import save_file

from quorum_rl.errors import QuorumError
from quorum_rl.experts.networks import Layer, Network
from quorum_rl.experts.population import Population
from quorum_rl.files import replacing

VERSION: Final = 1
HEADER_KEY: Final = "quorum_rl.population"
DTYPES: Final[dict[str, Any]] = {
    "F32": np.float32, "BF16": ml_dtypes.bfloat16, "I32": np.int32, "F64": np.float64,
    "I64": np.int64, "BOOL": np.bool_, "U32": np.uint32, "U64": np.uint64, "F16": np.float16,
    "I8": np.int8, "U8": np.uint8, "I16": np.int16, "U16": np.uint16,
}  # fmt: skip
WEIGHT_DTYPES: Final = {np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16)}

Tensors = dict[str, npt.NDArray[Any]]


def save_population(
    population: Population, path: str | Path, *, half_precision: bool = False
) -> Population:
    """Write a population, readable by its owner only, and return it as a reader will find it.

    With `half_precision` the weights are rounded to bfloat16. The rounded experts are other
    experts: collect with the returned ones, never with those that were rounded.

    Raises:
        QuorumError: if the file cannot be written.
    """
    dtype = ml_dtypes.bfloat16 if half_precision else np.float32
    tensors: Tensors = {}
    for number, layer in enumerate(population.network):
        tensors[f"layer_{number}.weight"] = np.asarray(layer.weight).astype(dtype)
        tensors[f"layer_{number}.bias"] = np.asarray(layer.bias).astype(dtype)
    header = {
        "version": VERSION,
        "observation_size": population.observation_size,
        "action_count": population.action_count,
        "p_min": population.p_min,
        "identity": secrets.token_hex(16) if half_precision else population.identity,
        "origin": dict(population.origin),
    }
    write_tensors(tensors, path, {HEADER_KEY: json.dumps(header)})
    return load_population(path)


def load_population(path: str | Path) -> Population:
    """Map a population's file into memory.

    Raises:
        QuorumError: if the file is not there, is damaged or is not one that Quorum wrote.
    """
    tensors, metadata = map_tensors(path)
    if HEADER_KEY not in metadata:
        raise QuorumError(f"experts {str(path)!r}: the file holds no population of experts.")
    with refusing_damage(f"{str(path)!r} is not a file of experts that Quorum wrote"):
        header = parsed_object(metadata[HEADER_KEY], "its description")
        if header["version"] != VERSION:
            raise QuorumError(
                f"experts {str(path)!r}: the file has format {reprlib.repr(header['version'])}, "
                f"this version of Quorum reads {VERSION}."
            )
        inputs = whole_number(header, "observation_size", least=1)
        actions = whole_number(header, "action_count", least=2)
        origin, identity = header["origin"], header.get("identity", "")
        if not isinstance(origin, dict):
            raise ValueError("its origin is not an object of names and values")
        if not isinstance(identity, str):
            raise ValueError("its identity is not a text")
        return Population(
            observation_size=inputs,
            action_count=actions,
            p_min=_floor(header["p_min"], actions),
            identity=identity,
            network=_network(tensors, inputs, actions),
            origin=origin,
        )


def _floor(p_min: Any, actions: int) -> float:
    if type(p_min) not in (int, float) or not 0 <= p_min <= 1 / actions:
        raise ValueError(f"its p_min is {reprlib.repr(p_min)}")
    return float(p_min)


def _network(tensors: Tensors, inputs: int, actions: int) -> Network:
    """The layers in `tensors`, which must lead from `inputs` to `actions` for the same experts.

    Nothing may broadcast: one bias for two experts would make two other experts.
    """
    layers = len(tensors) // 2
    names = {f"layer_{n}.{part}" for n in range(layers) for part in Layer._fields}
    if not layers or tensors.keys() != names:
        raise ValueError(f"its tensors are {reprlib.repr(sorted(tensors))}")
    dtypes = {tensor.dtype for tensor in tensors.values()}
    if len(dtypes) > 1 or not dtypes <= WEIGHT_DTYPES:
        raise ValueError("its weights are not all float32 or all bfloat16")
    experts = tensors["layer_0.bias"].shape[:1]
    width = inputs
    for number in range(layers):
        weight, bias = tensors[f"layer_{number}.weight"], tensors[f"layer_{number}.bias"]
        outputs = actions if number == layers - 1 else math.prod(bias.shape[1:])
        if weight.shape != (*experts, width, outputs) or bias.shape != (*experts, outputs):
            raise ValueError(
                f"layer {number} has a weight {weight.shape} and a bias {bias.shape} where "
                f"{width} numbers come in"
            )
        width = outputs
    if not experts[0]:
        raise ValueError("it holds no expert")
    mapped: Any = tensors  # NumPy arrays stand for JAX's wherever a network is used
    return tuple(
        Layer(mapped[f"layer_{n}.weight"], mapped[f"layer_{n}.bias"]) for n in range(layers)
    )


def numbered_leaves(tree: Any, prefix: str = "") -> Tensors:
    """The leaves of a tree as tensors, named by their number in it."""
    return {
        f"{prefix}{number}": np.asarray(leaf) for number, leaf in enumerate(jax.tree.leaves(tree))
    }


def write_tensors(tensors: Tensors, path: str | Path, metadata: dict[str, str]) -> None:
    """Write a safetensors file that appears under its name only when it is complete."""
    # The library writes memory as it lies: only row-major arrays come out right.
    in_rows = {name: np.asarray(tensor, order="C") for name, tensor in tensors.items()}
    with replacing(Path(path)) as temporary:
        try:
            save_file(in_rows, str(temporary), metadata=metadata)
        except SafetensorError as error:
            raise QuorumError(f"{str(path)!r} cannot be written: {error}.") from error


def map_tensors(path: str | Path) -> tuple[Tensors, dict[str, str]]:
    """The tensors of a safetensors file, mapped and not read, and its metadata.

    Raises:
        QuorumError: if the file is not there or is not a whole safetensors file.
    """
    if not Path(path).is_file():
        raise QuorumError(f"{str(path)!r}: there is no such file.")
    tensors: Tensors = {}
    with (
        refusing_damage(f"{str(path)!r} is not a whole safetensors file"),
        Path(path).open("rb") as file,
    ):
        size = os.fstat(file.fileno()).st_size
        (length,) = struct.unpack("<Q", file.read(8))
        start = 8 + length
        if start > size:
            raise ValueError("its header would be longer than the file")
        header = parsed_object(file.read(length), "its header")
        metadata = header.pop("__metadata__", {})
        if not isinstance(metadata, dict) or not all(
            isinstance(text, str) for text in metadata.values()
        ):
            raise ValueError("its metadata is not an object of texts")
        places = {name: _place(name, about) for name, about in header.items()}
        _check_tiling([(place.first, place.last) for place in places.values()], size - start)
        for name, (dtype, shape, first, last) in places.items():
            tensors[name] = (
                np.zeros(shape, dtype)  # what is empty cannot be mapped
                if first == last
                else np.memmap(file, dtype, "r", offset=start + first, shape=shape)
            )
    return tensors, metadata


class _Place(NamedTuple):
    """Where a tensor lies, in bytes after the header, and what it is."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    first: int
    last: int


def _place(name: str, about: Any) -> _Place:
    """What the header says about a tensor.

    Raises:
        ValueError: if that is not a known type, a shape, and as many bytes as they need.
    """
    if not isinstance(about, dict) or about["dtype"] not in DTYPES:
        raise ValueError(f"tensor {name!r} is of no known type")
    shape, offsets = about["shape"], about["data_offsets"]
    if not _are_whole(shape) or not _are_whole(offsets) or len(offsets) != 2:
        raise ValueError(f"tensor {name!r} has no shape or no place")
    dtype, (first, last) = np.dtype(DTYPES[about["dtype"]]), offsets
    if last - first != dtype.itemsize * math.prod(shape):
        raise ValueError(f"tensor {name!r} has another size than its shape says")
    return _Place(dtype, tuple(shape), first, last)


def _are_whole(numbers: Any) -> bool:
    return isinstance(numbers, list) and all(type(one) is int and one >= 0 for one in numbers)


def _check_tiling(places: list[tuple[int, int]], size: int) -> None:
    """Tensors must follow each other without a gap up to the end: else bytes mean two things."""
    end = 0
    for first, last in sorted(places):
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
        OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError, struct.error
    ) as error:  # fmt: skip
        reason = f"it lacks {error}" if isinstance(error, KeyError) else error
        raise QuorumError(f"{complaint} ({reason}): {fix}.") from error
