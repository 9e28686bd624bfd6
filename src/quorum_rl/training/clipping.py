"""Sums of gradients in which every expert counts at most `clip_norm`: what the noise hides.

The gradient of an expert is the mean over k of its transitions, clipped once. With dense networks
nothing is computed per expert that a plain gradient would not need, except norms: a layer's
gradient is G = Σ_j h_j e_jᵀ / k (inputs h, errors e; the bias is one more input, always 1), so

    ‖G‖² = Σ_ij (h_i·h_j) (e_i·e_j) / k²,    for k = 1 simply ‖h‖² ‖e‖²,

and the clipped sum is one product of all inputs with all errors, weighted by expert. For 64 experts
of 16 transitions and a layer (256, 256), two CPU cores take 0.3 ms for the k × k products and 0.8
for the sum, but 1.9 for the gradients of each expert alone, which are then still to be measured
and summed; with 4 transitions each, the whole took six times as long with them. Even for the thin
first and last layers gradients of each expert were no faster (0.4 ms against 0.3).

Everything is scaled first, each expert by itself: inputs and errors lie within ±1, and factors are
put back at the end. So squares neither overflow nor vanish, however extreme the data.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from quorum_rl.learners import DenseLearner, Learner
from quorum_rl.learners.networks import Layer, LayerTrace
from quorum_rl.types import Transition

Array = jax.Array

# Gradients are clipped a little below the norm asked for: room for the rounding of float32 in the
# norm, in the sum and in the noise's scale.
ROUNDING = 1e-6
# A sum of k products may cancel, and its rounding does not. Such norms count as larger by this
# share of what they would be without cancelling, so that what rounding leaves is clipped too.
CANCELLING = 1e-6


def clipped_sum(
    learner: Learner,
    params: Any,
    target: Any,
    transitions: Transition,
    present: Array,
    keys: Array,
    clip_norm: Array | float,
    normalised: Array | bool = False,
) -> Any:
    """The sum over the experts present of their mean gradients, each clipped to `clip_norm`.

    With `normalised`, every gradient but zero is scaled to that norm, also a smaller one (De et
    al. 2022).

    Guarantee: an expert changes the sum by at most `clip_norm`, whatever its transitions hold. A
    gradient that float32 cannot hold (infinite or no number anywhere) counts as zero. Other
    experts' shares do not depend on it, but for the rounding of the sum.

    Shapes: the fields of `transitions` (b, k, …), `present` (b,), `keys` (b, k); `clip_norm` and
    `normalised` may be traced. The sum as `params`.
    """
    rest = (params, target, transitions, present, keys, clip_norm, normalised)
    if isinstance(learner, DenseLearner):
        return _clipped_by_traces(learner, *rest)
    return clipped_by_gradients(learner, *rest)


def clipped_by_gradients(
    learner: Learner,
    params: Any,
    target: Any,
    transitions: Transition,
    present: Array,
    keys: Array,
    clip_norm: Array | float,
    normalised: Array | bool = False,
) -> Any:
    """`clipped_sum` for any learner, by holding the gradient of every expert at once."""

    def mean_loss(params: Any, of_expert: Transition, keys: Array) -> Array:
        return jax.vmap(learner.loss, (None, None, 0, 0))(params, target, of_expert, keys).mean()

    gradients = jax.vmap(jax.grad(mean_loss), (None, 0, 0))(params, transitions, keys)
    leaves, structure = jax.tree.flatten(gradients)
    scale = jnp.stack([_largest(leaf) for leaf in leaves]).max(axis=0)
    sound = present & jnp.isfinite(scale)
    scale = jnp.where(sound, scale, 0)
    leaves = [_scaled(leaf, sound, scale) for leaf in leaves]
    squares = sum(jnp.square(leaf).reshape(len(leaf), -1).sum(axis=1) for leaf in leaves)
    weights = _weights(scale, jnp.asarray(squares), clip_norm, normalised)
    return jax.tree.unflatten(structure, [_weighted_sum(weights, leaf) for leaf in leaves])


def _clipped_by_traces(
    learner: DenseLearner,
    params: Any,
    target: Any,
    transitions: Transition,
    present: Array,
    keys: Array,
    clip_norm: Array | float,
    normalised: Array | bool,
) -> Any:
    experts, per_expert = keys.shape
    rows = jax.tree.map(lambda field: field.reshape(-1, *field.shape[2:]), transitions)
    traced = jax.vmap(learner.loss_and_traces, (None, None, 0, 0))
    _, traces = traced(params, target, rows, keys.reshape(-1))
    traces = jax.tree.map(lambda field: field.reshape(experts, per_expert, -1), traces)
    layers, structure = jax.tree.flatten(traces, is_leaf=lambda x: isinstance(x, LayerTrace))

    sound = present
    for layer in layers:
        sound &= jnp.isfinite(_largest(layer.inputs)) & jnp.isfinite(_scale(layer))
    scale = jnp.where(sound, jnp.stack([_scale(layer) for layer in layers]).max(axis=0), 0)
    shares = [jnp.where(sound, _scale(layer), 0) / _or_one(scale) for layer in layers]
    scaled = [_scaled_layer(layer, sound) for layer in layers]
    squares = jnp.stack(
        [share**2 * layer.squared_norms() for share, layer in zip(shares, scaled, strict=True)]
    ).sum(axis=0)
    weights = _weights(scale, squares, clip_norm, normalised)
    sums = [layer.sum(share * weights) for share, layer in zip(shares, scaled, strict=True)]
    return jax.tree.unflatten(structure, sums)


class _Factors(NamedTuple):
    """The gradients of a layer as what they are products of."""

    inputs: Array  # (b, k, inputs)
    one: Array  # (b,), the input of the bias
    errors: Array  # (b, k, outputs)

    def squared_norms(self) -> Array:
        if self.inputs.shape[1] == 1:
            inputs = jnp.square(self.inputs).sum(axis=(1, 2)) + jnp.square(self.one)
            return inputs * jnp.square(self.errors).sum(axis=(1, 2))
        inputs = _einsum("bki,bli->bkl", self.inputs, self.inputs)
        inputs += jnp.square(self.one)[:, None, None]
        errors = _einsum("bko,blo->bkl", self.errors, self.errors)
        products = inputs * errors
        uncancelled = jnp.sqrt(jnp.diagonal(products, axis1=1, axis2=2)).sum(axis=1)
        return products.sum(axis=(1, 2)).clip(0) + CANCELLING * jnp.square(uncancelled)

    def sum(self, weights: Array) -> Layer:
        weighted = weights[:, None, None] * self.errors
        return Layer(
            _einsum("bki,bko->io", self.inputs, weighted), _weighted_sum(self.one, weighted.sum(1))
        )


def _scaled_layer(layer: LayerTrace, sound: Array) -> _Factors:
    """The layer's gradients, for one expert k / `_scale` times their mean: inputs and errors of ±1.

    An expert that is not sound gets zeros, because zero times infinity is no number.
    """
    inputs = _scaled(layer.inputs, sound, _input_scale(layer))
    one = 1 / jnp.where(sound, _input_scale(layer), 1)
    errors = _scaled(layer.errors, sound, _largest(layer.errors))
    return _Factors(inputs, one, errors)


def _scale(layer: LayerTrace) -> Array:
    """What `_scaled_layer` divides each expert's mean gradient by."""
    return _input_scale(layer) * _largest(layer.errors) / layer.errors.shape[1]


