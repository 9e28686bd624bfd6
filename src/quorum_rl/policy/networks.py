"""Dense ReLU networks as NumPy data: what they compute, and which arrays make one."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from quorum_rl.errors import QuorumError

Floats: TypeAlias = npt.NDArray[np.float32]


class Layer(NamedTuple):
    weight: Floats  # (inputs, outputs)
    bias: Floats  # (outputs,)


Network: TypeAlias = tuple[Layer, ...]


def apply_network(network: Network, inputs: Floats) -> Floats:
    """The network's outputs.

    Shapes: `(…, inputs) -> (…, outputs)`.
    """
    hidden = inputs
    for layer in network[:-1]:
        hidden = np.maximum(hidden @ layer.weight + layer.bias, np.float32(0))
    last = network[-1]
    made: Floats = hidden @ last.weight + last.bias
    return made


def widths(network: Network) -> tuple[int, ...]:
    """How many numbers come in, and how many leave each layer."""
    return (network[0].weight.shape[0], *(layer.bias.shape[0] for layer in network))


def checked_network(name: str, layers: Sequence[Any]) -> Network:
    """The layers as float32 arrays of their own that nobody can change.

    Raises:
        QuorumError: if they do not follow each other, or a number is not finite.
    """
    if not layers:
        raise QuorumError(f"network {name!r} has no layers: give at least one.")
    network = tuple(Layer(_fixed(weight), _fixed(bias)) for weight, bias in layers)
    width = network[0].weight.shape[:1]
    for number, (weight, bias) in enumerate(network):
        if weight.ndim != 2 or weight.size == 0 or (*width, *bias.shape) != weight.shape:
            raise QuorumError(
                f"layer {number} of network {name!r} has a weight {weight.shape} and a bias "
                f"{bias.shape}: give (inputs, outputs) and (outputs,), with as many inputs as the "
                "layer before has outputs."
            )
        if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
            raise QuorumError(
                f"layer {number} of network {name!r} has a number that is not finite, so the "
                "training diverged: train again with a smaller learning rate."
            )
        width = bias.shape
    return network


def _fixed(numbers: Any) -> Floats:
    with np.errstate(over="ignore"):  # what float32 cannot hold is refused as not finite
        made = np.array(numbers, np.float32, order="C")
    made.flags.writeable = False
    return made
