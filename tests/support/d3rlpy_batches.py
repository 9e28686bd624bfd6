"""d3rlpy and our learners side by side: the same weights, the same batch, losses and gradients.

For tests that run where d3rlpy is installed.
"""

from typing import Any

import d3rlpy
import jax
import numpy as np
import torch
from d3rlpy import torch_utility

from quorum_rl.learners import DenseLearner, Networks
from quorum_rl.types import Transition

HIDDEN_SIZES = (8, 6)


def linear_layers(module: Any) -> list[Any]:
    return [layer for layer in module.modules() if isinstance(layer, torch.nn.Linear)]


def copy_into(module: Any, network: Any) -> None:
    """Give a d3rlpy function the weights of one of our networks; PyTorch holds them transposed."""
    with torch.no_grad():
        for theirs, ours in zip(linear_layers(module), network, strict=True):
            theirs.weight.copy_(torch.tensor(np.asarray(ours.weight).T))
            theirs.bias.copy_(torch.tensor(np.asarray(ours.bias)))


def torch_batch(batch: Transition) -> Any:
    def column(values: Any) -> Any:
        return torch.tensor(np.asarray(values, np.float32)).reshape(len(values), -1)

    return torch_utility.TorchMiniBatch(
        observations=column(batch.observation),
        actions=column(batch.action),
        rewards=column(batch.reward),
        next_observations=column(batch.next_observation),
        next_actions=column(batch.action),
        returns_to_go=column(batch.reward),
        terminals=column(batch.terminated),
        intervals=column(np.ones(len(batch.reward))),
        device="cpu:0",
    )


def our_loss(
    learner: DenseLearner, params: Networks, target: Networks, batch: Transition
) -> tuple[float, Networks]:
    keys = jax.random.split(jax.random.key(2), len(batch.reward))

    def mean_loss(params: Networks) -> jax.Array:
        return jax.vmap(learner.loss, (None, None, 0, 0))(params, target, batch, keys).mean()

    loss, gradient = jax.value_and_grad(mean_loss)(params)
    return float(loss), gradient


def assert_same_gradient(module: Any, network: Any) -> None:
    for theirs, ours in zip(linear_layers(module), network, strict=True):
        np.testing.assert_allclose(theirs.weight.grad.numpy().T, ours.weight, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(theirs.bias.grad.numpy(), ours.bias, rtol=1e-5, atol=1e-5)


def encoder() -> Any:
    return d3rlpy.models.VectorEncoderFactory(list(HIDDEN_SIZES))
