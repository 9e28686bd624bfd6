"""CartPole against Gymnasium's CartPole-v1, one step at a time from the same states."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quorum_rl.envs.cartpole import CartPole, CartPoleParams, CartPoleState
from quorum_rl.envs.world import Step

WORLD = CartPole()
TOLERANCE = 1e-6
VARIED = [
    CartPoleParams(gravity=8.75, force=11.25, cart_mass=0.8),
    CartPoleParams(gravity=11.0, force=9.0, cart_mass=1.25),
    CartPoleParams(gravity=9.3, force=10.4, cart_mass=1.1, pole_mass=0.17, half_pole_length=0.7),
]


def attributes(params: CartPoleParams) -> dict[str, float]:
    """The same parameters on Gymnasium's object, which computes derived ones only once."""
    return {
        "gravity": params.gravity,
        "force_mag": params.force,
        "masscart": params.cart_mass,
        "masspole": params.pole_mass,
        "length": params.half_pole_length,
        "total_mass": params.cart_mass + params.pole_mass,
        "polemass_length": params.pole_mass * params.half_pole_length,
    }


@jax.jit
def steps_from(states: Any, actions: Any, params: CartPoleParams) -> Step[CartPoleState]:
    def step_of(state: Any, action: Any) -> Step[CartPoleState]:
        held = CartPoleState(state[0], state[1], state[2], state[3], time=jnp.int32(0))
        return WORLD.step(jax.random.key(0), held, action, params)

    return jax.vmap(step_of)(states, actions)


def assert_same(recorded: Any, params: CartPoleParams) -> None:
    ours = steps_from(recorded.state, recorded.action, params)
    state = ours.state
    got = np.stack([state.position, state.velocity, state.angle, state.angular_velocity], axis=1)
    assert np.abs(got.astype(np.float64) - recorded.next_state).max() <= TOLERANCE
    np.testing.assert_array_equal(ours.observation, got)
    np.testing.assert_array_equal(ours.reward, recorded.reward)
    np.testing.assert_array_equal(ours.terminated, recorded.terminated)


def uniform(state: Any, rng: Any) -> int:
    del state
    return int(rng.integers(2))


def balancing(state: Any, rng: Any) -> int:
    """Pushes under the falling pole, with some mistakes: long episodes away from the start."""
    mistake = rng.random() < 0.25
    return int((state[2] + 0.3 * state[3] > 0) != mistake)


def test_twenty_thousand_steps_of_the_default_world_are_gymnasiums(gymnasium_steps: Any) -> None:
    params = WORLD.default_params()
    for policy, seed in ((uniform, 1), (balancing, 2)):
        recorded = gymnasium_steps.along(
            "CartPole-v1", attributes(params), 10_000, policy, seed=seed
        )
        assert recorded.terminated.sum() > 50
        assert_same(recorded, params)


@pytest.mark.parametrize("params", VARIED)
def test_varied_parameters_mean_what_they_mean_in_gymnasium(
    gymnasium_steps: Any, params: CartPoleParams
) -> None:
    recorded = gymnasium_steps.along("CartPole-v1", attributes(params), 7_000, balancing, seed=3)
    assert_same(recorded, params)
    # The comparison can tell parameters apart: the default world is not the varied one.
    with pytest.raises(AssertionError):
        assert_same(recorded, WORLD.default_params())


def test_states_beyond_the_limits_are_stepped_like_any_other(gymnasium_steps: Any) -> None:
    rng = np.random.default_rng(4)
    widest = np.array([4.8, 3.0, 0.42, 3.0])
    states = rng.uniform(-widest, widest, (5_000, 4)).astype(np.float32)
    actions = rng.integers(2, size=5_000)
    recorded = gymnasium_steps.from_states("CartPole-v1", {}, states, actions)
    assert 0.5 < recorded.terminated.mean() < 0.9
    assert_same(recorded, WORLD.default_params())


def test_an_episode_starts_uniformly_within_gymnasiums_range() -> None:
    keys = jax.random.split(jax.random.key(5), 4_000)
    states, observations = jax.vmap(WORLD.reset, (0, None))(keys, WORLD.default_params())
    assert np.abs(observations).max() <= 0.05
    # Each mean has a standard error of 0.1/sqrt(12 · 4000); six of them fail once in 10^8 runs.
    assert np.abs(np.mean(observations, axis=0)).max() < 6 * 0.1 / np.sqrt(12 * 4_000)
    assert (np.quantile(observations, 0.98, axis=0) > 0.047).all()
    assert (np.asarray(states.time) == 0).all()
