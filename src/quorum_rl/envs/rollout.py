"""Many copies of a world at once, each started afresh when its episode ends.

Randomness: copy `i` at step `t` draws from `split(fold_in(key, t), …)[i]`, which does not depend on
how many copies there are. A copy's history is therefore the same alone and in a crowd.
"""

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import jax
import jax.numpy as jnp

from quorum_rl.envs.world import AnyWorld, Array, Key, World
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

    Shapes: `keys` and `actions` have a leading axis of copies; `params` as in `start`.
    """
    return jax.vmap(_advance_one, (None, 0, 0, 0, params_axes(params)))(
        world, keys, running, actions, params
    )


def _advance_one(
    world: World[StateT, ParamsT],
    key: Key,
    running: Running[StateT],
    action: Array,
    params: ParamsT,
) -> tuple[Running[StateT], Transition]:
    step_key, reset_key = jax.random.split(key)
    after = world.step(step_key, running.state, action, params)
    fresh = Running(*world.reset(reset_key, params))
    done = after.terminated | after.truncated
    going_on = Running(after.state, after.observation)
    running_on = jax.tree.map(lambda new, old: jnp.where(done, new, old), fresh, going_on)
    transition = Transition(
        observation=running.observation,
        action=action,
        reward=after.reward,
        next_observation=after.observation,
        terminated=after.terminated,
        truncated=after.truncated,
    )
    return running_on, transition


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
        keys = jax.random.split(jax.random.fold_in(key, time), copies)
        policy_keys, world_keys = jax.vmap(jax.random.split, out_axes=1)(keys)
        actions = jax.vmap(policy)(policy_keys, now.observation)
        return advance(world, world_keys, now, actions, params)

    return jax.lax.scan(one_step, running, jnp.arange(steps))


def params_axes(params: Any) -> int | None:
    """The `vmap` axis of `params`: none for one setting, 0 for a stack of settings."""
    ranks = {jnp.ndim(leaf) for leaf in jax.tree.leaves(params)}
    return None if ranks == {0} else 0


def uniform_policy(world: AnyWorld) -> Policy:
    """The policy that takes every action with the same probability."""

    def act(key: Key, observation: Array) -> Array:
        del observation
        return jax.random.randint(key, (), 0, world.spaces.action_count)

    return act
