"""Dense networks as data: a tuple of layers, for NumPy and JAX arrays alike.

Learners, policies and experts share this. How a room makes its networks, checks them or changes
their precision stays in that room. Nothing here imports JAX: a policy acts without it.

Stack the layers of many networks along a first axis and `vmap` to apply them all at once.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

Activation: TypeAlias = Callable[[Any], Any]


class Layer(NamedTuple):
    """One layer: NumPy or JAX arrays of one precision."""

    weight: Any  # (inputs, outputs)
    bias: Any  # (outputs,)


Network: TypeAlias = tuple[Layer, ...]


def apply(network: Network, inputs: Any, activation: Activation) -> Any:
    """The network's outputs; the last layer is linear.

    Shapes: `(…, inputs) -> (…, outputs)`.
    """
    last = network[-1]
    return apply_hidden(network, inputs, activation) @ last.weight + last.bias


def apply_hidden(network: Network, inputs: Any, activation: Activation) -> Any:
    """What the last layer sees.

    Shapes: `(…, inputs) -> (…, last hidden size)`.
    """
    hidden = inputs
    for layer in network[:-1]:
        hidden = activation(hidden @ layer.weight + layer.bias)
    return hidden


def widths(network: Network) -> tuple[int, ...]:
    """How many numbers come in, and how many leave each layer."""
    return (network[0].weight.shape[0], *(layer.bias.shape[0] for layer in network))
