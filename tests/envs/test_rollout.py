"""The vectorised roll-out: autoreset, randomness per copy, and what mapping must not change."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2, kstest, uniform

from quorum_rl.envs import (
    AnyWorld,
    Running,
    advance,
    get_world,
    roll_out,
    start,
    uniform_policy,
    with_params,
)
from quorum_rl.types import Transition

CARTPOLE = get_world("CartPole")
COPIES, STEPS = 16, 60  # where nothing asks for others, so that few programs are compiled


@partial(jax.jit, static_argnums=(0, 3, 4))
def random_history(
    world: AnyWorld, key: jax.Array, params: Any, copies: int = COPIES, steps: int = STEPS
) -> tuple[Running[Any], Running[Any], Transition]:
    first = start(world, jax.random.fold_in(key, 0), params, copies)
    policy = uniform_policy(world)
    last, seen = roll_out(world, policy, jax.random.fold_in(key, 1), first, params, steps)
    return first, last, seen


def assert_equal_trees(found: Any, other: Any, exactly: bool = True) -> None:
    for left, right in zip(jax.tree.leaves(found), jax.tree.leaves(other), strict=True):
        if exactly or left.dtype.kind in "ib":
            np.testing.assert_array_equal(left, right)
        else:
            np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def history() -> Any:
    """Sixteen CartPoles with a limit of 15 steps: falls and truncations both occur."""
    return random_history(CARTPOLE, jax.random.key(0), with_params(CARTPOLE, time_limit=15))


def test_the_next_observation_is_the_true_successor_also_at_an_end(history: Any) -> None:
    _, _, seen = history
    assert seen.terminated.any()
    assert (seen.truncated & ~seen.terminated).any()
    step = jax.jit(jax.vmap(jax.vmap(partial(successor, with_params(CARTPOLE)))))
    np.testing.assert_allclose(
        seen.next_observation, step(seen.observation, seen.action), rtol=1e-5, atol=1e-6
    )


def successor(params: Any, observation: Any, action: Any) -> Any:
    """CartPole's observation is its state, so the step can be taken again from it."""
    state, _ = CARTPOLE.reset(jax.random.key(0), params)
    names = ("position", "velocity", "angle", "angular_velocity")
    state = type(state)(**dict(zip(names, observation, strict=True)), time=jnp.int32(0))
    return CARTPOLE.step(jax.random.key(0), state, action, params).observation


def test_a_copy_goes_on_from_its_successor_or_from_a_fresh_start(history: Any) -> None:
    first, last, seen = history
    following = np.concatenate([seen.observation[1:], last.observation[None]])
    done = np.asarray(seen.terminated | seen.truncated)
    np.testing.assert_array_equal(seen.observation[0], first.observation)
    np.testing.assert_array_equal(following[~done], np.asarray(seen.next_observation)[~done])
    assert (np.abs(following[done]) <= 0.05).all()
    assert len(np.unique(following[done], axis=0)) == done.sum()  # every start is a new one
    assert (np.abs(np.asarray(seen.next_observation)[done]).max(axis=1) > 0.05).all()


def test_an_episode_never_outlasts_its_time_limit(history: Any) -> None:
    _, last, seen = history
    done = np.asarray(seen.terminated | seen.truncated)
    for copy in range(done.shape[1]):
        ends = np.flatnonzero(done[:, copy])
        lengths = np.diff(np.concatenate([[-1], ends]))
        assert (lengths <= 15).all()
        np.testing.assert_array_equal(lengths == 15, np.asarray(seen.truncated)[ends, copy])
        assert int(last.state.time[copy]) == STEPS - 1 - ends[-1]


