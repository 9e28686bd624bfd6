"""Which NumPy arrays make a network of a policy, and its activation."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from quorum_rl.errors import QuorumError
from quorum_rl.nets import Layer, Network

Floats: TypeAlias = npt.NDArray[np.float32]


def relu(values: Any) -> Any:
    """The activation of every hidden layer, in float32."""
    return np.maximum(values, np.float32(0))


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
