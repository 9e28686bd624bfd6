"""How good a policy is in an environment of Gymnasium, and when that is one of our own worlds."""

from typing import Final

import gymnasium
import numpy as np
import numpy.typing as npt

from quorum_rl.envs import (
    AnyWorld,
    EnvParams,
    EnvSource,
    Seed,
    get_world,
    play_episodes,
    world_names,
)
from quorum_rl.evaluation.returns import GreedyPolicy

COPIES: Final = 64  # stepped together, so that the policy is asked about many rows at once
TIME_LIMIT: Final = "max_episode_steps"  # which gymnasium.make knows for every environment
SAME_WORLDS: Final = {
    "CartPole-v1": "CartPole",
    "Acrobot-v1": "Acrobot",
    "LunarLander-v3": "LunarLander",
    "Pendulum-v1": "Pendulum",
}
"""The environments whose physics our worlds follow, and what we call them."""


def gymnasium_returns(
    policy: GreedyPolicy,
    env: EnvSource,
    params: EnvParams | None = None,
    *,
    episodes: int,
    seed: Seed = 0,
    copies: int = COPIES,
) -> npt.NDArray[np.float64]:
    """Undiscounted returns of one policy in a Gymnasium environment, up to its own time limit.

    `params` go to `gymnasium.make` with the environment's name, another time limit as
    `{"max_episode_steps": 1000}`.

    Shapes: the result is `(episodes,)`.

    Raises:
        QuorumError: as `envs.gymnasium_bridge.play_episodes`.
    """
    played = play_episodes(
        env,
        lambda observations, _: policy(observations),
        params=params,
        episodes=episodes,
        copies=copies,
        seed=seed,
    )
    return np.array([episode.rewards.sum() for episode in played])


def same_world(env: str, params: EnvParams) -> AnyWorld | None:
    """The world of ours that the environment is, so that its scale of returns holds there too.

    That scale is for the default world and the time limit for evaluation: with any other there is
    none. Gymnasium's CartPole-v1 stops at 500 steps and its Acrobot-v1 too, which are other limits.
    """
    name = SAME_WORLDS.get(env)
    if name not in world_names() or set(params) - {TIME_LIMIT}:
        return None
    world = get_world(name)
    limit = params.get(TIME_LIMIT, gymnasium.spec(env).max_episode_steps)
    return world if limit == world.facts.evaluation_time_limit else None
