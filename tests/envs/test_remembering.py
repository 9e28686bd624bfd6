"""Histories as observations: of a world, and of logs, alike and as Gymnasium stacks them."""

from typing import Any

import numpy as np
import pytest
from gymnasium.wrappers import FrameStackObservation

from quorum_rl.envs import WorldEnv, check_world, get_world
from quorum_rl.envs.remembering import Remembering
from quorum_rl.errors import QuorumError
from quorum_rl.logs import Declared, StepArrays, from_step_arrays, with_history

CARTPOLE = get_world("CartPole")
STEPS = 3


def episode(env: Any, seed: int) -> tuple[list[Any], list[int], bool]:
    """What is seen of an episode of nine steps, and whether it was terminated."""
    seen, actions, ended = [env.reset(seed=seed)[0]], [], False
    for action in [1, 1, 0, 1, 0, seed, 1, 1, 0]:
        observation, _, terminated, _, _ = env.step(action)
        seen.append(observation)
        actions.append(action)
        ended |= terminated
    return seen, actions, ended


@pytest.mark.parametrize("shows", [(), (2, 0)])
def test_it_shows_what_gymnasium_stacks(shows: tuple[int, ...]) -> None:
    places = list(shows) or [0, 1, 2, 3]
    ours, _, _ = episode(WorldEnv(Remembering(CARTPOLE, STEPS, shows)), seed=0)
    stacked, _, _ = episode(FrameStackObservation(WorldEnv(CARTPOLE), STEPS), seed=0)
    for one, wanted in zip(ours, stacked, strict=True):
        np.testing.assert_array_equal(one, wanted[:, places].ravel())


def test_it_is_a_world_and_its_numbers_have_names_bounds_and_units() -> None:
    world = Remembering(CARTPOLE, 2, (0, 2))
    check_world(world)
    names = ("position, 1 before", "angle, 1 before", "position", "angle")
    assert world.spaces.observation_names == names
    assert world.spaces.high == 2 * (CARTPOLE.spaces.high[0], CARTPOLE.spaces.high[2])
    assert world.units is not None
    assert world.units.scale == (0.087, 0.064, 0.087, 0.064)
    assert world.name == "CartPole, 2 steps, 0 2 of each"
    assert Remembering(CARTPOLE, 2).name == "CartPole, 2 steps"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"steps": 0}, "steps is 0: give at least 1"),
        ({"steps": 2, "shows": (4,)}, "shows is .*: give different places from 0 to 3"),
        ({"steps": 2, "shows": (1, 1)}, "shows is .*: give different places from 0 to 3"),
        ({"steps": 2, "shows": [1]}, "in a tuple"),
    ],
)
def test_what_it_cannot_show_is_refused(given: Any, said: str) -> None:
    with pytest.raises(QuorumError, match=said):
        Remembering(CARTPOLE, **given)


@pytest.mark.parametrize("told", [True, False])
def test_logs_with_history_are_those_of_a_world_that_remembers(told: bool) -> None:
    """Two experts, an episode each: nothing of one's is in the other's."""

    def log_of(world: Any, stacked: int = 1) -> Any:
        env = WorldEnv(world)
        parts = []
        for expert in range(2):
            seen, actions, ended = episode(env, seed=expert)
            count = len(actions)
            ends = np.arange(count) == count - 1
            flags = (ends & ended, ends & (not ended))
            parts.append((seen[:-1], actions, np.ones(count), *flags, np.full(count, expert),
                          seen[1:]))  # fmt: skip
        columns: Any = [np.concatenate(column) for column in zip(*parts, strict=True)]
        arrays = with_history(StepArrays(*columns[: 6 + told]), stacked)
        size = stacked * world.spaces.observation_size
        declared = Declared(2, size, horizon=9)
        return from_step_arrays(arrays, declared)

    made, wanted = log_of(CARTPOLE, STEPS), log_of(Remembering(CARTPOLE, STEPS))
    for ours, theirs in zip((*made.columns, *made.episodes), (*wanted.columns, *wanted.episodes),
                            strict=True):  # fmt: skip
        np.testing.assert_array_equal(ours, theirs)


def test_observations_that_are_no_rows_are_refused() -> None:
    rows = np.ones(3)
    with pytest.raises(QuorumError, match=r"observations have shape \(3,\): give one row per"):
        with_history(StepArrays(rows, rows, rows, rows, rows, rows), 2)
    with pytest.raises(QuorumError, match="steps is 0: give at least 1"):
        with_history(StepArrays(rows[:, None], rows, rows, rows, rows, rows), 0)
