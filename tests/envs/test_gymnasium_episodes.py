"""Gymnasium's environments for our policies."""

import importlib.util
import math
from contextlib import closing
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from quorum_rl.envs.gymnasium_bridge import play, play_episodes
from quorum_rl.envs.gymnasium_copies import Copies, Observations, environment_sizes
from quorum_rl.errors import QuorumError


def alternating(observations: Observations, rng: np.random.Generator) -> np.ndarray:
    del rng
    return np.arange(len(observations)) % 2


def leaning(observations: Observations, rng: np.random.Generator) -> np.ndarray:
    """Push the cart to where the pole leans: a deterministic policy."""
    del rng
    return (observations[:, 2] > 0).astype(np.int64)


def uniform(actions: int) -> Any:
    return lambda observations, rng: rng.integers(actions, size=len(observations))


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
    for episode, other in zip(alone, played, strict=True):
        np.testing.assert_array_equal(episode.observations, other.observations)
        np.testing.assert_array_equal(episode.actions, other.actions)
    assert len({episode.observations[0].tobytes() for episode in played}) == 5


def test_short_episodes_are_not_favoured() -> None:
    # A length is uniform on 1…9, whatever the actions: mean 5, variance 60/9. Keeping whichever
    # of many copies end first would give a mean near 1.8. Five standard errors of 400
    # episodes: the false-alarm probability is below 1e-6, were the seed not fixed.
    played = play_episodes(Countdown, uniform(3), episodes=400, copies=100, seed=0)
    lengths = [len(episode.actions) for episode in played]
    assert abs(np.mean(lengths) - 5) < 5 * math.sqrt(60 / 9 / 400)


WINDY = {"gravity": -9.8, "enable_wind": 1, "wind_power": 5, "turbulence_power": 0.5}
BOX2D = pytest.mark.skipif(importlib.util.find_spec("Box2D") is None, reason="needs Box2D")


@pytest.mark.parametrize(
    ("name", "params", "actions"),
    [
        ("CartPole-v1", {"max_episode_steps": 20}, 2),
        pytest.param("LunarLander-v3", WINDY, 4, marks=BOX2D),
    ],
)
def test_episodes_are_gymnasiums_own_to_the_bit(name: str, params: Any, actions: int) -> None:
    """Nine in seven copies, so that some copies begin a second one."""
    seeds = [11, 12, 2**63 + 13, 14, 15, 16, 17, 18, 19]
    rng = np.random.default_rng(0)
    with closing(Copies(name, params, count=7)) as copies:
        played = play(copies, lambda seen: rng.integers(actions, size=len(seen)), seeds)
    if name == "CartPole-v1":
        assert {episode.truncated for episode in played} == {True, False}
    env = gymnasium.make(name, **params)
    for episode, seed in zip(played, seeds, strict=True):
        assert episode.observations.dtype == np.float32
        np.testing.assert_array_equal(episode.observations[0], env.reset(seed=seed)[0])
        for time, action in enumerate(episode.actions):
            observation, reward, terminated, truncated, _ = env.step(int(action))
            np.testing.assert_array_equal(episode.observations[time + 1], observation)
            assert episode.rewards[time] == reward
        assert (episode.terminated, episode.truncated) == (terminated, truncated)


def test_the_seed_decides_policies_that_draw() -> None:
    drawn, same, other = (
        play_episodes("CartPole-v1", uniform(2), episodes=3, copies=2, seed=seed)
        for seed in (7, 7, 8)
    )
    for first, second in zip(drawn, same, strict=True):
        np.testing.assert_array_equal(first.observations, second.observations)
        np.testing.assert_array_equal(first.actions, second.actions)
    assert not np.array_equal(drawn[0].observations[0], other[0].observations[0])


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


