"""CartPole as many drivers drive it: linear rules with gains of their own, some better."""

import jax
import jax.numpy as jnp
import numpy as np

from quorum_rl.envs import get_world, with_params
from quorum_rl.logs import Declared, Demonstrations, from_padded
from quorum_rl.nets import Layer
from quorum_rl.policy import Policy

LIMIT = 200
GAINS = np.array([0.1, 0.3, 1.0, 1.0], np.float32)


def cartpole_crowd(experts: int, trajectories: int = 2, seed: int = 0) -> Demonstrations:
    """What so many drivers did, `trajectories` episodes each of at most `LIMIT` steps."""
    world = get_world("CartPole")
    params = with_params(world, time_limit=LIMIT)
    rng = np.random.default_rng(seed)
    gains = GAINS * rng.lognormal(0, 0.7, (experts, 4))
    errors = rng.beta(2, 6, experts)  # how often each does something at random
    copies = experts * trajectories
    own = jnp.asarray(np.repeat(gains, trajectories, axis=0), jnp.float32)
    slips = jnp.asarray(np.repeat(errors, trajectories), jnp.float32)

    def episode(key, gains, slip):  # type: ignore[no-untyped-def]
        state, first = world.reset(key, params)

        def step(now, key):  # type: ignore[no-untyped-def]
            state, seen, over = now
            who, how, what = jax.random.split(key, 3)
            right = jnp.where(
                jax.random.uniform(who) < slip, jax.random.bernoulli(how), gains @ seen > 0
            )
            after = world.step(what, state, right.astype(jnp.int32), params)
            row = (seen, right.astype(jnp.int32), after.reward, after.terminated, ~over)
            seen = jnp.where(over, seen, after.observation)
            return (after.state, seen, over | after.terminated | after.truncated), (row, seen)

        keys = jax.random.split(jax.random.fold_in(key, 1), LIMIT)
        _, (rows, following) = jax.lax.scan(step, (state, first, jnp.array(False)), keys)
        return rows, jnp.concatenate([first[None], following])

    keys = jax.random.split(jax.random.key(seed), copies)
    rows, states = jax.jit(jax.vmap(episode))(keys, own, slips)
    _, actions, rewards, terminated, alive = map(np.asarray, rows)
    length = alive.sum(axis=1)
    ended = terminated[np.arange(copies), length - 1]
    return from_padded(
        Declared(2, 4, LIMIT, minimum_experts=2, world="CartPole"),
        expert=np.repeat(np.arange(experts), trajectories),
        length=length,
        observations=np.asarray(states),
        actions=actions,
        rewards=rewards,
        terminated=ended,
        truncated=~ended,
    )


def mean_driver() -> Policy:
    """The policy with the middle of all gains."""
    weight = np.stack([-GAINS, GAINS], axis=1)
    layer = Layer(weight, np.zeros(2, np.float32))
    return Policy(networks={"values": (layer,)}, highest="values", learner="bc")
