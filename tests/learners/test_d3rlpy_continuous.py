"""The same weights and the same batch give d3rlpy's losses and gradients for continuous actions.

As `test_d3rlpy_parity.py`, in an environment of its own. Where the definitions coincide: all of BC,
of IQL with d3rlpy's spread set to 1, and of TD3+BC for batches of one and without target noise (for
larger ones d3rlpy divides by the mean value of the batch, ours by each transition's own).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quorum_rl.learners import Bc, DenseLearner, Iql, Networks, Td3Bc
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

NUMBERS = 2
UNIT = ((-1.0, 1.0),) * NUMBERS
CRITICS = ("first_critic", "second_critic")


@pytest.fixture
def doses(batch: Transition) -> Transition:
    drawn = np.random.default_rng(4).uniform(-1, 1, (len(batch.reward), NUMBERS))
    return batch._replace(action=jnp.asarray(drawn, jnp.float32))


def weights_and_target(learner: DenseLearner) -> tuple[Networks, Networks]:
    params, others = (learner.init(jax.random.key(seed), 3, NUMBERS) for seed in (0, 1))
    return params, learner.init_target(others)


def theirs(config: Any, params: Networks, target: Networks) -> Any:
    algorithm = config.create(device="cpu:0")
    algorithm.create_impl((3,), NUMBERS)
    modules = algorithm.impl._modules
    copy_into(modules.policy, params["policy"])
    for number, name in enumerate(CRITICS):
        copy_into(modules.q_funcs[number], params[name])
        copy_into(modules.targ_q_funcs[number], target[name])
    return algorithm.impl


def test_bc_has_d3rlpys_loss_and_gradient(doses: Transition) -> None:
    learner = Bc(hidden_sizes=HIDDEN_SIZES, action_bounds=UNIT)
    params, target = weights_and_target(learner)
    algorithm = d3rlpy.algos.BCConfig(encoder_factory=encoder()).create(device="cpu:0")
    algorithm.create_impl((3,), NUMBERS)
    imitator = algorithm.impl._modules.imitator
    copy_into(imitator, params["policy"])
    rows = torch_batch(doses)
    their_loss = algorithm.impl.compute_imitator_grad(rows).loss
    loss, gradient = our_loss(learner, params, target, doses)
    assert loss == pytest.approx(float(their_loss.detach()), rel=1e-5)
    assert_same_gradient(imitator, gradient["policy"])


def test_iql_has_d3rlpys_gradients(doses: Transition) -> None:
    learner = Iql(hidden_sizes=HIDDEN_SIZES, discount=0.9, action_bounds=UNIT, temperature=2.0)
    params, target = weights_and_target(learner)
    config = d3rlpy.algos.IQLConfig(
        gamma=0.9,
        weight_temp=2.0,
        actor_encoder_factory=encoder(),
        critic_encoder_factory=encoder(),
        value_encoder_factory=encoder(),
    )
    impl = theirs(config, params, target)
    modules = impl._modules
    copy_into(modules.value_func, params["value"])
    with torch.no_grad():  # between -5 and 2 by a sigmoid: the logarithm of the spread is 0
        modules.policy._logstd.fill_(np.log(5 / 2))
    rows = torch_batch(doses)
    impl.compute_critic_grad(rows)
    impl.compute_actor_grad(rows)
    _, gradient = our_loss(learner, params, target, doses)
    assert_same_gradient(modules.value_func, gradient["value"])
    assert_same_gradient(modules.policy, gradient["policy"])
    for number, name in enumerate(CRITICS):
        assert_same_gradient(modules.q_funcs[number], gradient[name])


@pytest.mark.parametrize("row", range(4))
def test_td3_bc_has_d3rlpys_gradients_for_one_transition(doses: Transition, row: int) -> None:
    learner = Td3Bc(
        hidden_sizes=HIDDEN_SIZES, discount=0.9, action_bounds=UNIT, target_noise=0.0, alpha=2.5
    )
    params, target = weights_and_target(learner)
    one: Transition = jax.tree.map(lambda leaf: leaf[row : row + 1], doses)
    config = d3rlpy.algos.TD3PlusBCConfig(
        gamma=0.9,
        alpha=2.5,
        target_smoothing_sigma=0.0,
        actor_encoder_factory=encoder(),
        critic_encoder_factory=encoder(),
    )
    impl = theirs(config, params, target)
    copy_into(impl._modules.targ_policy, target["policy"])
    rows = torch_batch(one)
    impl.compute_critic_grad(rows)
    _, gradient = our_loss(learner, params, target, one)
    for number, name in enumerate(CRITICS):
        assert_same_gradient(impl._modules.q_funcs[number], gradient[name])
    impl.compute_actor_grad(rows)
    assert_same_gradient(impl._modules.policy, gradient["policy"])
