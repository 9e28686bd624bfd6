"""LunarLander by itself: what holds without Gymnasium's Box2D beside it."""

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium_check import faultless

from quorum_rl.envs import Step, draw_episode, draw_state, gymnasium_bridge
from quorum_rl.envs.lunar_lander import LunarLander, LunarLanderParams, LunarLanderState
from quorum_rl.envs.lunar_lander.geometry import EDGES, HULL, LEG, Pose, vec
from quorum_rl.envs.lunar_lander.impacts import NEAREST, TOLERANCE, first_hit
from quorum_rl.envs.lunar_lander.solver import Lander
from quorum_rl.types import Transition

# Few passes: these tests are not about how exactly the hinges hold.
WORLD = LunarLander(velocity_passes=6, position_passes=4, impact_passes=4)
HOVER = LunarLanderParams(gravity=10.0)


# What the bridge compiles, so that all of these tests share one program.
def begun() -> tuple[LunarLanderState, Any]:
    made: tuple[LunarLanderState, Any] = gymnasium_bridge._first(WORLD, jax.random.key(0), HOVER)
    return made


def flown(state: LunarLanderState, action: int) -> Step[LunarLanderState]:
    made: Step[LunarLanderState] = gymnasium_bridge._next(
        WORLD, jax.random.key(0), 0, state, action, HOVER
    )
    return made


def test_gymnasium_finds_nothing_wrong_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gymnasium_bridge, "get_world", lambda _: WORLD)
    faultless(gymnasium.make("quorum/LunarLander-v0", render_mode="rgb_array"))


def momentum(lander: Lander) -> Any:
    """Of all three bodies together."""
    bodies = [(HULL, lander.hull), *((LEG, leg.body) for leg in lander.legs)]
    parts = [
        np.array([body.motion.velocity.x, body.motion.velocity.y]) / shape.inverse_mass
        for shape, body in bodies
    ]
    return np.sum(parts, axis=0)


def test_hinges_push_both_ways_so_only_gravity_changes_the_momentum() -> None:
    """Newton's third law holds however few passes the solver makes."""
    mass = 1 / HULL.inverse_mass + 2 / LEG.inverse_mass
    state, _ = begun()
    for _ in range(10):
        after = flown(state, 0)
        change = momentum(after.state.lander) - momentum(state.lander)
        np.testing.assert_allclose(change, [0.0, -10.0 * mass / 50], atol=1e-4)
        state = after.state


def test_a_leg_hits_the_ground_however_far_it_would_fall_through_it() -> None:
    """Upright above level ground, so that the time is known; most of these end below the ground."""
    level, gap = 3.0, 0.04
    falls = np.array([0.01, 0.03, 0.05, 0.3, 0.58, 0.8, 1.5], np.float32)
    half = float(LEG.vertices[:, 1].max())

    def share(fall: Any) -> Any:
        high, flat = level + half + gap, jnp.float32(0)
        start, end = Pose(vec(9.0, high), flat), Pose(vec(9.0, high - fall), flat)
        return first_hit(LEG, start, end, jnp.full(EDGES + 1, level, jnp.float32))

    found = jax.jit(jax.vmap(share))(falls)
    metres = np.asarray(found) * falls
    hits = falls > gap
    np.testing.assert_array_equal(found[~hits], 1.0)
    np.testing.assert_allclose(metres[hits], gap - NEAREST, atol=TOLERANCE)


def test_number_types_stay_the_same_under_64_bit_jax() -> None:
    def types(x64: bool) -> tuple[list[str], list[str]]:
        with jax.enable_x64(x64):
            key = jax.random.key(0)
            begun, _ = jax.eval_shape(WORLD.reset, key, HOVER)
            action = jax.ShapeDtypeStruct((), jnp.int32)
            after = jax.eval_shape(WORLD.step, key, begun, action, HOVER)
        assert jax.tree.map(kind, after.state) == jax.tree.map(kind, begun)
        return jax.tree.leaves(jax.tree.map(kind, begun)), jax.tree.leaves(
            jax.tree.map(kind, after)
        )

    def kind(leaf: Any) -> str:
        return f"{leaf.dtype}{leaf.shape}"

    wide = types(True)
    assert wide == types(False)
    assert {name.partition("(")[0] for name in wide[1]} == {"float32", "int32", "bool"}


def test_states_and_episodes_are_drawn_with_the_lander_in_view() -> None:
    first, observation = begun()
    state, rows = first, []
    for action in (0, 1, 2, 3, 2, 2):
        after = flown(state, action)
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
    over_ground = draw_episode(WORLD, episode, HOVER, state=first)
    (ground,) = over_ground.axes[0].collections
    drawn = np.asarray(ground.get_paths()[0].vertices)[:, 1]
    assert set(np.asarray(first.ground)) <= set(drawn)
    assert not draw_episode(WORLD, episode, HOVER).axes[0].collections  # nobody saw it
    for figure in (draw_state(WORLD, first, HOVER), over_ground):
        axes = figure.axes[0]
        low, high = axes.get_ylim()
        corners = np.concatenate([patch.get_path().vertices for patch in axes.patches])
        assert len(axes.patches) >= 3
        assert low < corners[:, 1].min() < corners[:, 1].max() < high
