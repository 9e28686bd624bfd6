"""Plain ReLU perceptrons as data, and taps into them: what enters and what is wrong at each layer.

All that is trained lies in dense layers. The gradient of one transition's loss with respect to a
layer is therefore fixed by two vectors, the layer's input h and the error e = ∂loss/∂(h W + b):

    ∂loss/∂W = h eᵀ,    ∂loss/∂b = e,    squared norm = (‖h‖² + 1) ‖e‖².

So a private step can know every norm, and sum clipped gradients, without ever holding a gradient
per expert.
"""

import math
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

Array: TypeAlias = jax.Array


class Layer(NamedTuple):
    weight: Array  # (inputs, outputs)
    bias: Array  # (outputs,)


class LayerTrace(NamedTuple):
    """What one transition leaves behind in one layer: enough for its gradient there."""

    inputs: Array  # (inputs,)
    errors: Array  # (outputs,), the gradient with respect to what the layer computes


Network: TypeAlias = tuple[Layer, ...]
Taps: TypeAlias = tuple[Array, ...]  # one for each layer, of the shape that it puts out


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
    hidden = inputs
    for layer in network[:-1]:
        hidden = jax.nn.relu(hidden @ layer.weight + layer.bias)
    last = network[-1]
    return hidden @ last.weight + last.bias


def zero_taps(network: Network) -> Taps:
    """Taps that change nothing: the gradient with respect to them is each layer's error."""
    return tuple(jnp.zeros_like(layer.bias) for layer in network)


def apply_with_taps(network: Network, inputs: Array, taps: Taps) -> tuple[Array, tuple[Array, ...]]:
    """The network's outputs with a tap added to each layer's, and the inputs each layer saw.

    Shapes: one un-batched input, `(inputs,) -> (outputs,)`; use `vmap` for many.
    """
    seen = []
    hidden = inputs
    for layer, tap in zip(network[:-1], taps[:-1], strict=True):
        seen.append(hidden)
        hidden = jax.nn.relu(hidden @ layer.weight + layer.bias + tap)
    last = network[-1]
    return hidden @ last.weight + last.bias + taps[-1], (*seen, hidden)


def gradient_of(traces: tuple[LayerTrace, ...]) -> Network:
    """The gradient of one transition, from what it left behind in each layer."""
    return tuple(Layer(jnp.outer(inputs, errors), errors) for inputs, errors in traces)
