"""Steps without noise: on released data, and in the non-private upper bound."""

from typing import Any

import jax

from quorum_rl.learners import Learner
from quorum_rl.training.expert_data import Array, at
from quorum_rl.types import Transition


def plain_batch(
    transitions: Transition, key: Array, size: int, part: tuple[Array, Array] | None = None
) -> Transition:
    """`size` transitions, uniformly and with replacement; of a part of them, from first to end.

    Shapes: the fields of `transitions` (n, …) become (size, …).
    """
    first, end = (0, len(transitions.reward)) if part is None else part
    return at(transitions, jax.random.randint(key, (size,), first, end))


def plain_gradient(
    learner: Learner, params: Any, target: Any, transitions: Transition, keys: Array
) -> Any:
    """The mean gradient of some transitions. Private only if they are public already.

    Shapes: the fields of `transitions` (b, …), `keys` (b,); the gradient as `params`.
    """

    def mean_loss(params: Any) -> Array:
        losses = jax.vmap(learner.loss, (None, None, 0, 0))(params, target, transitions, keys)
        return losses.mean()

    return jax.grad(mean_loss)(params)
