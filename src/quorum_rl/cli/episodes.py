"""One episode to look at."""

from typing import Any, Literal

import jax
import numpy as np

from quorum_rl.envs import AnyWorld, reference_policy, roll_out, start, uniform_policy
from quorum_rl.types import Transition


def one_episode(
    world: AnyWorld, params: Any, policy: Literal["random", "reference"], seed: int
) -> tuple[Transition, Any]:
    """An episode from its start to its end, with a leading axis of steps, and its first state."""
    acts = reference_policy(world) if policy == "reference" else uniform_policy(world)
    steps = int(params.time_limit)
    key = jax.random.key(seed)
    begun = start(world, key, params, 1)
    _, seen = roll_out(world, acts, key, begun, params, steps)
    ended = np.asarray(seen.terminated | seen.truncated)[:, 0]
    length = int(np.argmax(ended)) + 1
    one: Transition = jax.tree.map(lambda leaf: np.asarray(leaf)[:length, 0], seen)
    return one, jax.tree.map(lambda leaf: np.asarray(leaf)[0], begun.state)
