"""The networks of experts: how they start, their precision, and what they answer."""

import math
from typing import TypeAlias

import jax
import jax.numpy as jnp

from quorum_rl.nets import Layer as Layer, Network as Network, apply

Array: TypeAlias = jax.Array


def new_network(key: Array, sizes: tuple[int, ...], last_gain: float) -> Network:
    """Random layers from `sizes[0]` inputs to `sizes[-1]` outputs, biases zero.

    Weights are Gaussian with the scale of orthogonal ones (gain √2, `last_gain` for the last
    layer): on these nets they train as well, and thousands of QR decompositions are saved.
    """
    keys = jax.random.split(key, len(sizes) - 1)
    gains = [math.sqrt(2)] * (len(sizes) - 2) + [last_gain]
    return tuple(
        Layer(
            gain / math.sqrt(inputs) * jax.random.normal(layer_key, (inputs, outputs), jnp.float32),
            jnp.zeros(outputs, jnp.float32),
        )
        for layer_key, gain, inputs, outputs in zip(keys, gains, sizes, sizes[1:], strict=False)
    )


def in_precision(network: Network, dtype: jnp.dtype) -> Network:
    """The network with weights and biases of another precision."""
    return tuple(Layer(weight.astype(dtype), bias.astype(dtype)) for weight, bias in network)


def apply_network(network: Network, inputs: Array) -> Array:
    """The network's outputs in float32; products are made in the precision of its weights.

    Shapes: `(…, inputs) -> (…, outputs)`.
    """
    exact = inputs.astype(network[0].weight.dtype)
    outputs: Array = apply(network, exact, jnp.tanh).astype(jnp.float32)
    return outputs


def folded(network: Network, mean: Array, deviation: Array) -> Network:
    """The network that sees raw inputs as `network` sees (inputs − mean)/deviation."""
    first, *rest = network
    weight = first.weight / deviation[:, None]
    return (Layer(weight, first.bias - mean @ weight), *rest)
