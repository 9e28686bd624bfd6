"""Networks as data, against plain NumPy; and running moments, against NumPy over all the data."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from quorum_rl.experts.networks import apply_network, folded, in_precision, new_network
from quorum_rl.experts.ppo.agent import RunningMoments

SIZES = (5, 16, 7, 3)


def by_numpy(network: Any, inputs: Any) -> Any:
    hidden = np.asarray(inputs, np.float64)
    for number, (weight, bias) in enumerate(network):
        hidden = np.einsum("ni,io->no", hidden, np.float64(weight)) + np.float64(bias)
        if number < len(network) - 1:
            hidden = np.tanh(hidden)
    return hidden


@pytest.fixture(scope="module")
def inputs() -> Any:
    return np.random.default_rng(1).normal(3.0, 20.0, (50, 5)).astype(np.float32)


def test_a_network_computes_what_numpy_computes(inputs: Any) -> None:
    network = new_network(jax.random.key(0), SIZES, last_gain=1.0)
    scaled = inputs / 20  # where tanh is not flat
    np.testing.assert_allclose(
        apply_network(network, scaled), by_numpy(network, scaled), rtol=1e-5, atol=1e-5
    )


def test_a_folded_network_sees_raw_inputs_as_the_original_sees_normalised_ones(inputs: Any) -> None:
    network = new_network(jax.random.key(1), SIZES, last_gain=1.0)
    mean, deviation = inputs.mean(axis=0), inputs.std(axis=0)
    made = folded(network, jnp.asarray(mean), jnp.asarray(deviation))
    np.testing.assert_allclose(
        apply_network(made, inputs),
        by_numpy(network, (inputs - mean) / deviation),
        rtol=1e-4,
        atol=1e-5,
    )


def test_new_weights_have_the_scale_of_their_gain_and_biases_are_zero() -> None:
    first, last = new_network(jax.random.key(2), (400, 300, 200), last_gain=0.01)
    # 120,000 and 60,000 Gaussian weights: the relative error of a deviation is 0.002 and 0.003;
    # five of them are exceeded with probability 6e-7.
    assert np.std(first.weight) * np.sqrt(400) == pytest.approx(np.sqrt(2), rel=0.015)
    assert np.std(last.weight) * np.sqrt(300) == pytest.approx(0.01, rel=0.015)
    assert not first.bias.any()
    assert not last.bias.any()


def test_half_precision_rounds_the_weights_and_answers_in_single(inputs: Any) -> None:
    network = new_network(jax.random.key(3), SIZES, last_gain=1.0)
    halved = in_precision(network, jnp.dtype(jnp.bfloat16))
    answer = apply_network(halved, inputs / 20)
    assert {leaf.dtype for leaf in jax.tree.leaves(halved)} == {jnp.dtype(jnp.bfloat16)}
    assert answer.dtype == jnp.float32
    # bfloat16 keeps eight bits: three layers of sums of a few numbers near one stay within 0.1.
    difference = np.abs(answer - by_numpy(network, inputs / 20)).max()
    assert 1e-4 < difference < 0.1


batches = st.lists(st.sampled_from([1, 7, 30]), min_size=1, max_size=6)


@settings(max_examples=50)
@given(batches, st.floats(-100, 100), st.floats(0.1, 100), st.integers(0, 2**32 - 1))
def test_running_moments_are_those_of_all_the_data(
    sizes: list[int], centre: float, spread: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    data = [rng.normal(centre, spread, (size, 2)).astype(np.float32) for size in sizes]
    # The fresh prior (mean 0, variance 1) counts as 1e-4 values: put it into the oracle too.
    moments = RunningMoments.fresh((2,))
    for batch in data:
        moments = moments.with_batch(jnp.asarray(batch))
    every = np.concatenate(data).astype(np.float64)
    weight = len(every) + 1e-4
    mean = every.sum(axis=0) / weight
    variance = ((every - mean) ** 2).sum(axis=0) / weight + 1e-4 * (1 + mean**2) / weight
    scale = abs(centre) + spread
    np.testing.assert_allclose(moments.mean, mean, rtol=1e-4, atol=1e-5 * scale)
    np.testing.assert_allclose(moments.variance, variance, rtol=1e-3, atol=1e-5 * scale**2)
    assert float(moments.weight) == pytest.approx(weight, rel=1e-6)


def test_moments_of_a_constant_do_not_divide_by_zero() -> None:
    moments = RunningMoments.fresh((1,)).with_batch(jnp.full((1000, 1), 7.0))
    for _ in range(50):
        moments = moments.with_batch(jnp.full((1000, 1), 7.0))
    assert np.isfinite(1 / moments.deviation).all()
    np.testing.assert_allclose(moments.mean, 7.0, rtol=1e-5)
