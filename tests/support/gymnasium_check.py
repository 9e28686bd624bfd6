"""Gymnasium's own check of an environment, whose warnings count as faults."""

import warnings
from typing import Any

import gymnasium
from gymnasium.utils.env_checker import check_env


def faultless(env: gymnasium.Env[Any, Any]) -> None:
    """Raise what Gymnasium finds wrong, but for two things that its own worlds do.

    A number may be as large as it likes in CartPole and LunarLander, and a torque lies between −2
    and 2 in Pendulum.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*A Box observation space.*infinity.*")
        warnings.filterwarnings("ignore", message=".*Box action spaces, we recommend.*")
        check_env(env.unwrapped)
