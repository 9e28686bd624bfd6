"""Where observations lie and how far they spread, measured with policies that anybody may run.

What the logs of real experts say of it is private. A world can be asked instead.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from quorum_rl.envs.params import with_params
from quorum_rl.envs.rollout import Policy, roll_out, start
from quorum_rl.envs.world import AnyWorld, Array, Key, Units


def units_of(world: AnyWorld) -> Units | None:
    """The units that a world states, if it does."""
    units: Units | None = getattr(world, "units", None)
    return units


def measured_units(
    world: AnyWorld,
    policies: Sequence[Policy],
    key: Key,
    *,
    copies: int = 100,
    reward_scale: float = 1.0,
) -> Units:
    """Mean and standard deviation of what the policies see, each of them counting as much.

    Every policy acts in so many copies of the default world, for as many steps as a demonstration
    may have, in new episodes where one ends. Numbers that never change have the scale 1.

    The `units` of CartPole, Acrobot and HIV are of the uniform policy and of the reference policy.
    """
    steps = world.facts.demonstration_time_limit
    params = with_params(world, time_limit=steps)

    def moments(policy: Policy, key: Key) -> tuple[Array, Array]:
        start_key, run_key = jax.random.split(key)
        running = start(world, start_key, params, copies)
        _, seen = roll_out(world, policy, run_key, running, params, steps)
        return seen.observation.mean((0, 1)), seen.observation.var((0, 1))

    keys = jax.random.split(key, len(policies))
    each = [jax.jit(moments, static_argnums=0)(*one) for one in zip(policies, keys, strict=True)]
    means, variances = (jnp.stack(one) for one in zip(*each, strict=True))
    deviations = jnp.sqrt(variances.mean(0) + means.var(0))
    return Units(
        centre=tuple(means.mean(0).tolist()),
        scale=tuple(jnp.where(deviations > 0, deviations, 1.0).tolist()),
        reward_scale=reward_scale,
    )
