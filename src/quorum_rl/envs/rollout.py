"""Many copies of a world at once, each started afresh when its episode ends.

Randomness: copy `i` at step `t` draws from `split(fold_in(key, t), (copies, 2))[i]`, which does not
depend on how many copies there are. A copy's history is therefore the same alone and in a crowd.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import jax
import jax.numpy as jnp

from quorum_rl.envs.world import AnyWorld, Array, Key, Step, World
from quorum_rl.types import Transition

StateT = TypeVar("StateT")
ParamsT = TypeVar("ParamsT")

Policy: TypeAlias = Callable[[Key, Array], Array]
"""An action for one observation; `roll_out` maps it over the copies."""


class Running(NamedTuple, Generic[StateT]):
    """Worlds in the middle of their episodes; every leaf has a leading axis of copies."""

    state: StateT
    observation: Array


def start(world: World[StateT, ParamsT], key: Key, params: ParamsT, copies: int) -> Running[StateT]:
    """`copies` fresh episodes; `params` may be one setting or a stack of `copies` of them."""
    keys = jax.random.split(key, copies)
    state, observation = jax.vmap(world.reset, (0, params_axes(params)))(keys, params)
    return Running(state, observation)


def advance(
    world: World[StateT, ParamsT],
    keys: Key,
    running: Running[StateT],
    actions: Array,
    params: ParamsT,
) -> tuple[Running[StateT], Transition]:
    """One step of every copy, with autoreset.

    The transition's `next_observation` is the true successor, also at the end of an episode, so
    that a learner can bootstrap from a truncated one; `running` goes on from a fresh start.

    Shapes: `keys` and `actions` have a leading axis of copies, and continuous actions one of
    numbers behind it; `params` as in `start`.
    """
    axes = params_axes(params)

    def step_one(key: Key, state: StateT, action: Array, params: ParamsT) -> Step[StateT]:
        return world.step(jax.random.fold_in(key, 0), state, action, params)

    def reset_one(key: Key, params: ParamsT) -> Running[StateT]:
        return Running(*world.reset(jax.random.fold_in(key, 1), params))

    def step_some(some: tuple[Key, StateT, Array], own: ParamsT) -> Step[StateT]:
        return jax.vmap(step_one, (0, 0, 0, axes))(*some, own)

    after = in_blocks(world, step_some, (keys, running.state, actions), params)
    done = after.terminated | after.truncated

    def restart(going_on: Running[StateT]) -> Running[StateT]:
        fresh = jax.vmap(reset_one, (0, axes))(keys, params)
        choose = jax.vmap(lambda ended, new, old: jnp.where(ended, new, old))
        chosen: Running[StateT] = jax.tree.map(partial(choose, done), fresh, going_on)
        return chosen

    going_on = Running(after.state, after.observation)
    # `cond` saves the resets when no episode ends, and keeps XLA on a CPU from computing `done`
    # anew for each number of the state: together they halved the time of an Acrobot step.
    running_on = jax.lax.cond(done.any(), restart, lambda unchanged: unchanged, going_on)
    transition = Transition(
        observation=running.observation,
        action=actions,
        reward=after.reward,
        next_observation=after.observation,
        terminated=after.terminated,
        truncated=after.truncated,
    )
    return running_on, transition


def in_blocks(
    world: World[StateT, ParamsT],
    step: Callable[[tuple[Key, StateT, Array], ParamsT], Step[StateT]],
    copies: tuple[Key, StateT, Array],
    params: ParamsT,
) -> Step[StateT]:
    """Step all copies; on a CPU, a world with long steps only as many as stay in the cache."""
    count = copies[2].shape[0]
    block = getattr(world, "copies_at_once", count)
    if count <= block or jax.default_backend() != "cpu":
        return step(copies, params)
    fill = -count % block
    blocks = -(-count // block)

    def cut(leaf: Array) -> Array:
        filled = jnp.concatenate([leaf, leaf[:fill]])
        return filled.reshape(blocks, block, *leaf.shape[1:])

    if params_axes(params) is None:
        after = jax.lax.map(lambda some: step(some, params), jax.tree.map(cut, copies))
    else:
        cut_up = jax.tree.map(cut, (copies, params))
        after = jax.lax.map(lambda some: step(*some), cut_up)
    joined: Step[StateT] = jax.tree.map(
        lambda leaf: leaf.reshape(blocks * block, *leaf.shape[2:])[:count], after
    )
    return joined


def roll_out(
    world: World[StateT, ParamsT],
    policy: Policy,
    key: Key,
    running: Running[StateT],
    params: ParamsT,
    steps: int,
) -> tuple[Running[StateT], Transition]:
    """Let `policy` act for `steps` steps in every copy.

    Shapes: every leaf of the returned transitions is `(steps, copies, …)`.
    """
    copies = running.observation.shape[0]

    def one_step(now: Running[StateT], time: Array) -> tuple[Running[StateT], Transition]:
        keys = jax.random.split(jax.random.fold_in(key, time), (copies, 2))
        actions = jax.vmap(policy)(keys[:, 0], now.observation)
        return advance(world, keys[:, 1], now, actions, params)

    return jax.lax.scan(one_step, running, jnp.arange(steps))


def params_axes(params: Any) -> int | None:
    """The `vmap` axis of `params`: none for one setting, 0 for a stack of settings."""
    ranks = {jnp.ndim(leaf) for leaf in jax.tree.leaves(params)}
    return None if ranks == {0} else 0


def uniform_policy(world: AnyWorld) -> Policy:
    """The policy that takes every action with the same probability, to within 2⁻³².

    Of continuous ones, every number is uniform between its bounds.
    """
    count = world.spaces.action_count
    if world.spaces.continuous:
        low, high = jnp.array(world.spaces.action_bounds, jnp.float32).T
        return lambda key, _: jax.random.uniform(key, (count,), jnp.float32, low, high)

    def act(key: Key, observation: Array) -> Array:
        del observation
        # `randint` hashes four times; hashing once took a fifth off the time of a CartPole step.
        return (jax.random.bits(key, (), jnp.uint32) % count).astype(jnp.int32)

    return act
