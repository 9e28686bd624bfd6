"""What a network's last numbers mean: how likely each action is, or a Gaussian over actions.

Of finite actions they are the logits. Of continuous ones they are the mean of each number of an
action and then the logarithm of its standard deviation: the same in every state, so these columns
of the last layer have no weights, only biases. What is drawn is cut to the bounds by whoever acts;
its density is that of the Gaussian.
"""

import math
from typing import TypeAlias

import jax
import jax.numpy as jnp

from quorum_rl.dictionary import Bounds
from quorum_rl.envs import Spaces
from quorum_rl.experts.networks import Array, Layer, Network, apply_network, new_network

Gaussian: TypeAlias = tuple[Array, Array]
"""Mean, and logarithm of the standard deviation."""


def new_actor(key: Array, sizes: tuple[int, ...], spaces: Spaces, last_gain: float) -> Network:
    """The random network of a policy; see `new_network`."""
    if not spaces.continuous:
        return new_network(key, (*sizes, spaces.action_count), last_gain)
    *rest, last = new_network(key, (*sizes, 2 * spaces.action_count), last_gain)
    return (*rest, last._replace(weight=last.weight.at[:, spaces.action_count :].set(0)))


def drawn(key: Array, network: Network, seen: Array, *, continuous: bool) -> tuple[Array, Array]:
    """An action for each observation, and the logarithm of its probability or density."""
    if continuous:
        mean, spread = _gaussian(network, seen)
        action = mean + jnp.exp(spread) * jax.random.normal(key, mean.shape)
        return action, _density(mean, spread, action)
    log_probabilities = jax.nn.log_softmax(apply_network(network, seen))
    action = jax.random.categorical(key, log_probabilities)
    return action, _taken(log_probabilities, action)


def judged(network: Network, seen: Array, action: Array) -> tuple[Array, Array]:
    """The logarithm of each action's probability or density, and the entropy where it was taken.

    Whole numbers are finite actions, others continuous ones.
    """
    if jnp.issubdtype(action.dtype, jnp.floating):
        mean, spread = _gaussian(network, seen)
        entropy = (spread + 0.5 * math.log(2 * math.pi * math.e)).sum()
        return _density(mean, spread, action), entropy
    log_probabilities = jax.nn.log_softmax(apply_network(network, seen))
    entropy = -(jnp.exp(log_probabilities) * log_probabilities).sum(axis=-1)
    return _taken(log_probabilities, action), entropy


def in_bounds(action: Array, bounds: Bounds) -> Array:
    """What a world gets of an action whose bounds are −1 and 1 for the agent: cut and stretched."""
    low, high = jnp.array(bounds, jnp.float32).T
    made: Array = (low + high) / 2 + (high - low) / 2 * jnp.clip(action, -1, 1)
    return made


def stretched(network: Network, bounds: Bounds) -> Network:
    """The network of a Gaussian policy in a world's own units, made from one within −1 and 1."""
    low, high = jnp.array(bounds, jnp.float32).T
    middle, half = (low + high) / 2, (high - low) / 2
    scale = jnp.concatenate([half, jnp.ones_like(half)])
    shift = jnp.concatenate([middle, jnp.log(half)])
    *rest, (weight, bias) = network
    return (*rest, Layer(weight * scale, bias * scale + shift))


def _gaussian(network: Network, seen: Array) -> Gaussian:
    outputs = apply_network(network, seen)
    size = outputs.shape[-1] // 2
    # Not from the outputs: the weights of the spread are to have no gradient, and so stay zero.
    return outputs[..., :size], network[-1].bias[size:].astype(jnp.float32)


def _density(mean: Array, spread: Array, action: Array) -> Array:
    scaled = (action - mean) / jnp.exp(spread)
    each = -0.5 * scaled**2 - spread - 0.5 * math.log(2 * math.pi)
    return each.sum(axis=-1)


def _taken(log_probabilities: Array, action: Array) -> Array:
    return jnp.take_along_axis(log_probabilities, action[..., None], axis=-1)[..., 0]
