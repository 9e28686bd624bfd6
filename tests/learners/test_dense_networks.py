"""Networks: how they start, what they say, and that every learner trains the whole of its own."""

import runpy
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from standardising import STANDARDISING

from quorum_rl.learners import Cql, DenseLearner
from quorum_rl.learners.learner import apply_network, new_network, outputs_of
from quorum_rl.nets import apply_hidden
from quorum_rl.types import Transition

OWN_LEARNER = Path(__file__).parents[2] / "examples" / "own_learner.py"


@pytest.mark.parametrize("sizes", [(3, 2), (3, 5, 4, 2)])
def test_a_network_is_its_layers_one_after_the_other(sizes: tuple[int, ...]) -> None:
    network = new_network(jax.random.key(4), sizes)
    inputs = np.array([[0.5, -1.0, 2.0], [3.0, 0.1, -0.7]])
    hidden = inputs
    for layer in network[:-1]:
        hidden = np.maximum(
            hidden @ np.asarray(layer.weight, np.float64) + np.asarray(layer.bias, np.float64), 0
        )
    last = network[-1]
    expected = hidden @ np.asarray(last.weight, np.float64) + np.asarray(last.bias, np.float64)
    seen = jnp.asarray(inputs, jnp.float32)
    np.testing.assert_allclose(
        apply_hidden(network, seen, jax.nn.relu), hidden, rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(apply_network(network, seen), expected, rtol=1e-5, atol=1e-6)


def test_first_weights_and_biases_fill_the_range_of_one_over_the_root_of_inputs() -> None:
    layers = new_network(jax.random.key(5), (16, 400, 3))
    for layer, inputs in zip(layers, (16, 400), strict=True):
        for array in layer:
            assert jnp.abs(array).max() <= 1 / np.sqrt(inputs)
            assert array.dtype == jnp.float32
    # 6400 uniform draws: their standard deviation is off by 3% with probability below 1e-6.
    assert layers[0].weight.std() == pytest.approx(0.25 / np.sqrt(3), rel=0.03)
    assert len(np.unique(np.concatenate([np.ravel(array) for array in layers[1]]))) > 1190


def test_networks_of_one_learner_start_apart() -> None:
    first, second = (Cql(hidden_sizes=()).init(jax.random.key(seed), 3, 4) for seed in (0, 1))
    assert not np.array_equal(first["action_values"][0].weight, second["action_values"][0].weight)


def check_every_layer_learns(learner: DenseLearner, batch: Transition) -> None:
    params = learner.init(jax.random.key(0), 3, 4)
    target = learner.init_target(learner.init(jax.random.key(1), 3, 4))
    keys = jax.random.split(jax.random.key(2), len(batch.reward))
    gradients = jax.jit(jax.vmap(jax.grad(learner.loss), (None, None, 0, 0)))(
        params, target, batch, keys
    )
    for leaf in jax.tree.leaves(gradients):
        assert np.isfinite(leaf).all()
        assert np.abs(leaf).max() > 0
    assert set(outputs_of(params, batch.observation)) == set(params)


def test_every_layer_of_every_network_learns(learner: DenseLearner, batch: Transition) -> None:
    check_every_layer_learns(learner, batch)


def test_the_layers_of_an_own_learner_learn_as_well(batch: Transition) -> None:
    iql = runpy.run_path(str(OWN_LEARNER))["Iql"]
    check_every_layer_learns(iql(hidden_sizes=(8, 6), **STANDARDISING), batch)
