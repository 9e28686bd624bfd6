"""Our worlds as Gymnasium environments."""

import math
import subprocess
import sys
import warnings
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.utils.seeding import np_random
from gymnasium_check import faultless

from quorum_rl.envs import get_world, gymnasium_bridge, with_params, world_names
from quorum_rl.envs.gymnasium_bridge import WorldEnv, episode_key
from quorum_rl.envs.gymnasium_worlds import GYMNASIUM_WORLDS
from quorum_rl.errors import QuorumError

NAMES = tuple(GYMNASIUM_WORLDS)
CARTPOLE = "quorum/CartPole-v0"
# LunarLander's own tests compile it, and ask Gymnasium about it and for its picture.
CHECKED_HERE = [name for name in NAMES if "LunarLander" not in name]


def episode_of(env: gymnasium.Env[Any, Any], actions: list[int], **reset: Any) -> list[Any]:
    """Every observation, reward and pair of flags until the actions are used up."""
    seen: list[Any] = [env.reset(**reset)[0].tolist()]
    for action in actions:
        observation, reward, terminated, truncated, _ = env.step(action)
        seen.append((observation.tolist(), reward, terminated, truncated))
    return seen


def test_every_world_is_registered() -> None:
    assert set(GYMNASIUM_WORLDS.values()) == set(world_names())
    assert set(NAMES) <= set(gymnasium.registry)


@pytest.mark.parametrize("name", CHECKED_HERE)
def test_gymnasium_finds_nothing_wrong_with(name: str) -> None:
    faultless(gymnasium.make(name))


def test_importing_the_names_registers_the_worlds_and_leaves_jax_alone() -> None:
    program = (
        "import sys, gymnasium\n"
        "import quorum_rl.envs.gymnasium_worlds\n"
        f"gymnasium.spec({CARTPOLE!r})\n"
        "assert 'jax' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    assert gymnasium.make(f"quorum_rl.envs.gymnasium_worlds:{CARTPOLE}").unwrapped.render() is None


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        (NAMES[0], {"gravity": 9.0}),
        (NAMES[1], {}),
        ("quorum/HIV-v0", {"efficacy_noise": 0.01}),
        ("quorum/Pendulum-v0", {"length": 0.9}),
    ],
)
def test_an_episode_is_the_one_of_the_pure_functions(name: str, overrides: dict[str, Any]) -> None:
    world = get_world(GYMNASIUM_WORLDS[name])
    params = with_params(world, **overrides)
    actions: list[Any] = [0, 1, 1, 0, 1]
    if world.spaces.continuous:
        actions = [np.array([2 * action - 1], np.float32) for action in actions]
    start_key, steps_key = jax.random.split(episode_key(np_random(3)[0]))
    state, observation = world.reset(start_key, params)
    pure_step = jax.jit(world.step)

    env = WorldEnv(world, **overrides)
    seen, _ = env.reset(seed=3)
    np.testing.assert_allclose(seen, observation, rtol=1e-6)
    for time, action in enumerate(actions):
        expected = pure_step(jax.random.fold_in(steps_key, time), state, action, params)
        state = expected.state
        seen, reward, terminated, truncated, _ = env.step(action)
        np.testing.assert_allclose(seen, expected.observation, rtol=1e-5, atol=1e-6)
        assert reward == pytest.approx(float(expected.reward), rel=1e-5)
        assert (terminated, truncated) == (bool(expected.terminated), bool(expected.truncated))


def test_the_same_seed_gives_the_same_episode_and_another_seed_another() -> None:
    env, other = gymnasium.make(CARTPOLE), gymnasium.make(CARTPOLE)
    actions = [0, 1, 0, 0]
    assert episode_of(env, actions, seed=5) == episode_of(other, actions, seed=5)
    # Episodes after a seeded one follow from the seed as well, and differ from it.
    assert episode_of(env, actions) == episode_of(other, actions)
    assert episode_of(env, actions, seed=5) != episode_of(env, actions)
    assert episode_of(env, actions, seed=6) != episode_of(other, actions, seed=5)


def test_noise_inside_an_episode_follows_the_seed() -> None:
    env = gymnasium.make("quorum/HIV-v0", efficacy_noise=0.3)
    first = episode_of(env, [3, 3], seed=1)
    assert first == episode_of(env, [3, 3], seed=1)
    assert first != episode_of(env, [3, 3], seed=2)


def test_without_a_seed_two_environments_start_apart() -> None:
    # Four float32 numbers coincide with probability below 1e-20.
    starts = [gymnasium.make(CARTPOLE).reset()[0] for _ in range(2)]
    assert not np.array_equal(*starts)


def test_the_time_limit_truncates_and_results_are_plain_python() -> None:
    env = gymnasium.make("quorum/Acrobot-v0", time_limit=3)
    flags = []
    env.reset(seed=0)
    for _ in range(3):
        observation, reward, terminated, truncated, info = env.step(np.int64(1))
        assert observation.dtype == np.float32
        assert type(reward) is float
        assert type(terminated) is bool
        assert type(truncated) is bool
        assert info == {}
        flags.append((terminated, truncated))
    assert flags == [(False, False), (False, False), (False, True)]


