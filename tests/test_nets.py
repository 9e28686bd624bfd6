"""One network for NumPy and JAX: the same layers, the same outputs."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np

from quorum_rl.nets import Layer, apply, apply_hidden, widths

RANDOM = np.random.default_rng(0)
SIZES = (3, 5, 2)
NETWORK = tuple(
    Layer(
        RANDOM.normal(size=(inputs, outputs)).astype(np.float32),
        RANDOM.normal(size=outputs).astype(np.float32),
    )
    for inputs, outputs in pairwise(SIZES)
)
INPUTS = RANDOM.normal(size=(7, 4, 3)).astype(np.float32)


def test_numpy_and_jax_apply_one_network_alike() -> None:
    in_jax = jax.tree.map(jnp.asarray, NETWORK)
    for numpy_activation, jax_activation in ((np.tanh, jnp.tanh), (np.square, jnp.square)):
        expected = apply(NETWORK, INPUTS, numpy_activation)
        assert isinstance(expected, np.ndarray)
        assert expected.shape == (7, 4, 2)
        found = apply(in_jax, jnp.asarray(INPUTS), jax_activation)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_the_activation_is_of_hidden_layers_only() -> None:
    hidden = apply_hidden(NETWORK, INPUTS, np.zeros_like)
    assert hidden.shape == (7, 4, 5)
    assert not hidden.any()
    np.testing.assert_array_equal(apply(NETWORK, INPUTS, np.zeros_like)[0, 0], NETWORK[-1].bias)
    assert widths(NETWORK) == SIZES
