"""Pendulum against Gymnasium's Pendulum-v1, one step at a time from the same states."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quorum_rl.envs.pendulum import SPEED_LIMIT, Pendulum, PendulumParams, PendulumState
from quorum_rl.envs.world import Step

WORLD = Pendulum()
TOLERANCE = 1e-5
VARIED = [
    PendulumParams(gravity=9.0, mass=0.9, length=1.1),
    PendulumParams(gravity=11.0, mass=1.1, length=0.9),
]


def attributes(params: PendulumParams) -> dict[str, float]:
    return {"g": params.gravity, "m": params.mass, "l": params.length}


@partial(jax.jit, static_argnums=0)
def steps_from(
    world: Pendulum, states: Any, actions: Any, params: PendulumParams
) -> Step[PendulumState]:
    def step_of(state: Any, action: Any) -> Step[PendulumState]:
        held = PendulumState(state[0], state[1], time=jnp.int32(0))
        return world.step(jax.random.key(0), held, action, params)

    return jax.vmap(step_of)(states, actions)


def assert_same(recorded: Any, params: PendulumParams) -> None:
    ours = steps_from(WORLD, recorded.state, recorded.action, params)
    apart = np.asarray(ours.state.angle, np.float64) - recorded.next_state[:, 0]
    apart = (apart + np.pi) % (2 * np.pi) - np.pi  # -pi and pi are one angle
    assert np.abs(apart).max() <= TOLERANCE
    assert np.abs(ours.state.velocity - recorded.next_state[:, 1]).max() <= TOLERANCE
    assert np.abs(ours.observation - recorded.observation).max() <= TOLERANCE
    np.testing.assert_allclose(ours.reward, recorded.reward, rtol=TOLERANCE, atol=TOLERANCE)
    assert not np.asarray(ours.terminated).any()
    assert np.abs(ours.state.angle).max() <= np.float32(np.pi)


def anywhere(count: int, seed: int) -> tuple[Any, Any]:
    """States of every angle and speed; torques within the limits and beyond them."""
    rng = np.random.default_rng(seed)
    widest = np.array([np.pi, SPEED_LIMIT])
    states = rng.uniform(-widest, widest, (count, 2)).astype(np.float32)
    return states, rng.uniform(-3, 3, (count, 1)).astype(np.float32)


@pytest.mark.parametrize("params", [WORLD.default_params(), *VARIED])
def test_steps_from_any_state_are_gymnasiums(gymnasium_steps: Any, params: PendulumParams) -> None:
    states, actions = anywhere(5_000, seed=1)
    recorded = gymnasium_steps.from_states("Pendulum-v1", attributes(params), states, actions)
    # The sample contains what it is for: speeds that are clipped, and angles that wrap.
    assert (np.abs(recorded.next_state[:, 1]) == SPEED_LIMIT).sum() > 50
    assert (np.abs(recorded.next_state[:, 0]) > np.pi).sum() > 50
    assert_same(recorded, params)
    if params in VARIED:
        with pytest.raises(AssertionError):
            assert_same(recorded, WORLD.default_params())


def test_an_angle_of_many_turns_is_the_same_angle(gymnasium_steps: Any) -> None:
    """Gymnasium lets the angle grow; ours stays within a turn."""
    states, actions = anywhere(1_000, seed=2)
    recorded = gymnasium_steps.from_states("Pendulum-v1", {}, states, actions)
    turned = np.random.default_rng(3).integers(-5, 6, 1_000) * 2 * np.pi
    further = states + np.stack([turned, np.zeros(1_000)], axis=1)
    again = gymnasium_steps.from_states("Pendulum-v1", {}, further, actions)
    np.testing.assert_allclose(again.reward, recorded.reward, atol=1e-4)
    assert_same(recorded, WORLD.default_params())


def test_an_episode_starts_where_gymnasiums_does() -> None:
    keys = jax.random.split(jax.random.key(7), 2_000)
    states, _ = jax.vmap(WORLD.reset, (0, None))(keys, WORLD.default_params())
    # All 2000 numbers within 90% of the range: once in 10^91.
    assert 0.9 * np.pi < np.abs(states.angle).max() <= np.float32(np.pi)
    assert 0.9 < np.abs(states.velocity).max() <= 1.0


def test_only_the_time_limit_ends_an_episode() -> None:
    params = PendulumParams(time_limit=3)
    state, _ = WORLD.reset(jax.random.key(0), params)
    for step in (1, 2, 3):
        after = WORLD.step(jax.random.key(0), state, jnp.ones(1), params)
        state = after.state
        assert not after.terminated
        assert bool(after.truncated) == (step == 3)
