"""Acrobot against Gymnasium's Acrobot-v1, one step at a time from the same states."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quorum_rl.envs.acrobot import (
    VELOCITY_LIMIT_1,
    VELOCITY_LIMIT_2,
    Acrobot,
    AcrobotParams,
    AcrobotState,
)
from quorum_rl.envs.world import Step

WORLD = Acrobot()
TOLERANCE = 1e-5
VARIED = [
    AcrobotParams(link_length_1=0.8, link_length_2=0.8, link_mass_1=0.9, link_mass_2=1.1),
    AcrobotParams(link_length_1=1.2, link_length_2=1.2, link_mass_1=1.1, link_mass_2=0.9),
]


def attributes(params: AcrobotParams) -> dict[str, float]:
    return {
        "LINK_LENGTH_1": params.link_length_1,
        "LINK_LENGTH_2": params.link_length_2,
        "LINK_MASS_1": params.link_mass_1,
        "LINK_MASS_2": params.link_mass_2,
    }


@partial(jax.jit, static_argnums=0)
def steps_from(
    world: Acrobot, states: Any, actions: Any, params: AcrobotParams
) -> Step[AcrobotState]:
    def step_of(state: Any, action: Any) -> Step[AcrobotState]:
        held = AcrobotState(state[0], state[1], state[2], state[3], time=jnp.int32(0))
        return world.step(jax.random.key(0), held, action, params)

    return jax.vmap(step_of)(states, actions)


def errors(ours: Step[AcrobotState], recorded: Any) -> Any:
    """Distance of each entry of the state from Gymnasium's; -pi and pi are one angle."""
    state = ours.state
    got = np.stack([state.angle_1, state.angle_2, state.velocity_1, state.velocity_2], axis=1)
    return distance(got.astype(np.float64), recorded.next_state)


def distance(states: Any, others: Any) -> Any:
    apart = states - others
    apart[:, :2] = (apart[:, :2] + np.pi) % (2 * np.pi) - np.pi
    return np.abs(apart)


def assert_same(recorded: Any, params: AcrobotParams, world: Acrobot = WORLD) -> None:
    ours = steps_from(world, recorded.state, recorded.action, params)
    assert errors(ours, recorded).max() <= TOLERANCE
    assert_same_flags(ours, recorded)
    assert np.abs(ours.observation - recorded.observation).max() <= TOLERANCE


def assert_same_flags(ours: Step[AcrobotState], recorded: Any) -> None:
    np.testing.assert_array_equal(ours.reward, recorded.reward)
    np.testing.assert_array_equal(ours.terminated, recorded.terminated)
    assert max(np.abs(ours.state.angle_1).max(), np.abs(ours.state.angle_2).max()) <= np.float32(
        np.pi
    )


def uniform(state: Any, rng: Any) -> int:
    del state
    return int(rng.integers(3))


def pumping(state: Any, rng: Any) -> int:
    """Pushes along the second link's motion, with some mistakes, so that energy grows."""
    return int(rng.integers(3)) if rng.random() < 0.1 else int(np.sign(state[3])) + 1


def test_random_and_pumped_steps_of_the_default_world_are_gymnasiums(gymnasium_steps: Any) -> None:
    params = WORLD.default_params()
    for policy, seed in ((uniform, 1), (pumping, 2)):
        recorded = gymnasium_steps.along("Acrobot-v1", {}, 10_000, policy, seed=seed)
        assert_same(recorded, params)
    assert recorded.terminated.sum() > 50


def test_states_of_high_energy_are_stepped_like_gymnasiums(gymnasium_steps: Any) -> None:
    recorded = gymnasium_steps.along("Acrobot-v1", {}, 10_000, pumping, seed=3, through_ends=True)
    # The sample contains what it is for: fast links whose angles wrap, below and above the bar.
    assert np.abs(recorded.state[:, 2]).max() > 0.9 * VELOCITY_LIMIT_1
    assert np.abs(recorded.state[:, 3]).max() > 0.6 * VELOCITY_LIMIT_2
    jumps = np.abs(recorded.next_state[:, :2] - recorded.state[:, :2]) > np.pi
    assert (jumps.sum(axis=0) > 50).all()
    assert 0.1 < recorded.terminated.mean() < 0.9
    assert_same(recorded, WORLD.default_params())


def test_velocities_are_clipped_where_gymnasium_clips_them(gymnasium_steps: Any) -> None:
    """Corners the policies above do not reach: one step there magnifies a rounded state.

    Moving a state by float32 rounding moves Gymnasium's own successor by up to 2e-3 there, so the
    bound is the tolerance plus a few such roundings.
    """
    rng = np.random.default_rng(4)
    widest = np.array([np.pi, np.pi, VELOCITY_LIMIT_1, VELOCITY_LIMIT_2])
    states = rng.uniform(-widest, widest, (3_000, 4)).astype(np.float32)
    actions = rng.integers(3, size=3_000)
    recorded = gymnasium_steps.from_states("Acrobot-v1", {}, states, actions)
    assert (np.abs(recorded.next_state[:, 2]) == VELOCITY_LIMIT_1).sum() > 300
    assert (np.abs(recorded.next_state[:, 3]) == VELOCITY_LIMIT_2).sum() > 200
    rounding = 0.0
    for entry in range(4):
        moved = states.astype(np.float64)
        moved[:, entry] += np.spacing(np.abs(states[:, entry]))
        after = gymnasium_steps.from_states("Acrobot-v1", {}, moved, actions)
        rounding += distance(after.next_state, recorded.next_state)
    ours = steps_from(WORLD, states, actions, WORLD.default_params())
    error = errors(ours, recorded)
    assert (error <= TOLERANCE + 4 * rounding).all()
    assert (np.quantile(error, 0.9, axis=0) <= TOLERANCE).all()
    assert_same_flags(ours, recorded)


@pytest.mark.parametrize("params", VARIED)
def test_varied_parameters_mean_what_they_mean_in_gymnasium(
    gymnasium_steps: Any, params: AcrobotParams
) -> None:
    """Lengths and masses alone: centres of mass and moments of inertia stay."""
    recorded = gymnasium_steps.along("Acrobot-v1", attributes(params), 10_000, pumping, seed=5)
    assert_same(recorded, params)
    with pytest.raises(AssertionError):
        assert_same(recorded, WORLD.default_params())


def test_the_half_length_option_moves_the_centres_of_mass(gymnasium_steps: Any) -> None:
    params = AcrobotParams(link_length_1=0.8, link_length_2=1.2)
    centres = {"LINK_COM_POS_1": 0.4, "LINK_COM_POS_2": 0.6}
    recorded = gymnasium_steps.along(
        "Acrobot-v1", attributes(params) | centres, 2_000, pumping, seed=6
    )
    assert_same(recorded, params, Acrobot(centre_of_mass_at_half_length=True))
    with pytest.raises(AssertionError):
        assert_same(recorded, params)


def test_an_episode_starts_within_gymnasiums_range() -> None:
    keys = jax.random.split(jax.random.key(7), 2_000)
    states, _ = jax.vmap(WORLD.reset, (0, None))(keys, WORLD.default_params())
    for start in (states.angle_1, states.angle_2, states.velocity_1, states.velocity_2):
        # All 2000 numbers within 90% of the range: once in 10^91.
        assert 0.09 < np.abs(start).max() <= np.float32(0.1)
