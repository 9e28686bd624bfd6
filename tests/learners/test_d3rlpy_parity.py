"""The same weights and the same batch give d3rlpy's loss and gradients (where it is installed).

PyTorch is no dependency of ours and d3rlpy pins another Gymnasium, so these run only in an
environment of their own: `pip install d3rlpy jax optax pytest`, then
`PYTHONPATH=src python -m pytest tests/learners/test_d3rlpy_parity.py`.

Where the definitions coincide: all of DiscreteCQL; of DiscreteBCQ the temporal difference, the
imitation and which actions are likely. Where they do not:
- The penalty on BCQ's logits. Ours squares the raw logits, as the authors' code does. d3rlpy passes
  them through `torch.distributions.Categorical`, which normalises them, and so squares
  log-probabilities. The last test shows that this is the whole difference.
- By default d3rlpy shares BCQ's hidden layers between values and imitation. For vectors the
  authors' code does not, and neither do we: `share_encoder=False`.
- d3rlpy copies the target every 8000 steps; see our defaults for why we do not. It sees no part
  here, as both are given the same target.
"""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from quorum_rl.learners import Bcq, Cql, DenseLearner, Networks, apply_network
from quorum_rl.types import Transition

torch = pytest.importorskip("torch", reason="PyTorch, which d3rlpy needs, is not installed")
d3rlpy = pytest.importorskip("d3rlpy", reason="d3rlpy is not installed: it needs an environment")

from d3rlpy_batches import (  # noqa: E402
    HIDDEN_SIZES,
    assert_same_gradient,
    copy_into,
    encoder,
    our_loss,
    torch_batch,
)


def d3rlpy_loss(
    config: Any, params: Networks, target: Networks, batch: Transition
) -> tuple[float, Any]:
    """d3rlpy's mean loss with our weights, and its modules with their gradients."""
    algorithm = config.create(device="cpu:0")
    algorithm.create_impl((batch.observation.shape[1],), 4)
    modules = algorithm.impl._modules
    copy_into(modules.q_funcs[0], params["action_values"])
    copy_into(modules.targ_q_funcs[0], target["action_values"])
    if "imitation" in params:
        copy_into(modules.imitator, params["imitation"])
    return float(algorithm.impl.compute_grad(torch_batch(batch)).loss.detach()), modules


def weights_and_target(learner: DenseLearner) -> tuple[Networks, Networks]:
    params, others = (learner.init(jax.random.key(seed), 3, 4) for seed in (0, 1))
    return params, learner.init_target(others)


@pytest.mark.parametrize("alpha", [0.0, 0.7])
def test_cql_has_d3rlpys_loss_and_gradient(batch: Transition, alpha: float) -> None:
    learner = Cql(hidden_sizes=HIDDEN_SIZES, discount=0.9, alpha=alpha)
    params, target = weights_and_target(learner)
    config = d3rlpy.algos.DiscreteCQLConfig(gamma=0.9, alpha=alpha, encoder_factory=encoder())
    their_loss, modules = d3rlpy_loss(config, params, target, batch)
    loss, gradient = our_loss(learner, params, target, batch)
    assert loss == pytest.approx(their_loss, rel=1e-5)
    assert_same_gradient(modules.q_funcs[0], gradient["action_values"])


@pytest.mark.parametrize("threshold", [0.1, 0.8, 0.95])
def test_bcq_without_its_penalty_has_d3rlpys_loss_and_gradient(
    batch: Transition, threshold: float
) -> None:
    learner = Bcq(hidden_sizes=HIDDEN_SIZES, discount=0.9, threshold=threshold, logit_penalty=0.0)
    params, target = weights_and_target(learner)
    config = d3rlpy.algos.DiscreteBCQConfig(
        gamma=0.9,
        action_flexibility=threshold,
        beta=0.0,
        share_encoder=False,
        encoder_factory=encoder(),
    )
    their_loss, modules = d3rlpy_loss(config, params, target, batch)
    loss, gradient = our_loss(learner, params, target, batch)
    assert loss == pytest.approx(their_loss, rel=1e-5)
    assert_same_gradient(modules.q_funcs[0], gradient["action_values"])
    assert_same_gradient(modules.imitator, gradient["imitation"])


def test_d3rlpys_penalty_is_on_log_probabilities_and_ours_on_logits(batch: Transition) -> None:
    learner = Bcq(hidden_sizes=HIDDEN_SIZES, discount=0.9, logit_penalty=0.5)
    params, target = weights_and_target(learner)
    config = d3rlpy.algos.DiscreteBCQConfig(
        gamma=0.9, beta=0.5, share_encoder=False, encoder_factory=encoder()
    )
    their_loss, _ = d3rlpy_loss(config, params, target, batch)
    loss, _ = our_loss(learner, params, target, batch)
    logits = apply_network(params["imitation"], batch.observation)
    log_probabilities = jax.nn.log_softmax(logits)
    difference = 0.5 * (jnp.square(log_probabilities).mean() - jnp.square(logits).mean())
    assert abs(difference) > 0.1
    assert their_loss - loss == pytest.approx(float(difference), rel=1e-4)