@pytest.mark.parametrize(("name", "steps"), [("CartPole", STEPS), ("HIV", 7)])
def test_a_copys_history_does_not_depend_on_how_many_there_are(name: str, steps: int) -> None:
    world = get_world(name)
    overrides = {"efficacy_noise": 0.01} if name == "HIV" else {}
    params = with_params(world, time_limit=3, **overrides)
    few = random_history(world, jax.random.key(1), params, 2, steps)
    many = random_history(world, jax.random.key(1), params, COPIES, steps)
    assert_equal_trees(few[2].action, many[2].action[:, :2])
    assert_equal_trees(few[2], jax.tree.map(lambda leaf: leaf[:, :2], many[2]), exactly=False)
    assert len(np.unique(many[2].action.T, axis=0)) > 5  # and copies differ from each other


def test_each_copy_has_its_own_setting() -> None:
    """`vmap` over params equals a loop over them."""
    gravities = np.linspace(8.75, 11.0, COPIES)
    each = [with_params(CARTPOLE, gravity=g, time_limit=10 + i) for i, g in enumerate(gravities)]
    stacked = jax.tree.map(lambda *leaves: jnp.asarray(leaves), *each)
    _, _, together = random_history(CARTPOLE, jax.random.key(3), stacked)
    for copy, params in enumerate(each):
        _, _, alone = random_history(CARTPOLE, jax.random.key(3), params)
        mine, theirs = (
            jax.tree.map(lambda leaf, copy=copy: leaf[:, copy], seen) for seen in (together, alone)
        )
        assert_equal_trees(mine, theirs, exactly=False)


def test_roll_outs_can_be_mapped_again() -> None:
    """A population maps over whole roll-outs; the restart must then be chosen per copy."""
    keys = jax.random.split(jax.random.key(4), 3)
    params = with_params(CARTPOLE, time_limit=15)
    mapped = jax.vmap(lambda key: random_history(CARTPOLE, key, params))(keys)
    for index, key in enumerate(keys):
        alone = random_history(CARTPOLE, key, params)
        ours = jax.tree.map(lambda leaf, index=index: leaf[index], mapped)
        assert_equal_trees(ours, alone, exactly=False)


def test_a_scan_equals_single_steps_in_python() -> None:
    params = with_params(CARTPOLE, time_limit=6)
    running, last, seen = random_history(CARTPOLE, jax.random.key(5), params, 4, 20)
    one_step = jax.jit(partial(advance, CARTPOLE))
    policy, key = jax.vmap(uniform_policy(CARTPOLE)), jax.random.fold_in(jax.random.key(5), 1)
    for time in range(20):
        keys = jax.random.split(jax.random.fold_in(key, time), (4, 2))
        actions = policy(keys[:, 0], running.observation)
        running, transition = one_step(keys[:, 1], running, actions, params)
        expected = jax.tree.map(lambda leaf, time=time: leaf[time], seen)
        assert_equal_trees(transition, expected, exactly=False)
    assert_equal_trees(running, last, exactly=False)


def test_the_uniform_policy_takes_every_action_equally_often() -> None:
    """Pearson's statistic of 30,000 draws; a right policy fails once in 10^6 runs."""
    for name in ("CartPole", "Acrobot", "HIV"):
        world = get_world(name)
        count = world.spaces.action_count
        keys = jax.random.split(jax.random.key(6), 30_000)
        drawn = jax.vmap(uniform_policy(world), (0, None))(keys, jnp.zeros(1))
        seen = np.bincount(np.asarray(drawn), minlength=count)
        assert len(seen) == count
        expected = 30_000 / count
        assert ((seen - expected) ** 2 / expected).sum() < chi2.isf(1e-6, count - 1)


def test_the_uniform_policy_of_continuous_actions_fills_their_bounds() -> None:
    """Kolmogorov and Smirnov's test of 10,000 draws; a right policy fails once in 10^6 runs."""
    world = get_world("LunarLanderContinuous")
    keys = jax.random.split(jax.random.key(6), 10_000)
    drawn = np.asarray(jax.vmap(uniform_policy(world), (0, None))(keys, jnp.zeros(8)))
    assert drawn.shape == (10_000, 2)
    for numbers in drawn.T:
        assert kstest(numbers, uniform(-1, 2).cdf).pvalue > 1e-6
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 0.05  # five standard errors
