"""Worlds of ours with a crowd that is known: the reference policy, as many understand it.

An expert has the reference network with a last layer of its own and slips as often as it does. So
experts differ, nobody has to be trained, and whatever a policy is worth can be played out.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from quorum_rl.envs import get_world, units_of, with_params
from quorum_rl.envs.reference import ReferenceNetwork, reference_network
from quorum_rl.logs import Declared, Demonstrations, from_padded

SPREAD = 0.3  # of the logarithms of what weights are multiplied by
SLIPS = (2.0, 6.0)  # the beta distribution of how often an expert does something at random
APART = 0.9  # the share of states in which actions matter less

Floats = npt.NDArray[np.float64]
Chosen = npt.NDArray[np.int64]


class Known(NamedTuple):
    """A world of ours: how long its episodes are here, and between what returns are declared."""

    name: str
    limit: int
    bounds: tuple[float, float]

    @property
    def units(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        found = units_of(get_world(self.name))
        assert found is not None
        return found.centre, found.scale

    def crowd(self, experts: int, seed: int, trajectories: int = 2) -> Demonstrations:
        """What so many experts did, `trajectories` episodes each."""
        rng = np.random.default_rng(seed)
        network = reference_network(get_world(self.name))
        *hidden, last = network.weights
        own = last * rng.lognormal(0, SPREAD, (experts, *last.shape)).astype(np.float32)
        slips = rng.beta(*SLIPS, experts).astype(np.float32)
        each = partial(np.repeat, repeats=trajectories, axis=0)
        keys = jax.random.split(jax.random.key(seed), experts * trajectories)

        def preferences(own: Any, seen: Any) -> Any:
            return network_with(network, hidden, own).preferences(seen)

        rows, states = _played(self, preferences)(keys, each(own), each(slips))
        actions, rewards, terminated, alive = map(np.asarray, rows)
        length = alive.sum(axis=1)
        ended = terminated[np.arange(len(length)), length - 1]
        spaces = get_world(self.name).spaces
        return from_padded(
            Declared(
                spaces.action_count,
                spaces.observation_size,
                self.limit,
                minimum_experts=2,
                world=self.name,
                early_truncation_is_public=True,
            ),
            expert=np.repeat(np.arange(experts), trajectories),
            length=length,
            observations=np.asarray(states),
            actions=actions,
            rewards=rewards,
            terminated=ended,
            truncated=~ended,
        )

    def rules(self, log: Demonstrations) -> dict[str, Callable[[Floats], Chosen]]:
        """A bad policy, and one that is wrong rarely, where it matters: as code."""
        ask = jax.jit(jax.vmap(reference_network(get_world(self.name)).preferences))

        def told(seen: Floats) -> Floats:
            return np.asarray(ask(jnp.asarray(seen, jnp.float32)), np.float64)

        sample = np.concatenate([episode.observations[:-1] for episode in list(log)[:200]])
        edge = np.quantile(np.ptp(told(sample), axis=1), APART)

        def second(seen: Floats) -> Chosen:
            chosen: Chosen = told(seen).argsort(axis=1)[:, -2]
            return chosen

        def rarely_wrong(seen: Floats) -> Chosen:
            said = told(seen)
            matters = np.ptp(said, axis=1) > edge
            chosen: Chosen = np.where(matters, said.argmin(axis=1), said.argmax(axis=1))
            return chosen

        return {"made by hand": second, "rarely wrong": rarely_wrong}

    def truth(self, policy: Any, episodes: int = 2000) -> float:
        """The mean return of a policy, played out."""
        world = get_world(self.name)
        params = with_params(world, time_limit=self.limit)
        keys = jax.random.split(jax.random.key(3), (self.limit + 1, episodes))
        state, seen = jax.jit(jax.vmap(world.reset, (0, None)))(keys[-1], params)
        step = jax.jit(jax.vmap(world.step, (0, 0, 0, None)))
        earned, left = np.zeros(episodes), np.ones(episodes, bool)
        for time in range(self.limit):
            actions = policy.action_numbers(np.asarray(seen)).astype(np.int32)
            after = step(keys[time], state, actions, params)
            earned += np.where(left, np.asarray(after.reward), 0)
            left &= ~np.asarray(after.terminated | after.truncated)
            if not left.any():
                break
            state, seen = after.state, after.observation
        return float(earned.mean())


def network_with(network: ReferenceNetwork, hidden: Any, last: Any) -> ReferenceNetwork:
    return ReferenceNetwork(network.centre, network.scale, (*hidden, last), network.biases)


def _played(known: Known, preferences: Callable[[Any, Any], Any]) -> Any:
    """Whole episodes, padded. Shapes: keys (n,), own networks and slips (n, …)."""
    world = get_world(known.name)
    params, count = with_params(world, time_limit=known.limit), world.spaces.action_count

    def episode(key: Any, own: Any, slip: Any) -> Any:
        state, first = world.reset(key, params)

        def step(now: Any, key: Any) -> Any:
            state, seen, over = now
            who, how, what = jax.random.split(key, 3)
            action = jnp.where(
                jax.random.uniform(who) < slip,
                jax.random.randint(how, (), 0, count),
                preferences(own, seen).argmax(),
            ).astype(jnp.int32)
            after = world.step(what, state, action, params)
            row = action, after.reward, after.terminated, ~over
            seen = jnp.where(over, seen, after.observation)
            return (after.state, seen, over | after.terminated | after.truncated), (row, seen)

        keys = jax.random.split(jax.random.fold_in(key, 1), known.limit)
        _, (rows, following) = jax.lax.scan(step, (state, first, jnp.array(False)), keys)
        return rows, jnp.concatenate([first[None], following])

    return jax.jit(jax.vmap(episode))


ACROBOT = Known("Acrobot", 200, (-200.0, 0.0))
HIV = Known("HIV", 50, (0.0, 3e9))
LUNAR_LANDER = Known("LunarLander", 400, (-1000.0, 350.0))