@pytest.mark.parametrize(
    ("env", "message"),
    [
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


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"gravitas": 1.0}, r"cannot make 'CartPole-v1': .*gravitas.*\.$"),
        ({"max_episode_steps": -3.0}, r"cannot make 'CartPole-v1': .*\.$"),
        ({"sutton_barto_reward": float("nan")}, "'sutton_barto_reward' is nan: give a finite"),
        ({"sutton_barto_reward": "yes"}, "'sutton_barto_reward' is 'yes': give a finite number"),
    ],
)
def test_parameters_that_an_environment_does_not_take_are_refused(
    params: Any, message: str
) -> None:
    with pytest.raises(QuorumError, match=message):
        play_episodes("CartPole-v1", leaning, params=params, episodes=1)
    with pytest.raises(QuorumError, match="not with a function"):
        play_episodes(Countdown, alternating, params=params, episodes=1)


def test_several_actions_at_once_and_observations_without_a_size_are_refused() -> None:
    class TwoActions(Countdown):
        action_space = spaces.MultiDiscrete([2, 2])  # type: ignore[assignment]

    class AnyLength(Countdown):
        observation_space = spaces.Sequence(spaces.Discrete(2))  # type: ignore[assignment]

    with pytest.raises(QuorumError, match=r"TwoActions has the action space MultiDiscrete"):
        play_episodes(TwoActions, alternating, episodes=1)
    with pytest.raises(QuorumError, match=r"AnyLength has the observation space Sequence"):
        play_episodes(AnyLength, alternating, episodes=1)


def pushing(observations: Observations, rng: np.random.Generator) -> np.ndarray:
    """Along the motion, which swings a pendulum up."""
    del rng
    return np.clip(observations[:, 2:], -2, 2).astype(np.float32)


def test_continuous_actions_are_numbers_that_the_environment_gets() -> None:
    (episode, _) = play_episodes("Pendulum-v1", pushing, episodes=2, seed=3)
    assert episode.actions.shape == (200, 1)
    assert episode.actions.dtype == np.float32
    np.testing.assert_array_equal(episode.actions, pushing(episode.observations[:-1], None))  # type: ignore[arg-type]
    env: Any = gymnasium.make("Pendulum-v1").unwrapped
    env.reset(seed=0)
    cosine, sine, speed = episode.observations[:-1].astype(np.float64).T
    for step in range(200):
        env.state = np.array([np.arctan2(sine[step], cosine[step]), speed[step]])
        observation, reward, *_ = env.step(episode.actions[step])
        np.testing.assert_allclose(observation, episode.observations[step + 1], atol=1e-5)
        np.testing.assert_allclose(reward, episode.rewards[step], atol=1e-5)
    sizes = environment_sizes("Pendulum-v1")
    assert (sizes.action_count, sizes.action_bounds) == (1, ((-2.0, 2.0),))


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.array([[0.0], [2.5]]), "number 0 is 2.5: it lies between -2 and 2"),
        (np.array([[0.0], [np.nan]]), "number 0 is nan"),
        (np.zeros(2), r"float64 of shape \(2,\): .* shape \(2, 1\)"),
        (np.array([["a"], ["b"]]), r"must return the numbers of one action per row"),
    ],
)
def test_a_policy_that_answers_wrong_numbers_is_refused(actions: Any, message: str) -> None:
    with pytest.raises(QuorumError, match=message):
        play_episodes("Pendulum-v1", lambda *_: actions, episodes=2)


def test_continuous_actions_without_bounds_or_of_two_dimensions_are_refused() -> None:
    class Unbounded(Countdown):
        action_space = spaces.Box(-1, np.inf, (2,))  # type: ignore[assignment]

    class Picture(Countdown):
        action_space = spaces.Box(-1, 1, (2, 2))  # type: ignore[assignment]

    with pytest.raises(QuorumError, match=r"Unbounded has the action space .* is not bounded: wr"):
        play_episodes(Unbounded, alternating, episodes=1)
    with pytest.raises(QuorumError, match=r"Picture has the action space .*Box ones of one dimens"):
        play_episodes(Picture, alternating, episodes=1)


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
