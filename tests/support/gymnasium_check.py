"""Gymnasium's own check of an environment, whose warnings count as faults."""

import warnings
from typing import Any

import gymnasium
from gymnasium.utils.env_checker import check_env


def faultless(env: gymnasium.Env[Any, Any]) -> None:
    """Raise what Gymnasium finds wrong, but that a number may be as large as it likes.

    So it may in Gymnasium's own CartPole and LunarLander.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*A Box observation space.*infinity.*")
        check_env(env.unwrapped)
