"""A log that Gymnasium made, kept both as demonstrations and as what its own `step` returned."""

from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest

from quorum_rl.logs import Declared, Demonstrations, from_episodes

HORIZON = 20  # short enough that a random policy is truncated in some episodes, and falls in others


class Recorded(NamedTuple):
    """One step as the environment gave it."""

    expert: int
    episode: int
    step: int
    observation: Any
    action: int
    reward: float
    next_observation: Any
    terminated: bool
    truncated: bool


@pytest.fixture(scope="session")
def declared() -> Declared:
    return Declared(2, 4, HORIZON, p_min=0.02, world="CartPole", world_params={"gravity": 9.8})


@pytest.fixture(scope="session")
def recorded() -> list[Recorded]:
    """Experts 3, 7 and 12 with 2, 3 and 1 episodes of CartPole-v1 under a random policy."""
    world = gymnasium.make("CartPole-v1", max_episode_steps=HORIZON)
    rng = np.random.default_rng(0)
    steps: list[Recorded] = []
    for expert, episodes in ((3, 2), (7, 3), (12, 1)):
        for episode in range(episodes):
            observation, _ = world.reset(seed=100 * expert + episode)
            ended = False
            for step in range(HORIZON):
                action = int(rng.integers(2))
                following, reward, terminated, truncated, _ = world.step(action)
                seen = (expert, episode, step, observation, action, float(reward), following)
                steps.append(Recorded(*seen, terminated, truncated))
                observation, ended = following, terminated or truncated
                if ended:
                    break
    assert {step.terminated for step in steps} == {step.truncated for step in steps}
    assert sum(step.truncated for step in steps) >= 2
    assert sum(step.terminated for step in steps) >= 2
    return steps


@pytest.fixture(scope="session")
def log(recorded: list[Recorded], declared: Declared) -> Demonstrations:
    """The recorded steps, put together episode by episode without any of our importers."""
    last = [step for step in recorded if step.terminated or step.truncated]
    observations = []
    for step in recorded:
        observations.append(step.observation)
        if step.terminated or step.truncated:
            observations.append(step.next_observation)
    return from_episodes(
        declared,
        expert=[step.expert for step in last],
        length=[step.step + 1 for step in last],
        observations=np.array(observations),
        actions=[step.action for step in recorded],
        rewards=[step.reward for step in recorded],
        terminated=[step.terminated for step in last],
        truncated=[step.truncated for step in last],
    )
