"""Pictures show what they should, twice the same, and leave no trace outside themselves."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

from quorum_rl.envs import AnyWorld, get_world, with_params
from quorum_rl.envs.drawing import draw_episode, draw_state, save_figure
from quorum_rl.errors import QuorumError
from quorum_rl.types import Transition

OWN_WORLD = Path(__file__).parents[2] / "examples" / "own_world.py"
NAMES = ("CartPole", "Acrobot", "HIV", f"{OWN_WORLD}:SHOP", "Pendulum", "Breakout", "SpaceInvaders")


def episode(world: AnyWorld, params: Any, steps: int = 6) -> Transition:
    """Steps one by one: cheaper than compiling a roll-out for six of them."""
    key = jax.random.key(0)
    state, observation = world.reset(key, params)
    step = jax.jit(world.step)
    seen = []
    for time in range(steps):
        action = jnp.int32(time % world.spaces.action_count)
        if world.spaces.continuous:
            action = jnp.full(world.spaces.action_count, time / steps)
        after = step(key, state, action, params)
        seen.append(Transition(observation, action, after.reward, *after[1:2], *after[3:]))
        state, observation = after.state, after.observation
    stacked: Transition = jax.tree.map(lambda *leaves: np.stack(leaves), *seen)
    return stacked


@pytest.fixture(scope="module", params=NAMES)
def world(request: pytest.FixtureRequest) -> AnyWorld:
    return get_world(request.param)


@pytest.fixture(scope="module")
def params(world: AnyWorld) -> Any:
    return world.default_params()


@pytest.fixture(scope="module")
def seen(world: AnyWorld, params: Any) -> Transition:
    return episode(world, params)


def curves(figure: Figure) -> dict[str, list[np.ndarray]]:
    """The y values of every line, by the label of its axis."""
    return {
        axes.get_ylabel(): [np.asarray(line.get_ydata()) for line in axes.lines]
        for axes in figure.axes
    }


def test_an_svg_is_the_same_file_each_time_it_is_drawn(
    world: AnyWorld, params: Any, seen: Transition, tmp_path: Path
) -> None:
    for name in ("one.svg", "two.svg"):
        save_figure(draw_episode(world, seen, params, title="An episode"), tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert b"An episode" in (tmp_path / "one.svg").read_bytes()


def test_a_state_can_be_drawn_and_saved(world: AnyWorld, params: Any, tmp_path: Path) -> None:
    state, _ = world.reset(jax.random.key(1), params)
    save_figure(draw_state(world, state, params), tmp_path / "state.png")
    assert (tmp_path / "state.png").read_bytes().startswith(b"\x89PNG")


def test_drawing_changes_none_of_matplotlibs_settings(
    world: AnyWorld, params: Any, seen: Transition, tmp_path: Path
) -> None:
    before = dict(mpl.rcParams)
    save_figure(draw_episode(world, seen, params), tmp_path / "episode.svg")
    assert dict(mpl.rcParams) == before


def test_every_action_taken_is_a_bar_of_its_length_or_a_point_of_its_curve(
    world: AnyWorld, params: Any, seen: Transition
) -> None:
    figure = draw_episode(world, seen, params)
    if world.spaces.continuous:
        np.testing.assert_array_equal(curves(figure)["torque\n(N m)"][0], seen.action[:, 0])
        return
    below = figure.axes[0] if world.name == "Shop" else figure.axes[-1]
    if world.name == "Acrobot":
        below = next(axes for axes in figure.axes if axes.get_ylabel().startswith("torque"))
    spans = [path for bars in below.collections for path in bars.get_paths()]
    total = sum(np.ptp(np.asarray(path.vertices)[:, 0]) for path in spans)
    steps = {"CartPole": 6 * 0.02, "Acrobot": 6 * 0.2, "HIV": 20.0 * 5}
    # HIV's actions are none, drug 1, drug 2, both, none, drug 1: five doses of twenty days.
    np.testing.assert_allclose(total, steps.get(world.name, 6.0), rtol=1e-6)


def test_the_curves_are_the_observations_in_the_stated_units() -> None:
    cartpole, hiv = get_world("CartPole"), get_world("HIV")
    seen = episode(cartpole, cartpole.default_params())
    drawn = curves(draw_episode(cartpole, seen, cartpole.default_params()))
    expected = np.append(seen.observation[:, 2], seen.next_observation[-1, 2]) * 180 / np.pi
    np.testing.assert_allclose(drawn["angle (°)"][0], expected, rtol=1e-6)
    seen = episode(hiv, hiv.default_params())
    figure = draw_episode(hiv, seen, hiv.default_params())
    virus = curves(figure)["concentration (per ml)"][4]
    np.testing.assert_allclose(virus[0], 63919.0, rtol=1e-5)
    assert figure.axes[0].get_yscale() == "log"
    days = np.asarray(figure.axes[0].lines[4].get_xdata())
    np.testing.assert_allclose(days, np.arange(7) * 20.0)


def test_the_tip_of_an_acrobot_is_drawn_as_far_down_or_up_as_its_links_are_long() -> None:
    acrobot = get_world("Acrobot")
    params = with_params(acrobot, link_length_1=1.5)
    state, _ = acrobot.reset(jax.random.key(0), params)
    zero = jnp.float32(0.0)
    for angle, tip in ((0.0, -2.5), (np.pi, 2.5)):
        posed = type(state)(jnp.float32(angle), zero, zero, zero, state.time)
        axes = draw_state(acrobot, posed, params).axes[0]
        ends = np.asarray(axes.lines[-1].get_ydata())
        np.testing.assert_allclose(ends, [tip], rtol=1e-5)


def test_more_than_one_episode_is_refused_with_the_step_where_it_ends() -> None:
    cartpole = get_world("CartPole")
    params = with_params(cartpole, time_limit=4)
    with pytest.raises(QuorumError, match="end an episode at step 4 of 6"):
        draw_episode(cartpole, episode(cartpole, params), params)


def test_transitions_of_many_copies_are_refused_with_the_shape_wanted() -> None:
    cartpole = get_world("CartPole")
    params = cartpole.default_params()
    many = jax.tree.map(lambda leaf: np.stack([leaf, leaf], axis=1), episode(cartpole, params))
    with pytest.raises(QuorumError, match=r"shape \(steps, 4\), not \(6, 2, 4\)"):
        draw_episode(cartpole, many, params)
