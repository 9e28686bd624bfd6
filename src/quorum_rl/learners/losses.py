"""The pieces that losses are made of, for one transition."""

import jax
import jax.numpy as jnp

from quorum_rl.learners.learner import Array
from quorum_rl.types import Transition


def of_action(per_action: Array, action: Array) -> Array:
    """The entry of `per_action` that belongs to `action`.

    A masked sum: the gradient of an index is a scatter, which is slow, and on a GPU not always
    summed in the same order.
    """
    return jnp.where(jnp.arange(per_action.shape[-1]) == action, per_action, 0).sum(axis=-1)


def scaled(transition: Transition, by: float) -> Transition:
    """The transition with its reward multiplied."""
    return transition._replace(reward=by * transition.reward)


def bootstrapped_return(transition: Transition, next_value: Array, discount: float) -> Array:
    """The reward and, unless the episode terminated, the discounted value of what follows.

    A truncated transition bootstraps: only the record ends there, not the episode.
    """
    return transition.reward + discount * jnp.where(transition.terminated, 0, next_value)


def huber(error: Array, threshold: float) -> Array:
    """Half the square of a small error; linear, with slope `threshold`, beyond `threshold`."""
    within = jnp.clip(error, -threshold, threshold)
    return within * (error - within / 2)


def negative_log_likelihood(logits: Array, action: Array) -> Array:
    """−log of the probability that the softmax of `logits` gives to `action`."""
    return jax.nn.logsumexp(logits) - of_action(logits, action)
