"""A population on disk: safetensors, with what made it as JSON in the header.

Loading maps the file: a weight is read when it is used.
"""

import json
import math
import reprlib
import secrets
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np

from quorum_rl.dictionary import Bounds
from quorum_rl.errors import QuorumError
from quorum_rl.experts.networks import Layer, Network
from quorum_rl.experts.population import Population
from quorum_rl.tensors import (
    Tensors,
    checksum,
    map_tensors,
    parsed_object,
    refusing_damage,
    whole_number,
    write_tensors,
)

VERSION: Final = 1
HEADER_KEY: Final = "quorum_rl.population"
KNOWN: Final = {
    "version", "observation_size", "action_count", "action_bounds", "p_min", "identity", "origin",
    "sha256",
}  # fmt: skip
WEIGHT_DTYPES: Final = {np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16)}


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
    if population.action_bounds:
        header["action_bounds"] = population.action_bounds
    header["sha256"] = _checksum(header, tensors)
    write_tensors(tensors, path, {HEADER_KEY: json.dumps(header)})
    return load_population(path)


def load_population(path: str | Path) -> Population:
    """Map a population's file into memory.

    Raises:
        QuorumError: if the file is not there, is damaged or is not one that Quorum wrote.
    """
    tensors, metadata = map_tensors(path, "experts")
    if HEADER_KEY not in metadata:
        raise QuorumError(f"experts {str(path)!r}: the file holds no population of experts.")
    with refusing_damage(f"{str(path)!r} is not a file of experts that Quorum wrote"):
        header = parsed_object(metadata[HEADER_KEY], "its description")
        if header["version"] != VERSION:
            raise QuorumError(
                f"experts {str(path)!r}: the file has format {reprlib.repr(header['version'])}, "
                f"this version of Quorum reads {VERSION}."
            )
        if unknown := header.keys() - KNOWN:
            raise ValueError(f"its description has {reprlib.repr(sorted(unknown)[0])} besides")
        inputs = whole_number(header, "observation_size", least=1)
        bounds = _bounds(header)
        actions = whole_number(header, "action_count", least=1 if bounds else 2)
        origin, identity = header["origin"], header["identity"]
        if not isinstance(origin, dict):
            raise ValueError("its origin is not an object of names and values")
        if not isinstance(identity, str):
            raise ValueError("its identity is not a text")
        if header["sha256"] != _checksum(header, tensors):
            raise ValueError("it was changed after it was written, by the digest that it carries")
        return Population(
            observation_size=inputs,
            action_count=actions,
            action_bounds=bounds,
            p_min=_floor(header["p_min"], actions),
            identity=identity,
            network=_network(tensors, inputs, 2 * actions if bounds else actions),
            origin=origin,
        )


def _checksum(header: dict[str, Any], tensors: Tensors) -> str:
    kinds = {name: [str(tensor.dtype), *tensor.shape] for name, tensor in tensors.items()}
    return checksum(header | {"tensors": kinds}, tensors)


def _floor(p_min: Any, actions: int) -> float:
    if type(p_min) not in (int, float) or not 0 <= p_min <= 1 / actions:
        raise ValueError(f"its p_min is {reprlib.repr(p_min)}")
    return float(p_min)


def _bounds(header: dict[str, Any]) -> Bounds:
    """Of continuous actions, where there are any.

    Raises:
        TypeError, ValueError: if they are no bounds of as many numbers as an action has.
    """
    if "action_bounds" not in header:
        return ()
    bounds = tuple((float(low), float(high)) for low, high in header["action_bounds"])
    if not bounds or not all(-math.inf < low < high < math.inf for low, high in bounds):
        raise ValueError(f"its actions have the bounds {reprlib.repr(bounds)}")
    if len(bounds) != header["action_count"]:
        raise ValueError(f"it has bounds for {len(bounds)} numbers of an action")
    return bounds


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
