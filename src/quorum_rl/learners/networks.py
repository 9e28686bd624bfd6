"""Plain ReLU perceptrons as data."""

import math
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

Array: TypeAlias = jax.Array


class Layer(NamedTuple):
    weight: Array  # (inputs, outputs)
    bias: Array  # (outputs,)


Network: TypeAlias = tuple[Layer, ...]


def new_network(key: Array, sizes: tuple[int, ...]) -> Network:
    """Random layers from `sizes[0]` inputs to `sizes[-1]` outputs.

    Weights and biases are uniform in ±1/√inputs, as in the code the published results of CQL and
    BCQ come from (PyTorch's default for a linear layer).
    """
    keys = jax.random.split(key, (len(sizes) - 1, 2))
    return tuple(
        Layer(
            _uniform(weight_key, (inputs, outputs), inputs),
            _uniform(bias_key, (outputs,), inputs),
        )
        for (weight_key, bias_key), inputs, outputs in zip(keys, sizes, sizes[1:], strict=False)
    )


def _uniform(key: Array, shape: tuple[int, ...], inputs: int) -> Array:
    bound = 1 / math.sqrt(inputs)
    return jax.random.uniform(key, shape, jnp.float32, -bound, bound)


def apply_network(network: Network, inputs: Array) -> Array:
    """The network's outputs.

    Shapes: `(…, inputs) -> (…, outputs)`.
    """
    last = network[-1]
    return apply_hidden(network, inputs) @ last.weight + last.bias


def apply_hidden(network: Network, inputs: Array) -> Array:
    """What the last layer sees.

    Shapes: `(…, inputs) -> (…, last hidden size)`.
    """
    hidden = inputs
    for layer in network[:-1]:
        hidden = jax.nn.relu(hidden @ layer.weight + layer.bias)
    return hidden
