"""The units that worlds state are what policies that anybody may run see of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quorum_rl.envs import (
    AnyWorld,
    get_world,
    measured_units,
    reference_policy,
    uniform_policy,
    units_of,
)
from quorum_rl.envs.rollout import Policy

# A fixed seed. The largest difference was 0.008 to 0.022 with four others, and numbers are rounded.
CLOSE = 0.06


@pytest.mark.parametrize("name", ["CartPole", "Acrobot", "HIV", "Pendulum"])
def test_stated_units_are_those_of_the_uniform_and_the_reference_policy(name: str) -> None:
    world: AnyWorld = get_world(name)
    policies = [uniform_policy(world), reference_policy(world)]
    found = measured_units(world, policies, jax.random.key(3), copies=400)
    stated = units_of(world)
    assert stated is not None
    scale = np.array(stated.scale)
    np.testing.assert_allclose(np.array(found.centre) / scale, stated.centre / scale, atol=CLOSE)
    np.testing.assert_allclose(found.scale, scale, rtol=CLOSE)


def test_policies_count_alike() -> None:
    """What two policies see is half of each: their variances' mean and the variance of means."""
    world = get_world("CartPole")

    def always(action: int) -> Policy:
        def act(key: jax.Array, observation: jax.Array) -> jax.Array:
            del key, observation
            return jnp.full((), action)

        return act

    def of(*actions: int) -> np.ndarray:
        policies = [always(action) for action in actions]
        units = measured_units(world, policies, jax.random.key(0), copies=200)
        return np.array([units.centre, units.scale])

    left, right, both = of(0), of(1), of(0, 1)
    np.testing.assert_allclose(both[0], (left[0] + right[0]) / 2, atol=0.02)
    spread = np.sqrt((left[1] ** 2 + right[1] ** 2) / 2 + ((left[0] - right[0]) / 2) ** 2)
    np.testing.assert_allclose(both[1], spread, rtol=0.02)
