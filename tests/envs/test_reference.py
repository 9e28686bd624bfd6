"""The returns that normalisation rests on are those of policies that anyone can run again."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quorum_rl.envs import AnyWorld, get_world, uniform_policy, with_params, world_names
from quorum_rl.envs.lunar_lander import LunarLander
from quorum_rl.envs.reference import (
    ReferenceNetwork,
    episode_returns,
    network_from_json,
    network_to_json,
    reference_network,
    reference_policy,
)
from quorum_rl.errors import QuorumError

# A fixed seed; with another one, a check of four standard errors of both means fails with
# probability 6e-5, as far as the mean of this many returns is normal.
ERRORS = 4.0


def returns_of(world: AnyWorld, reference: bool, episodes: int) -> np.ndarray:
    policy = reference_policy(world) if reference else uniform_policy(world)
    run = jax.jit(partial(episode_returns, world, policy, episodes=episodes))
    return np.asarray(run(jax.random.key(11)), np.float64)


@pytest.mark.parametrize(
    ("name", "episodes", "stated_error"),
    [
        ("CartPole", 2000, 0.12),
        ("HIV", 200, 5200.0),
        ("Pendulum", 500, 2.9),
        ("Breakout", 300, 0.0064),
        ("SpaceInvaders", 300, 0.033),
    ],
)
def test_a_random_policy_earns_the_stated_return(
    name: str, episodes: int, stated_error: float
) -> None:
    world = get_world(name)
    returns = returns_of(world, reference=False, episodes=episodes)
    error = np.hypot(returns.std() / np.sqrt(episodes), stated_error)
    assert abs(returns.mean() - world.facts.random_return) < ERRORS * error
    # One normalised return of zero, as far as the same errors allow.
    span = world.facts.reference_return - world.facts.random_return
    assert abs(world.facts.normalised(returns.mean())) < ERRORS * error / span


def test_a_random_policy_never_swings_an_acrobot_up_in_time() -> None:
    # None of 10,000 episodes did when the fact was measured, so at most 4.6e-4 do (99 %): one of
    # these 200 would with a probability below 9 %; the seed is fixed and none does.
    world = get_world("Acrobot")
    returns = returns_of(world, reference=False, episodes=200)
    assert (returns == world.facts.random_return).all()


def test_the_cartpole_reference_balances_in_every_episode() -> None:
    world = get_world("CartPole")
    returns = returns_of(world, reference=True, episodes=200)
    assert (returns == 1000.0).all()
    assert world.facts.normalised(returns.mean()) == 1.0


@pytest.mark.parametrize(("name", "stated_error"), [("Acrobot", 0.13), ("Pendulum", 0.9)])
def test_a_reference_earns_the_stated_return(name: str, stated_error: float) -> None:
    world = get_world(name)
    returns = returns_of(world, reference=True, episodes=1000)
    error = np.hypot(returns.std() / np.sqrt(1000), stated_error)
    assert abs(returns.mean() - world.facts.reference_return) < ERRORS * error
    np.testing.assert_allclose(world.facts.normalised(returns.mean()), 1.0, atol=0.02)


def test_the_lunar_lander_reference_lands() -> None:
    # Without impacts: half as much to compile, and the reference seldom lands so hard.
    world = LunarLander(impact_passes=0)
    returns = returns_of(world, reference=True, episodes=40)
    error = np.hypot(returns.std() / np.sqrt(40), 0.36)
    assert abs(returns.mean() - world.facts.reference_return) < ERRORS * error
    assert world.facts.normalised(returns.mean()) > 0.97


def test_the_hiv_reference_earns_the_stated_return_without_any_luck() -> None:
    world = get_world("HIV")
    returns = returns_of(world, reference=True, episodes=2)
    # Nothing is random; the tolerance is for the rounding of other processors.
    np.testing.assert_allclose(returns, world.facts.reference_return, rtol=1e-3)
    np.testing.assert_allclose(world.facts.normalised(returns.mean()), 1.0, rtol=1e-3)


def test_returns_count_one_episode_and_no_reward_after_its_end() -> None:
    world = get_world("CartPole")

    def always_left(key: jax.Array, observation: jax.Array) -> jax.Array:
        del key, observation
        return jnp.asarray(0)

    counted = np.asarray(episode_returns(world, always_left, jax.random.key(0), 4))
    params = with_params(world, time_limit=1000)
    step = jax.jit(world.step)
    for copy, key in enumerate(jax.random.split(jax.random.split(jax.random.key(0))[0], 4)):
        state, _ = world.reset(key, params)
        steps, fallen = 0, False
        while not fallen:
            after = step(key, state, jnp.int32(0), params)
            state, steps, fallen = after.state, steps + 1, bool(after.terminated)
        assert counted[copy] == steps


# LunarLanderContinuous has the network of LunarLander: see its engines' tests.
WITHOUT = {"LunarLanderContinuous", "Breakout", "SpaceInvaders"}


@pytest.mark.parametrize("name", sorted({*world_names()} - WITHOUT))
def test_a_network_fits_its_world_and_survives_being_stored(name: str) -> None:
    world = get_world(name)
    network = reference_network(world)
    again = network_from_json(network_to_json(network))
    assert jax.tree.all(jax.tree.map(np.array_equal, network, again))
    preferences = network.preferences(jnp.zeros(world.spaces.observation_size))
    assert preferences.shape == (world.spaces.action_count,)


def test_preferences_are_those_of_plain_numpy() -> None:
    rng = np.random.default_rng(0)
    centre, scale, seen = rng.normal(size=3), rng.uniform(1, 2, size=3), rng.normal(size=3)
    w1, b1, w2, b2 = (rng.normal(size=shape) for shape in ((3, 5), 5, (5, 2), 2))
    expected = np.tanh((seen - centre) / scale @ w1 + b1) @ w2 + b2
    network = ReferenceNetwork(
        jnp.asarray(centre), jnp.asarray(scale),
        weights=(jnp.asarray(w1), jnp.asarray(w2)), biases=(jnp.asarray(b1), jnp.asarray(b2)),
    )  # fmt: skip
    np.testing.assert_allclose(network.preferences(jnp.asarray(seen)), expected, rtol=1e-4)


def test_a_world_without_a_reference_policy_is_told_what_to_do() -> None:
    class Unknown:
        name = "Unknown"

    with pytest.raises(QuorumError, match="'Unknown' has no reference policy"):
        reference_policy(Unknown())  # type: ignore[arg-type]
