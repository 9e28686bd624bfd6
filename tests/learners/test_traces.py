"""What transitions leave behind in the layers: the whole gradient, norm and all."""

import runpy
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from standardising import STANDARDISING

from quorum_rl.learners import Cql, DenseLearner, Networks, Traces, gradient_of
from quorum_rl.learners.networks import apply_network, apply_with_taps, new_network, zero_taps
from quorum_rl.types import Transition

OWN_LEARNER = Path(__file__).parents[2] / "examples" / "own_learner.py"


class PerTransition(NamedTuple):
    """Losses and gradients of each transition by `vmap(grad)`; losses and traces by taps."""

    losses: jax.Array
    gradients: Networks
    tapped_losses: jax.Array
    traces: Traces


def by_both_ways(learner: DenseLearner, batch: Transition) -> PerTransition:
    params = learner.init(jax.random.key(0), 3, 4)
    target = learner.init_target(learner.init(jax.random.key(1), 3, 4))
    keys = jax.random.split(jax.random.key(2), len(batch.reward))
    plain = jax.vmap(jax.value_and_grad(learner.loss), (None, None, 0, 0))
    tapped = jax.vmap(learner.loss_and_traces, (None, None, 0, 0))
    return PerTransition(
        *jax.jit(plain)(params, target, batch, keys), *jax.jit(tapped)(params, target, batch, keys)
    )


@pytest.fixture(scope="module")
def per_transition(learner: DenseLearner, batch: Transition) -> PerTransition:
    return by_both_ways(learner, batch)


def check_the_gradients(of: PerTransition) -> None:
    np.testing.assert_allclose(of.tapped_losses, of.losses, rtol=1e-6)
    rebuilt = {name: jax.vmap(gradient_of)(traces) for name, traces in of.traces.items()}
    # Raises also where the two trees differ.
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-6, atol=1e-6), rebuilt, of.gradients)


def test_inputs_and_errors_make_up_the_gradient_of_every_transition(
    per_transition: PerTransition,
) -> None:
    check_the_gradients(per_transition)


def test_the_layers_of_an_own_learner_are_tapped_as_well(batch: Transition) -> None:
    iql = runpy.run_path(str(OWN_LEARNER))["Iql"]
    check_the_gradients(by_both_ways(iql(hidden_sizes=(8, 6), **STANDARDISING), batch))


def test_inputs_and_errors_give_the_norm_of_every_gradient(per_transition: PerTransition) -> None:
    layers = [layer for of_network in per_transition.traces.values() for layer in of_network]
    squared_norms = sum(
        (jnp.square(layer.inputs).sum(-1) + 1) * jnp.square(layer.errors).sum(-1)
        for layer in layers
    )
    leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(per_transition.gradients)]
    expected = sum(np.square(leaf).reshape(len(leaf), -1).sum(axis=1) for leaf in leaves)
    np.testing.assert_allclose(squared_norms, expected, rtol=1e-5)


@pytest.mark.parametrize("sizes", [(3, 2), (3, 5, 4, 2)])
def test_zero_taps_change_no_output_and_others_are_added_to_their_layers(
    sizes: tuple[int, ...],
) -> None:
    network = new_network(jax.random.key(4), sizes)
    inputs = jnp.array([0.5, -1.0, 2.0])
    outputs, seen = apply_with_taps(network, inputs, zero_taps(network))
    np.testing.assert_array_equal(outputs, apply_network(network, inputs))
    assert [len(one) for one in seen] == list(sizes[:-1])

    taps = tuple(jnp.linspace(-1.0, 1.0, size) for size in sizes[1:])
    biased = tuple(
        layer._replace(bias=layer.bias + tap) for layer, tap in zip(network, taps, strict=True)
    )
    tapped, _ = apply_with_taps(network, inputs, taps)
    np.testing.assert_allclose(tapped, apply_network(biased, inputs), rtol=1e-6)


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
