"""Gymnasium's environments in worker processes: the same episodes, and a clear end if one dies."""

import importlib.util
import multiprocessing
import os
import signal
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from quorum_rl.envs.gymnasium_bridge import play, play_episodes
from quorum_rl.envs.gymnasium_copies import EnvParams, Observations, open_copies
from quorum_rl.errors import QuorumError
from quorum_rl.types import Episode

SEEDS = [11, 12, 2**63 + 13, 14, 15, 16, 17, 18, 19]


def assert_same(played: list[Episode], others: list[Episode]) -> None:
    for episode, other in zip(played, others, strict=True):
        np.testing.assert_array_equal(episode.observations, other.observations)
        np.testing.assert_array_equal(episode.actions, other.actions)
        np.testing.assert_array_equal(episode.rewards, other.rewards)
        assert (episode.terminated, episode.truncated) == (other.terminated, other.truncated)


def assert_gymnasiums_own(played: list[Episode], env: gymnasium.Env[Any, Any]) -> None:
    """The episodes are, bit for bit, what this environment does from the same seeds."""
    for episode, seed in zip(played, SEEDS, strict=True):
        first, _ = env.reset(seed=seed)
        np.testing.assert_array_equal(episode.observations[0], first)
        for time, action in enumerate(episode.actions):
            observation, reward, terminated, truncated, _ = env.step(int(action))
            np.testing.assert_array_equal(episode.observations[time + 1], observation)
            assert episode.rewards[time] == reward
        assert (episode.terminated, episode.truncated) == (terminated, truncated)


def played_with(workers: int, env: str, params: EnvParams, actions: int) -> list[Episode]:
    """One episode from each seed, in fewer copies, by a policy that draws."""
    rng = np.random.default_rng(0)

    def drawing(observations: Observations) -> Any:
        return rng.integers(actions, size=len(observations))

    with open_copies(env, params, count=7, workers=workers) as copies:
        return play(copies, drawing, SEEDS)


def strange(does: Any) -> Any:
    """A class of environments that do `does` when stepped; workers get it as a value."""

    class Strange(gymnasium.Env[Any, Any]):
        observation_space = spaces.Box(-1, 1, (1,))
        action_space = spaces.Discrete(2)

        def reset(
            self, *, seed: int | None = None, options: dict[str, Any] | None = None
        ) -> tuple[Any, dict[str, Any]]:
            super().reset(seed=seed, options=options)
            return np.zeros(1, np.float32), {}

        def step(self, _: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            return np.full(1, does(), np.float32), 0.0, True, False, {}

    return Strange


def zeros(observations: Observations, rng: np.random.Generator) -> Any:
    del rng
    return np.zeros(len(observations), np.int64)


@pytest.fixture(autouse=True)
def no_worker_is_left() -> Any:
    yield
    assert multiprocessing.active_children() == []


def test_episodes_are_gymnasiums_own_whatever_the_number_of_workers() -> None:
    params = {"max_episode_steps": 20}
    here, two, three = (played_with(workers, "CartPole-v1", params, 2) for workers in (1, 2, 3))
    assert {episode.truncated for episode in here} == {True, False}
    assert_gymnasiums_own(here, gymnasium.make("CartPole-v1", max_episode_steps=20))
    assert_same(here, two)
    assert_same(here, three)


@pytest.mark.skipif(importlib.util.find_spec("Box2D") is None, reason="Box2D is not installed")
def test_the_real_lander_takes_parameters_and_any_number_of_workers() -> None:
    params = {"gravity": -9.8, "enable_wind": 1, "wind_power": 5, "turbulence_power": 0.5}
    here, two = (played_with(workers, "LunarLander-v3", params, 4) for workers in (1, 2))
    assert_same(here, two)
    assert_gymnasiums_own(
        here,
        gymnasium.make(
            "LunarLander-v3", gravity=-9.8, enable_wind=True, wind_power=5.0, turbulence_power=0.5
        ),
    )


def test_a_worker_imports_no_jax() -> None:
    assert "jax" in sys.modules
    env = strange(lambda: float("jax" in __import__("sys").modules))
    played = play_episodes(env, zeros, episodes=2, copies=2, workers=2)
    assert [float(episode.observations[1, 0]) for episode in played] == [0.0, 0.0]


def test_a_name_that_only_this_process_knows_is_played_in_workers() -> None:
    gymnasium.register("Strange-v0", entry_point=strange(lambda: 0.25))
    try:
        played = play_episodes("Strange-v0", zeros, episodes=2, copies=2, workers=2)
    finally:
        del gymnasium.registry["Strange-v0"]
    assert [float(episode.observations[1, 0]) for episode in played] == [0.25, 0.25]


def test_a_worker_that_dies_is_one_sentence() -> None:
    parent = os.getpid()

    def dies() -> float:
        if os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return 0.0

    with pytest.raises(QuorumError, match=r"a worker process .* has died \(exit status -9\)"):
        play_episodes(strange(dies), zeros, episodes=2, copies=2, workers=2)


def test_an_environment_that_fails_in_a_worker_is_one_sentence() -> None:
    def fails() -> float:
        raise OSError("no disk\nat all.")

    with pytest.raises(QuorumError, match=r"with OSError \(no disk at all\): ask for one worker"):
        play_episodes(strange(fails), zeros, episodes=2, copies=2, workers=2)


def test_what_cannot_be_sent_or_not_be_played_in_a_worker_is_refused() -> None:
    def holds_a_lock() -> float:
        return float(lock is not None)

    lock = multiprocessing.get_context("spawn").Lock()
    with pytest.raises(QuorumError, match="cannot be sent to a worker process"):
        play_episodes(strange(holds_a_lock), zeros, episodes=2, copies=2, workers=2)
    with pytest.raises(QuorumError, match=r"Pendulum-v1 has the action space Box.*only Discrete"):
        play_episodes("Pendulum-v1", zeros, episodes=2, copies=2, workers=2)


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
        play_episodes("CartPole-v1", zeros, params=params, episodes=1)


def test_parameters_of_a_function_and_no_workers_are_refused() -> None:
    with pytest.raises(QuorumError, match="not with a function"):
        play_episodes(strange(lambda: 0.0), zeros, params={"gravity": 1.0}, episodes=1)
    with pytest.raises(QuorumError, match="workers is 0: give at least 1"):
        play_episodes("CartPole-v1", zeros, episodes=1, workers=0)
