"""A population on disk: safetensors, with what made it as JSON in the header.

Loading maps the file: a weight is read when it is used. Any safetensors reader opens these files.
"""

import json
import struct
from pathlib import Path
from typing import Any, Final

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
    header = json.loads(metadata[HEADER_KEY])
    if header["version"] != VERSION:
        raise QuorumError(
            f"experts {str(path)!r}: the file has format {header['version']}, this version of "
            f"Quorum reads {VERSION}."
        )
    layers = len(tensors) // 2
    mapped: Any = tensors  # NumPy arrays stand for JAX's wherever a network is used
    try:
        network: Network = tuple(
            Layer(mapped[f"layer_{n}.weight"], mapped[f"layer_{n}.bias"]) for n in range(layers)
        )
        return Population(
            observation_size=header["observation_size"],
            action_count=header["action_count"],
            p_min=header["p_min"],
            network=network,
            origin=header["origin"],
        )
    except KeyError as error:
        raise QuorumError(
            f"experts {str(path)!r}: the file lacks {error}: make it again."
        ) from error


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
    try:
        with Path(path).open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > Path(path).stat().st_size:
                raise ValueError("its header would be longer than the file")
            header = dict(json.loads(file.read(length)))
        metadata = header.pop("__metadata__", {})
        start = 8 + length
        tensors: Tensors = {}
        for name, about in header.items():
            first, last = about["data_offsets"]
            dtype, shape = np.dtype(DTYPES[about["dtype"]]), tuple(about["shape"])
            if last - first != dtype.itemsize * int(np.prod(shape, dtype=np.int64)):
                raise ValueError(f"tensor {name} has another size than its shape says")
            if first == last:
                tensors[name] = np.zeros(shape, dtype)
                continue
            tensors[name] = np.memmap(path, dtype, "r", offset=start + first, shape=shape)
    except (OSError, ValueError, KeyError, TypeError, struct.error) as error:
        raise QuorumError(
            f"{str(path)!r} is not a whole safetensors file ({error}): make it again."
        ) from error
    return tensors, metadata
