"""The bridge to Gymnasium: our worlds as its environments, its environments for our policies."""

import math
import subprocess
import sys
import warnings
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from gymnasium.utils.seeding import np_random

from quorum_rl.envs import get_world, gymnasium_bridge, with_params, world_names
from quorum_rl.envs.gymnasium_bridge import Observations, WorldEnv, episode_key, play_episodes
from quorum_rl.errors import QuorumError
from quorum_rl.gymnasium_worlds import GYMNASIUM_WORLDS, register_worlds

NAMES = tuple(GYMNASIUM_WORLDS)
CARTPOLE = "quorum/CartPole-v0"


def alternating(observations: Observations, rng: np.random.Generator) -> np.ndarray:
    del rng
    return np.arange(len(observations)) % 2


def leaning(observations: Observations, rng: np.random.Generator) -> np.ndarray:
    """Push the cart to where the pole leans: a deterministic policy."""
    del rng
    return (observations[:, 2] > 0).astype(np.int64)


def uniform(actions: int) -> Any:
    return lambda observations, rng: rng.integers(actions, size=len(observations))


def episode_of(env: gymnasium.Env[Any, Any], actions: list[int], **reset: Any) -> list[Any]:
    """Every observation, reward and pair of flags until the actions are used up."""
    seen: list[Any] = [env.reset(**reset)[0].tolist()]
    for action in actions:
        observation, reward, terminated, truncated, _ = env.step(action)
        seen.append((observation.tolist(), reward, terminated, truncated))
    return seen


# --- our worlds as Gymnasium environments ---


def test_every_world_is_registered() -> None:
    assert set(GYMNASIUM_WORLDS.values()) == set(world_names())
    assert set(NAMES) <= set(gymnasium.registry)


