"""Breakout and Space Invaders against MinAtar, step for step."""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import minatar_steps
import numpy as np
import pytest
from compiling import optimised

from quorum_rl.envs import (
    AnyWorld,
    get_world,
    reference_policy,
    roll_out,
    start,
    uniform_policy,
)
from quorum_rl.envs.breakout import Breakout
from quorum_rl.envs.minatar import LAST
from quorum_rl.envs.reference import episode_returns
from quorum_rl.envs.space_invaders import FIRE, SHORTEST_INTERVAL, SpaceInvaders

NAMES = tuple(minatar_steps.GAMES)
KEY = jax.random.key(0)


@pytest.fixture(scope="module", params=NAMES)
def world(request: pytest.FixtureRequest) -> AnyWorld:
    return get_world(request.param)


def assert_same(ours: minatar_steps.Seen, theirs: minatar_steps.Seen) -> None:
    for field, mine, other in zip(theirs._fields, ours, theirs, strict=True):
        np.testing.assert_array_equal(mine, other, err_msg=field)


def test_steps_are_those_that_minatar_took(world: AnyWorld) -> None:
    plays, theirs = minatar_steps.kept(world.name)
    # The sample contains what it is for: a second wall, and as many waves as make aliens fastest.
    pieces = np.split(theirs.reward, np.flatnonzero(theirs.terminated) + 1)
    assert (
        max(piece.sum() for piece in pieces) > {"Breakout": 60, "SpaceInvaders": 7 * 24}[world.name]
    )
    assert theirs.terminated.sum() > 4
    assert plays.sticks.sum() > 300
    assert_same(minatar_steps.ours(world, plays), theirs)
    never = plays._replace(sticks=np.zeros_like(plays.sticks))
    with pytest.raises(AssertionError):
        assert_same(minatar_steps.ours(world, never), theirs)


def test_random_steps_are_minatars(world: AnyWorld) -> None:
    pytest.importorskip("minatar", reason="the package minatar is not installed")
    plays = minatar_steps.chosen(world, steps=5_000, seed=7, clever=0.0)
    theirs = minatar_steps.theirs(world.name, plays)
    assert theirs.terminated.sum() > 50
    assert_same(minatar_steps.ours(world, plays), theirs)


def test_a_rule_earns_the_stated_return(world: AnyWorld) -> None:
    with optimised():
        run = jax.jit(partial(episode_returns, world, reference_policy(world), episodes=40))
        returns = np.asarray(run(jax.random.key(11)), np.float64)
    # Four standard errors, a fixed seed.
    assert abs(returns.mean() - world.facts.reference_return) < 4 * returns.std() / np.sqrt(40)
    assert world.facts.normalised(returns.mean()) > 0.9


def test_numbers_are_named_after_channel_row_and_column(world: AnyWorld) -> None:
    _, seen = world.reset(KEY, world.default_params())
    shown = {
        name for name, value in zip(world.spaces.observation_names, seen, strict=True) if value
    }
    bricks = {f"brick {row} {column}" for row in (1, 2, 3) for column in range(10)}
    aliens = {
        f"alien{which} {row} {column}"
        for which in ("", " left") for row in range(4) for column in range(2, 8)
    }  # fmt: skip
    if world.name == "SpaceInvaders":
        assert shown == {"cannon 9 5"} | aliens
    else:
        assert shown - {"ball 3 0", "trail 3 0", "ball 3 9", "trail 3 9"} == {"paddle 9 4"} | bricks


@pytest.mark.parametrize("probability", [0.0, 0.1, 1.0])
def test_an_action_sticks_as_often_as_stated(world: AnyWorld, probability: float) -> None:
    params = replace(world.default_params(), sticky_probability=probability)
    state, _ = world.reset(KEY, params)
    keys = jax.random.split(jax.random.key(3), 4_000)
    step = jax.jit(jax.vmap(lambda key: world.step(key, state, jnp.int32(2), params)))
    after = step(keys).state.action
    assert set(np.unique(after)) <= {0, 2}  # before its first step an episode has done nothing
    stuck = int((after == 0).sum())
    # Five standard deviations: fails with probability 6e-7 with another seed.
    assert abs(stuck - 4_000 * probability) <= 5 * math.sqrt(
        4_000 * probability * (1 - probability)
    )


def test_the_ball_comes_from_the_side_and_the_row_that_are_set() -> None:
    world = Breakout()
    keys = jax.random.split(jax.random.key(4), 1_000)

    def starts(**changed: Any) -> Any:
        params = replace(world.default_params(), **changed)
        return jax.vmap(lambda key: world.reset(key, params)[0])(keys)

    by_default = starts()
    assert set(np.unique(by_default.column)) == {0, 9}
    # Five standard deviations, as above.
    assert abs((by_default.column == 9).sum() - 500) <= 5 * math.sqrt(250)
    assert (by_default.row == 3).all()
    assert (starts(right_start=1.0).column == 9).all()
    assert (starts(right_start=0.0).column == 0).all()
    assert (starts(start_row=6.0).row == 6).all()  # a float, as in the settings


def test_a_new_wave_moves_faster_until_it_does_not() -> None:
    world = SpaceInvaders()
    params = replace(world.default_params(), sticky_probability=0.0)
    state, _ = world.reset(KEY, params)
    step = jax.jit(world.step)
    last = jnp.zeros((10, 10), bool).at[4, 5].set(True)
    intervals = []
    for _ in range(8):
        state = replace(
            state, aliens=last, bullets=jnp.roll(last, 1, axis=0), until_move=jnp.int32(9)
        )
        after = step(KEY, state, jnp.int32(0), params)
        assert after.reward == 1.0
        assert after.state.aliens.sum() == 24
        state = after.state
        intervals.append(int(state.move_interval))
    assert intervals == [11, 10, 9, 8, 7, 6, SHORTEST_INTERVAL, SHORTEST_INTERVAL]


def test_the_cannon_reloads_for_five_steps() -> None:
    world = SpaceInvaders()
    params = replace(world.default_params(), sticky_probability=0.0)
    state, _ = world.reset(KEY, params)
    fired, step = [], jax.jit(world.step)
    for _ in range(11):
        state = step(KEY, state, jnp.int32(FIRE), params).state
        fired.append(bool(state.bullets[LAST - 1].any()))
    assert fired == [True, *[False] * 4, True, *[False] * 4, True]


def test_aliens_move_and_shoot_as_often_as_set() -> None:
    world = SpaceInvaders()
    params = replace(world.default_params(), move_interval=3, shot_interval=4)
    state, _ = world.reset(KEY, params)
    aliens, bombs, step = [], [], jax.jit(world.step)
    for _ in range(10):
        state = step(KEY, state, jnp.int32(0), params).state
        aliens.append(int(jnp.argmax(state.aliens[0])))
        bombs.append(int(state.bombs.sum()))
    assert aliens == [2, 2, 2, 1, 1, 1, 0, 0, 0, 0]
    assert bombs == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]


def test_every_setting_plays(world: AnyWorld) -> None:
    settings = world.settings()
    count = len(settings.time_limit)
    running = start(world, KEY, settings, count)

    def play() -> Any:
        _, seen = roll_out(world, uniform_policy(world), KEY, running, settings, 20)
        return seen.observation.max((0, 2)), seen.observation.min(), seen.terminated.any(0)

    most, least, ended = jax.jit(play)()
    assert (most == 1.0).all()
    assert least == 0.0
    assert ended.any()
