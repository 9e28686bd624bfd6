"""LunarLander by itself: what holds without Gymnasium's Box2D beside it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quorum_rl.envs import Step, draw_episode, draw_state, roll_out, start, uniform_policy
from quorum_rl.envs.lunar_lander import LunarLander, LunarLanderParams, LunarLanderState
from quorum_rl.envs.lunar_lander.geometry import HULL, LEG
from quorum_rl.envs.lunar_lander.solver import Lander
from quorum_rl.types import Transition

# Few passes: these tests are not about how exactly the hinges hold.
WORLD = LunarLander(velocity_passes=6, position_passes=4, impact_passes=4)
HOVER = LunarLanderParams(gravity=10.0)


@pytest.fixture(scope="module")
def flown() -> Any:
    return jax.jit(WORLD.flown)


@pytest.fixture(scope="module")
def reset() -> Any:
    return jax.jit(WORLD.reset)


def momentum(lander: Lander) -> Any:
    """Of all three bodies together."""
    bodies = [(HULL, lander.hull), *((LEG, leg.body) for leg in lander.legs)]
    parts = [
        np.array([body.motion.velocity.x, body.motion.velocity.y]) / shape.inverse_mass
        for shape, body in bodies
    ]
    return np.sum(parts, axis=0)


def test_hinges_push_both_ways_so_only_gravity_changes_the_momentum(reset: Any, flown: Any) -> None:
    """Newton's third law holds however few passes the solver makes."""
    mass = 1 / HULL.inverse_mass + 2 / LEG.inverse_mass
    state, _ = reset(jax.random.key(0), HOVER)
    for _ in range(10):
        after: Step[LunarLanderState] = flown(state, jnp.int32(0), jnp.zeros(2), HOVER)
        change = momentum(after.state.lander) - momentum(state.lander)
        np.testing.assert_allclose(change, [0.0, -10.0 * mass / 50], atol=1e-4)
        state = after.state


def test_number_types_stay_the_same_under_64_bit_jax() -> None:
    def types(x64: bool) -> list[str]:
        with jax.enable_x64(x64):
            shapes = jax.eval_shape(
                lambda key: roll_out(
                    WORLD, uniform_policy(WORLD), key, start(WORLD, key, HOVER, 2), HOVER, 2
                ),
                jax.random.key(0),
            )
            return [str(leaf.dtype) for leaf in jax.tree.leaves(shapes)]

    wide = types(True)
    assert wide == types(False)
    assert set(wide) == {"float32", "int32", "bool"}


def test_the_setting_grid_has_a_thousand_worlds_with_the_default_limit() -> None:
    settings: Any = WORLD.settings()
    assert settings.gravity.shape == (1000,)
    assert (settings.time_limit == 1000).all()
    assert (settings.wind_power.min(), settings.wind_power.max()) == (0.0, 5.0)


def test_states_and_episodes_are_drawn_with_the_lander_in_view(reset: Any, flown: Any) -> None:
    begun, observation = reset(jax.random.key(0), HOVER)
    state, rows = begun, []
    for action in (0, 1, 2, 3, 2, 2):
        after = flown(state, jnp.int32(action), jnp.zeros(2), HOVER)
        rows.append(
            Transition(
                observation,
                jnp.int32(action),
                after.reward,
                after.observation,
                after.terminated,
                after.truncated,
            )
        )
        state, observation = after.state, after.observation
    episode = jax.tree.map(lambda *leaves: np.stack(leaves), *rows)
    for figure in (draw_state(WORLD, begun, HOVER), draw_episode(WORLD, episode, HOVER)):
        axes = figure.axes[0]
        low, high = axes.get_ylim()
        corners = np.concatenate([patch.get_path().vertices for patch in axes.patches])
        assert len(axes.patches) >= 3
        assert low < corners[:, 1].min() < corners[:, 1].max() < high
