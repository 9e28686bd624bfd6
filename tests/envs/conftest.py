"""What the tests of the worlds share: steps of Gymnasium, recorded to be compared with ours."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest


class Recorded(NamedTuple):
    """Steps that Gymnasium took, one row each."""

    state: Any  # before the step, float32
    action: Any
    next_state: Any  # float64, as Gymnasium computed it
    observation: Any
    reward: Any
    terminated: Any


def _changed(name: str, attributes: dict[str, float]) -> Any:
    env: Any = gymnasium.make(name).unwrapped
    env.reset(seed=0)
    for attribute, value in attributes.items():
        assert hasattr(env, attribute), f"{name} has no {attribute}"
        setattr(env, attribute, value)
    return env


def _step(env: Any, state: Any, action: Any) -> tuple[Any, ...]:
    env.state = state.astype(np.float64)
    env.steps_beyond_terminated = None  # CartPole: or it warns and gives no reward
    observation, reward, terminated, _, _ = env.step(action)
    return state, action, np.array(env.state), observation, reward, terminated


def _columns(rows: list[tuple[Any, ...]]) -> Recorded:
    return Recorded(*(np.array(column) for column in zip(*rows, strict=True)))


def _from_states(
    name: str, attributes: dict[str, float], states: Iterable[Any], actions: Iterable[Any]
) -> Recorded:
    """One step from each of `states`."""
    env = _changed(name, attributes)
    pairs = zip(states, actions, strict=True)
    return _columns([_step(env, state, action) for state, action in pairs])


def _along(
    name: str,
    attributes: dict[str, float],
    steps: int,
    policy: Callable[[Any, Any], int],
    seed: int,
    through_ends: bool = False,
) -> Recorded:
    """Steps along episodes of `policy(state, generator)`, rounded to float32 before each.

    `through_ends` goes on after a termination, where a state has more energy.
    """
    env, rng, rows = _changed(name, attributes), np.random.default_rng(seed), []
    env.reset(seed=seed)
    for _ in range(steps):
        state = np.asarray(env.state, np.float32)
        rows.append(_step(env, state, policy(state, rng)))
        if rows[-1][-1] and not through_ends:
            env.reset()
    return _columns(rows)


class GymnasiumSteps(NamedTuple):
    from_states: Callable[..., Recorded]
    along: Callable[..., Recorded]


@pytest.fixture(scope="session")
def gymnasium_steps() -> GymnasiumSteps:
    """How to record what Gymnasium does: from given states, or along episodes."""
    return GymnasiumSteps(_from_states, _along)