def test_a_fallen_pole_terminates_and_then_the_world_stands_still_with_a_warning() -> None:
    env = gymnasium.make(CARTPOLE)
    env.reset(seed=0)
    terminated, steps = False, 0
    while not terminated:
        observation, reward, terminated, truncated, _ = env.step(0)
        steps += 1
    assert 5 < steps < 20
    assert reward == 1.0
    assert not truncated
    with pytest.warns(UserWarning, match="has ended"):
        still, nothing, *flags, _ = env.step(1)
    np.testing.assert_array_equal(still, observation)
    assert (nothing, *flags) == (0.0, True, False)
    env.reset()
    assert env.step(1)[1] == 1.0


def test_options_are_parameters_of_one_episode_only() -> None:
    env, heavy = gymnasium.make(CARTPOLE), gymnasium.make(CARTPOLE, cart_mass=2.0)
    plain = episode_of(env, [1, 1], seed=4)
    assert episode_of(env, [1, 1], seed=4, options={"cart_mass": 2.0}) == episode_of(
        heavy, [1, 1], seed=4
    )
    assert episode_of(env, [1, 1], seed=4) == plain
    # What make() was given holds where options say nothing.
    assert episode_of(heavy, [1, 1], seed=4, options={"gravity": 9.8}) != plain


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gravityy": 9.0}, "did you mean gravity"),
        ({"gravity": math.nan}, "must be finite"),
        ({"time_limit": 0}, "at least 1 step"),
        ({3: 1.0}, "unknown CartPole parameter '3'"),
    ],
)
def test_wrong_options_are_refused(options: dict[Any, Any], message: str) -> None:
    with pytest.raises(QuorumError, match=message):
        gymnasium.make(CARTPOLE).reset(options=options)


def test_wrong_parameters_worlds_and_render_modes_are_refused_when_made() -> None:
    with pytest.raises(QuorumError, match="unknown CartPole parameter 'mass'"):
        gymnasium.make(CARTPOLE, mass=1.0)
    with pytest.raises(QuorumError, match="must be finite"):
        gymnasium.make(CARTPOLE, gravity=math.inf)
    with pytest.raises(QuorumError, match="unknown world"):
        WorldEnv("CartPol")
    with pytest.raises(QuorumError, match="render mode 'human' is not supported"):
        WorldEnv("CartPole", render_mode="human")


@pytest.mark.parametrize("action", [2, -1, 1.0, "left", None, np.array([0]), 2**40])
def test_an_action_the_world_does_not_have_is_refused(action: Any) -> None:
    env = gymnasium.make(CARTPOLE)
    env.reset(seed=0)
    with pytest.raises(QuorumError, match=r"no action .*from 0 to 1 \(left, right\)"):
        env.step(action)


@pytest.mark.parametrize("action", [0, [1.0, 2.0], "left", None, [math.nan], [math.inf]])
def test_what_is_no_continuous_action_is_refused(action: Any) -> None:
    env = gymnasium.make("quorum/Pendulum-v0", disable_env_checker=True)
    env.reset(seed=0)
    with pytest.raises(QuorumError, match=r"no action .*give an array of 1 finite number \(torque"):
        env.step(action)


def test_a_continuous_action_is_cut_to_its_bounds() -> None:
    seen = []
    for torque in (2.0, 7.0):
        env = gymnasium.make("quorum/Pendulum-v0")
        env.reset(seed=0)
        seen.append(env.step(np.array([torque], np.float32))[:2])
    np.testing.assert_array_equal(seen[0][0], seen[1][0])
    assert seen[0][1] == seen[1][1]


def test_a_step_before_the_first_reset_is_refused() -> None:
    with pytest.raises(QuorumError, match=r"call reset\(\) before step\(\)"):
        gymnasium.make(CARTPOLE).step(0)


def test_environments_of_one_world_share_one_compiled_step() -> None:
    compiled: Any = gymnasium_bridge._next
    episode_of(gymnasium.make(CARTPOLE), [0], seed=0)
    before = compiled._cache_size()
    for gravity in (9, 10.0):
        env = gymnasium.make(CARTPOLE, gravity=gravity, time_limit=gravity)
        episode_of(env, [0, 1, 1], seed=0)
        episode_of(env, [0, 1], options={"force": np.float64(9)})
    assert compiled._cache_size() == before


def test_gymnasium_can_run_copies_of_a_world_past_their_ends() -> None:
    envs = gymnasium.make_vec(CARTPOLE, num_envs=2, vectorization_mode="sync", time_limit=4)
    envs.reset(seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stopped = [envs.step(np.array([0, 1]))[3].tolist() for _ in range(9)]
    # A step after the end is Gymnasium's own: it restarts the copy.
    assert stopped == [[time in (3, 8)] * 2 for time in range(9)]


@pytest.mark.parametrize("name", CHECKED_HERE)
def test_a_picture_is_an_rgb_array(name: str) -> None:
    env = gymnasium.make(name, render_mode="rgb_array")
    with pytest.raises(QuorumError, match=r"call reset\(\) before render\(\)"):
        env.unwrapped.render()
    env.reset(seed=0)
    before: Any = env.render()
    env.step(np.ones(1) if isinstance(env.action_space, gymnasium.spaces.Box) else 0)
    after: Any = env.render()
    assert before.dtype == np.uint8
    assert before.ndim == 3
    assert before.shape[2] == 3
    assert before.std() > 0
    assert not np.array_equal(before, after)