def _input_scale(layer: LayerTrace) -> Array:
    return jnp.maximum(_largest(layer.inputs), 1)  # the bias has an input of one


def _weights(
    scale: Array, squared_norms: Array, clip_norm: Array | float, normalised: Array | bool
) -> Array:
    """What to multiply each expert's scaled gradient by so that it counts as it should.

    A gradient is `scale` times a scaled one of that squared norm. All shapes (b,).
    """
    clipped = clip_norm * (1 - ROUNDING) / jnp.sqrt(_or_one(squared_norms))
    weights = jnp.where(normalised, clipped, jnp.minimum(scale, clipped))
    return jnp.where(squared_norms > 0, weights, 0)


def _scaled(values: Array, sound: Array, scale: Array) -> Array:
    """Each expert's values divided by its scale, or zeros. Shapes: `values` (b, …), others (b,)."""
    shape = (len(values),) + (1,) * (values.ndim - 1)
    safe = jnp.where(sound, _or_one(scale), 1).reshape(shape)
    return jnp.where(sound.reshape(shape), values / safe, 0)


def _largest(values: Array) -> Array:
    """The largest absolute value of each expert; no number if one is none. (b, …) -> (b,)."""
    return jnp.abs(values).reshape(len(values), -1).max(axis=1)


def _or_one(values: Array) -> Array:
    return jnp.where(values > 0, values, 1)


def _weighted_sum(weights: Array, values: Array) -> Array:
    return _einsum("b,b...->...", weights, values)


def _einsum(subscripts: str, *operands: Array) -> Array:
    # In full float32: accelerators round factors to 11 bits unless told not to.
    return jnp.einsum(subscripts, *operands, precision=jax.lax.Precision.HIGHEST)
