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

What is summed is scaled first, each expert by itself, to inputs and errors of norm 2 at most, so
nothing overflows on the way. An expert whose inputs or errors have squares that float32 cannot hold
(a norm above 1.8e19) counts as zero; what squares lose because they are too small for float32 is
added to the norm, so no gradient is taken for smaller than it is.
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
# A sum of k products may cancel, and its rounding does not, nor that within each product. Such
# norms count as larger by a share of what they would be without cancelling, so that what rounding
# leaves is clipped too. A product of n terms is summed in four parts at least: n/4 roundings in a
# row.
CANCELLING = 1e-6
ROUNDING_OF_A_TERM = 2.0**-24 / 4
# Squares below the smallest float32 may vanish, each by itself. So that what is left is not taken
# for the whole, norms count as larger by all that may be lost, and squares of scaled gradients by
# a number that such losses are nothing beside.
SMALLEST = 2.0**-126
VANISHING = 1e-26


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
    gradient that float32 cannot hold (infinite or no number anywhere, or made of inputs or errors
    above 1.8e19) counts as zero. Other experts' shares do not depend on it, but for the rounding
    of the sum.

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

    factors = [_Factors(layer.inputs, layer.errors) for layer in layers]
    norms = [one.norms() for one in factors]
    scales = jnp.stack([norm.inputs * norm.errors / per_expert for norm in norms])
    sound = present & jnp.isfinite(scales).all(axis=0)
    scales = jnp.where(sound, scales, 0)
    scale = scales.max(axis=0)
    shares = scales / _or_one(scale)
    squares = jnp.stack(
        [share**2 * norm.squares for share, norm in zip(shares, norms, strict=True)]
    ).sum(axis=0)
    weights = _weights(scale, jnp.where(sound, squares, 0), clip_norm, normalised)
    sums = [
        one.sum(norm, share * weights, sound)
        for one, norm, share in zip(factors, norms, shares, strict=True)
    ]
    return jax.tree.unflatten(structure, sums)


class _Norms(NamedTuple):
    """How large each expert's gradients of a layer are. All shapes (b,).

    The mean gradient is `inputs` · `errors` / k times one whose squared norm is `squares`. The
    first two are powers of two, by which one can divide without rounding.
    """

    inputs: Array  # at most the largest norm of its inputs, that of the bias included
    errors: Array  # at most the largest norm of its errors
    squares: Array


class _Factors(NamedTuple):
    """The gradients of a layer as what they are products of."""

    inputs: Array  # (b, k, inputs)
    errors: Array  # (b, k, outputs)

    def norms(self) -> _Norms:
        per_expert, outputs = self.errors.shape[1:]
        lost = outputs * SMALLEST  # of a product, at most
        inputs, errors = _products(self.inputs) + 1, _products(self.errors)
        by_inputs = _power_of_two(_diagonal(inputs).max(axis=1))
        by_errors = _power_of_two(_diagonal(errors).max(axis=1) + lost)
        products = inputs / by_inputs[:, None, None] ** 2 * (errors / by_errors[:, None, None] ** 2)
        squares = products.sum(axis=(1, 2)).clip(0)
        if per_expert > 1:
            share = CANCELLING + (self.inputs.shape[2] + outputs) * ROUNDING_OF_A_TERM
            squares += share * jnp.square(jnp.sqrt(_diagonal(products)).sum(axis=1))
        squares += 4 * per_expert**2 * lost / by_errors**2 + VANISHING
        return _Norms(by_inputs, by_errors, squares)

    def sum(self, norms: _Norms, weights: Array, sound: Array) -> Layer:
        """The weighted sum of gradients scaled by `norms`; zeros for who is not sound.

        Zeros, because zero times infinity is no number.
        """
        one = jnp.where(sound, 1 / norms.inputs, 0)
        inputs = _where(sound, self.inputs * one[:, None, None])
        # Two factors, because one for both may be infinite.
        errors = self.errors * (1 / norms.errors)[:, None, None] * weights[:, None, None]
        errors = _where(sound, errors)
        rows = [factor.reshape(-1, factor.shape[-1]) for factor in (inputs, errors)]
        return Layer(_einsum("ri,ro->io", *rows), _weighted_sum(one, errors.sum(axis=1)))


def _products(vectors: Array) -> Array:
    """Of each expert's vectors with each other. Shapes: (b, k, n) -> (b, k, k)."""
    if vectors.shape[1] == 1:
        return jnp.square(vectors).sum(axis=2, keepdims=True)
    return _einsum("bki,bli->bkl", vectors, vectors)


def _power_of_two(squares: Array) -> Array:
    """The largest power of two that is at most the root; infinite for what is not finite."""
    bits = jax.lax.bitcast_convert_type(jnp.sqrt(squares), jnp.uint32)
    power: Array = jax.lax.bitcast_convert_type(bits & 0x7F800000, jnp.float32)
    return power


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


def _where(sound: Array, values: Array) -> Array:
    return jnp.where(sound[:, None, None], values, 0)


def _diagonal(products: Array) -> Array:
    diagonal: Array = jnp.diagonal(products, axis1=1, axis2=2)
    return diagonal


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
