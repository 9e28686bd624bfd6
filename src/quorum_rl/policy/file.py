"""A policy on disk: safetensors, with a JSON description in the header.

The description carries a checksum of itself and of the
weights, because a flipped bit in a weight would else be another policy.
"""

import json
import re
import reprlib
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from quorum_rl.errors import QuorumError
from quorum_rl.nets import Layer, Network
from quorum_rl.tensors import checksum, map_tensors, refusing_damage, write_tensors

FORMAT: Final = 2  # of policies that act by code; that of networks is 1
HEADER_KEY: Final = "quorum_rl.policy"
ACTIVATION: Final = "relu"

DIGEST: Final = re.compile("[0-9a-f]{64}")
DECISIONS: Final = ({"highest", "among_likely", "threshold"}, {"squashed"})  # finite, continuous

Floats: TypeAlias = npt.NDArray[np.float32]
Tensors: TypeAlias = dict[str, Floats]


def write_policy(
    path: str | Path, networks: Mapping[str, Network], description: dict[str, Any]
) -> None:
    """Write networks and what is said about them; the file appears only when it is complete.

    Raises:
        QuorumError: if it cannot be written.
    """
    tensors = {
        f"{name}.{number}.{part}": array
        for name, network in networks.items()
        for number, layer in enumerate(network)
        for part, array in layer._asdict().items()
    }
    _write(path, tensors, {"format": 1, "activation": ACTIVATION, **description})


def write_parameters(
    path: str | Path, parameters: Mapping[str, Floats], description: dict[str, Any]
) -> None:
    """The same for the parameters of a network of any kind.

    Raises:
        QuorumError: if it cannot be written.
    """
    shapes = {name: list(array.shape) for name, array in parameters.items()}
    _write(path, dict(parameters), {"format": FORMAT, "parameters": shapes, **description})


def _write(path: str | Path, tensors: Tensors, said: dict[str, Any]) -> None:
    said["sha256"] = checksum(said, tensors)
    write_tensors(tensors, path, {HEADER_KEY: json.dumps(said)})


def read_policy(path: str | Path) -> tuple[dict[str, Network], Tensors, dict[str, Any]]:
    """The networks of a policy's file, or the parameters of one that acts by code, and its
    description, of which only the form is checked.

    Raises:
        QuorumError: if the file is not there, holds no policy, is damaged or of a newer format.
    """
    complaint = f"policy {str(path)!r} is damaged or not one that Quorum wrote"
    mapped, metadata = map_tensors(path, "policy", complaint, "get it anew")
    if HEADER_KEY not in metadata:
        raise QuorumError(
            f"policy {str(path)!r}: the file holds no policy: give the policy.safetensors of a "
            "finished run."
        )
    with refusing_damage(complaint, fix="get it anew"):
        said = _description(path, metadata[HEADER_KEY])
        tensors = {name: _tensor(name, tensor) for name, tensor in mapped.items()}
        networks = _networks(said, tensors) if said["format"] == 1 else {}
        shapes = {name: list(tensor.shape) for name, tensor in tensors.items()}
        if not networks and said["parameters"] != shapes:
            raise ValueError("its parameters have other shapes than are announced")
        if said["sha256"] != checksum(said, tensors):
            raise ValueError("its checksum is that of another policy")
    return networks, {} if networks else tensors, said


def _description(path: str | Path, text: str) -> dict[str, Any]:
    said = json.loads(text)
    if not isinstance(said, dict) or type(said["format"]) is not int or said["format"] < 1:
        raise ValueError("its description is not one of a policy")
    if said["format"] > FORMAT:
        raise QuorumError(
            f"policy {str(path)!r} has format {reprlib.repr(said['format'])} and this version of "
            f"Quorum reads up to {FORMAT}: install a newer one with pip install -U quorum-rl."
        )
    if said["format"] == FORMAT:
        _check_code(said["code"])
        return said
    decision = said["decision"]
    if not isinstance(decision, dict) or set(decision) not in DECISIONS:
        raise ValueError("it does not say how it decides")
    if said["activation"] != ACTIVATION:
        raise ValueError(f"its activation is {reprlib.repr(said['activation'])}")
    return said


def _check_code(said: Any) -> None:
    """Fail unless this is what a file says of the code that its policy acts by."""
    sizes = said["sizes"]
    if not (
        set(said) == {"sha256", "settings", "sizes"}
        and DIGEST.fullmatch(said["sha256"])
        and isinstance(said["settings"], dict)
        and isinstance(sizes, list)
        and len(sizes) == 2
        and all(type(size) is int and size >= 1 for size in sizes)
    ):
        raise ValueError("it does not say by which code it acts")


def _tensor(name: str, mapped: npt.NDArray[Any]) -> Floats:
    """A tensor in memory: the file may go away."""
    if mapped.dtype != np.float32:
        raise ValueError(f"tensor {reprlib.repr(name)} is of type {mapped.dtype} and not float32")
    return np.array(mapped)


def _networks(said: dict[str, Any], tensors: Tensors) -> dict[str, Network]:
    """The networks that the description announces.

    Raises:
        KeyError, TypeError, ValueError: if the tensors are others.
    """
    networks: dict[str, Network] = {}
    expected = 0
    for name, sizes in said["networks"].items():
        layers = []
        for number, (inputs, outputs) in enumerate(pairwise(sizes)):
            layer = Layer(*(tensors[f"{name}.{number}.{part}"] for part in Layer._fields))
            if layer.weight.shape != (inputs, outputs) or layer.bias.shape != (outputs,):
                raise ValueError(
                    f"layer {number} of {name} has a weight {layer.weight.shape} and a bias "
                    f"{layer.bias.shape} where ({inputs}, {outputs}) is announced"
                )
            layers.append(layer)
            expected += len(layer)
        networks[name] = tuple(layers)
    if expected != len(tensors):
        raise ValueError(f"it holds {len(tensors)} tensors where {expected} are announced")
    return networks