@pytest.mark.parametrize("name", NAMES)
def test_gymnasium_finds_nothing_wrong_with(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # CartPole's velocities are unbounded in Gymnasium's own environment, too.
        warnings.filterwarnings("ignore", message=".*A Box observation space.*infinity.*")
        check_env(gymnasium.make(name).unwrapped)


def test_registering_again_changes_nothing() -> None:
    before = dict(gymnasium.registry)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        register_worlds()
    assert dict(gymnasium.registry) == before


def test_importing_the_names_registers_the_worlds_and_leaves_jax_alone() -> None:
    program = (
        "import sys, gymnasium\n"
        "import quorum_rl.gymnasium_worlds\n"
        f"gymnasium.spec({CARTPOLE!r})\n"
        "assert 'jax' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    assert gymnasium.make(f"quorum_rl.gymnasium_worlds:{CARTPOLE}").unwrapped.render() is None


@pytest.mark.parametrize(
    ("name", "overrides"),
    [(NAMES[0], {"gravity": 9.0}), (NAMES[1], {}), (NAMES[2], {"efficacy_noise": 0.01})],
)
def test_an_episode_is_the_one_of_the_pure_functions(name: str, overrides: dict[str, Any]) -> None:
    world = get_world(GYMNASIUM_WORLDS[name])
    params = with_params(world, **overrides)
    actions = [0, 1, 1, 0, 1]
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
    one, other = gymnasium.make(CARTPOLE), gymnasium.make(CARTPOLE)
    actions = [0, 1, 0, 0]
    assert episode_of(one, actions, seed=5) == episode_of(other, actions, seed=5)
    # Episodes after a seeded one follow from the seed as well, and differ from it.
    assert episode_of(one, actions) == episode_of(other, actions)
    assert episode_of(one, actions, seed=5) != episode_of(one, actions)
    assert episode_of(one, actions, seed=6) != episode_of(other, actions, seed=5)


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


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_is_an_rgb_array(name: str) -> None:
    env = gymnasium.make(name, render_mode="rgb_array")
    with pytest.raises(QuorumError, match=r"call reset\(\) before render\(\)"):
        env.unwrapped.render()
    env.reset(seed=0)
    before: Any = env.render()
    env.step(0)
    after: Any = env.render()
    assert before.dtype == np.uint8
    assert before.ndim == 3
    assert before.shape[2] == 3
    assert before.std() > 0
    assert not np.array_equal(before, after)


# --- Gymnasium's environments for our policies ---


class Countdown(gymnasium.Env[Any, Any]):
    """Ends when as many right actions as its seed says were taken; actions are -1, 0 and 1."""

    observation_space = spaces.Dict({"left": spaces.Discrete(10), "place": spaces.Box(-1, 1, (2,))})
    action_space = spaces.Discrete(3, start=-1)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.left = int(self.np_random.integers(1, 10))
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        return self._seen(), float(action), self.left == 0, False, {}

    def _seen(self) -> dict[str, Any]:
        return {"left": self.left, "place": np.full(2, self.left / 10, np.float32)}


@pytest.mark.parametrize("copies", [1, 3, 5, 50])
def test_exactly_the_episodes_asked_for_are_played_whatever_the_copies(copies: int) -> None:
    alone = play_episodes("CartPole-v1", leaning, episodes=5, copies=2, seed=1)
    played = play_episodes("CartPole-v1", leaning, episodes=5, copies=copies, seed=1)
    assert len(played) == 5
    for one, other in zip(alone, played, strict=True):
        np.testing.assert_array_equal(one.observations, other.observations)
        np.testing.assert_array_equal(one.actions, other.actions)
    assert len({episode.observations[0].tobytes() for episode in played}) == 5


def test_short_episodes_are_not_favoured() -> None:
    # A length is uniform on 1…9, whatever the actions: mean 5, variance 60/9. Keeping whichever
    # of many copies end first would give a mean near 1.8. Five standard errors of 400
    # episodes: the false-alarm probability is below 1e-6, were the seed not fixed.
    played = play_episodes(Countdown, uniform(3), episodes=400, copies=100, seed=0)
    lengths = [len(episode.actions) for episode in played]
    assert abs(np.mean(lengths) - 5) < 5 * math.sqrt(60 / 9 / 400)


def test_an_episode_can_be_replayed_in_gymnasium() -> None:
    (episode,) = play_episodes("CartPole-v1", uniform(2), episodes=1, seed=2)
    steps = len(episode.actions)
    assert episode.observations.shape == (steps + 1, 4)
    assert episode.observations.dtype == np.float32
    assert episode.rewards.tolist() == [1.0] * steps
    assert (episode.terminated, episode.truncated) == (True, False)

    env: Any = gymnasium.make("CartPole-v1").unwrapped
    env.reset(seed=0)
    env.state = episode.observations[0].astype(np.float64)
    for action, after in zip(episode.actions, episode.observations[1:], strict=True):
        np.testing.assert_allclose(env.step(int(action))[0], after, rtol=1e-4, atol=1e-5)


def test_a_time_limit_shows_as_truncated() -> None:
    (episode,) = play_episodes(
        lambda: gymnasium.make("CartPole-v1", max_episode_steps=4), leaning, episodes=1
    )
    assert (len(episode.actions), episode.terminated, episode.truncated) == (4, False, True)


def test_the_seed_decides_policies_that_draw() -> None:
    one, same, other = (
        play_episodes("CartPole-v1", uniform(2), episodes=3, copies=2, seed=seed)
        for seed in (7, 7, 8)
    )
    for first, second in zip(one, same, strict=True):
        np.testing.assert_array_equal(first.observations, second.observations)
        np.testing.assert_array_equal(first.actions, second.actions)
    assert not np.array_equal(one[0].observations[0], other[0].observations[0])


def test_discrete_observations_become_one_hot() -> None:
    episodes = play_episodes("FrozenLake-v1", uniform(4), episodes=6, copies=4)
    for episode in episodes:
        assert episode.observations.shape[1] == 16
        np.testing.assert_array_equal(episode.observations.sum(axis=1), 1)
        assert episode.observations[0, 0] == 1  # the lake's start
        end = int(episode.observations[-1].argmax())
        assert episode.terminated == (end in {5, 7, 11, 12, 15})  # its holes and its goal


def test_structured_observations_are_flattened_and_actions_counted_from_zero() -> None:
    for episode in play_episodes(Countdown, alternating, episodes=4, copies=2):
        left = episode.observations[:, :10].argmax(axis=1)
        np.testing.assert_array_equal(left, np.arange(len(episode.actions), -1, -1))
        np.testing.assert_allclose(episode.observations[:, 11], left / 10, rtol=1e-6)
        # The reward is the action as the environment sees it.
        np.testing.assert_array_equal(episode.rewards, episode.actions - 1)


def test_a_policy_always_sees_the_same_number_of_rows() -> None:
    shapes = set()

    def watching(observations: Observations, rng: np.random.Generator) -> np.ndarray:
        shapes.add(observations.shape)
        return alternating(observations, rng)

    play_episodes(Countdown, watching, episodes=7, copies=3)
    assert shapes == {(3, 12)}


def test_our_own_worlds_can_be_played_by_name() -> None:
    (episode,) = play_episodes(CARTPOLE, leaning, episodes=1)
    assert episode.observations.shape == (len(episode.actions) + 1, 4)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("Pendulum-v1", r"Pendulum-v1 has the action space Box.*only Discrete"),
        ("CartPool-v1", "Gymnasium cannot make 'CartPool-v1'"),
        ("no such name", "Gymnasium cannot make 'no such name'"),
        ("no_such_module:CartPole-v1", "no_such_module"),
        ("quorum/Maze-v0", "Gymnasium cannot make"),
        (lambda: None, "must return a Gymnasium environment"),
    ],
)
def test_environments_that_cannot_be_played_are_refused(env: Any, message: str) -> None:
    with pytest.raises(QuorumError, match=message):
        play_episodes(env, alternating, episodes=2)


def test_several_actions_at_once_and_observations_without_a_size_are_refused() -> None:
    class TwoActions(Countdown):
        action_space = spaces.MultiDiscrete([2, 2])  # type: ignore[assignment]

    class AnyLength(Countdown):
        observation_space = spaces.Sequence(spaces.Discrete(2))  # type: ignore[assignment]

    with pytest.raises(QuorumError, match=r"TwoActions has the action space MultiDiscrete"):
        play_episodes(TwoActions, alternating, episodes=1)
    with pytest.raises(QuorumError, match=r"AnyLength has the observation space Sequence"):
        play_episodes(AnyLength, alternating, episodes=1)


def test_one_environment_for_all_copies_is_refused() -> None:
    env = Countdown()
    with pytest.raises(QuorumError, match="the same environment twice"):
        play_episodes(lambda: env, alternating, episodes=2)


def test_counts_below_one_are_refused() -> None:
    with pytest.raises(QuorumError, match="episodes is 0"):
        play_episodes(Countdown, alternating, episodes=0)
    with pytest.raises(QuorumError, match="copies is -1"):
        play_episodes(Countdown, alternating, episodes=1, copies=-1)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.array([0, 3]), "action 3: the actions are 0 to 2"),
        (np.array([-1, 0]), "action -1"),
        (np.array([0.0, 1.0]), "float64"),
        (np.array([0]), r"shape \(1,\): .* shape \(2,\)"),
    ],
)
def test_a_policy_that_answers_wrongly_is_refused(actions: Any, message: str) -> None:
    with pytest.raises(QuorumError, match=message):
        play_episodes(Countdown, lambda *_: actions, episodes=2)
