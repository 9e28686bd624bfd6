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

from quorum_rl.dictionary import Dictionary
from quorum_rl.envs import get_world, units_of, with_params
from quorum_rl.envs.reference import ReferenceNetwork, reference_network, reference_policy
from quorum_rl.logs import Declared, Demonstrations, from_padded

SPREAD = 0.3  # of the logarithms of what weights are multiplied by
SLIPS = (2.0, 6.0)  # the beta distribution of how often an expert does something at random
APART = 0.9  # the share of states in which actions matter less

Floats = npt.NDArray[np.float64]
Chosen = npt.NDArray[np.int64]


class Known(NamedTuple):
    """A world of ours: how long its episodes are here, between what returns are declared, and how
    much its experts differ."""

    name: str
    limit: int
    bounds: tuple[float, float]
    crowd_called: str = ""
    spread: float = SPREAD
    slips: tuple[float, float] = SLIPS

    @property
    def called(self) -> str:
        return self.name + self.crowd_called

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
        own = last * rng.lognormal(0, self.spread, (experts, *last.shape)).astype(np.float32)
        slips = rng.beta(*self.slips, experts).astype(np.float32)
        each = partial(np.repeat, repeats=trajectories, axis=0)
        keys = jax.random.split(jax.random.key(seed), experts * trajectories)

        def preferences(own: Any, seen: Any) -> Any:
            return network_with(network, hidden, own).preferences(seen)

        rows, states = _played(self, preferences)(keys, each(own), each(slips))
        actions, rewards, terminated, alive = map(np.asarray, rows)
        length = alive.sum(axis=1)
        ended = terminated[np.arange(len(length)), length - 1]
        spaces = get_world(self.name).spaces
        bounds = spaces.action_bounds
        return from_padded(
            Declared(
                spaces.action_count,
                spaces.observation_size,
                self.limit,
                minimum_experts=2,
                world=self.name,
                early_truncation_is_public=True,
                dictionary=Dictionary(action_bounds=bounds) if bounds else None,
            ),
            expert=np.repeat(np.arange(experts), trajectories),
            length=length,
            observations=np.asarray(states),
            actions=actions,
            rewards=rewards,
            terminated=ended,
            truncated=~ended,
        )

    def rules(self, log: Demonstrations) -> dict[str, Callable[[Floats], Any]]:
        """A bad policy, and one that is wrong rarely, where it matters: as code."""
        if get_world(self.name).spaces.continuous:
            return self._continuous_rules()
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

    def _continuous_rules(self) -> dict[str, Callable[[Floats], Any]]:
        """Of Pendulum: one does the opposite, one in the upper half; one does nothing, one
        nothing near the top, where little is asked for, and little is fatal."""
        world = get_world(self.name)
        ask = jax.jit(jax.vmap(partial(reference_policy(world), jax.random.key(0))))

        def multiplied(seen: Floats, by: float, cosine: float) -> Floats:
            said = np.asarray(ask(jnp.asarray(seen, jnp.float32)), np.float64)
            return said * np.where(seen[:, :1] >= cosine, by, 1)

        said = {"made by hand": (-1, -1), "opposite above": (-1, 0), "does nothing": (0, -1),
                "rarely wrong": (0, 0.95)}  # fmt: skip
        return {name: partial(multiplied, by=by, cosine=cosine)
                for name, (by, cosine) in said.items()}  # fmt: skip

    def truth(self, policy: Any, episodes: int = 2000) -> float:
        """The mean return of a policy, played out."""
        world = get_world(self.name)
        params = with_params(world, time_limit=self.limit)
        keys = jax.random.split(jax.random.key(3), (self.limit + 1, episodes))
        state, seen = jax.jit(jax.vmap(world.reset, (0, None)))(keys[-1], params)
        step = jax.jit(jax.vmap(world.step, (0, 0, 0, None)))
        earned, left = np.zeros(episodes), np.ones(episodes, bool)
        for time in range(self.limit):
            actions = policy.action_numbers(np.asarray(seen))
            actions = actions.astype(np.float32 if world.spaces.continuous else np.int32)
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
    params, spaces = with_params(world, time_limit=known.limit), world.spaces

    def episode(key: Any, own: Any, slip: Any) -> Any:
        state, first = world.reset(key, params)

        def step(now: Any, key: Any) -> Any:
            state, seen, over = now
            who, how, what = jax.random.split(key, 3)
            slips = jax.random.uniform(who) < slip
            if spaces.continuous:
                least, most = jnp.array(spaces.action_bounds, jnp.float32).T
                drawn = jax.random.uniform(how, least.shape, minval=least, maxval=most)
                action = jnp.where(slips, drawn, jnp.clip(preferences(own, seen), least, most))
            else:
                drawn = jax.random.randint(how, (), 0, spaces.action_count)
                action = jnp.where(slips, drawn, preferences(own, seen).argmax()).astype(jnp.int32)
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
PENDULUM = Known("Pendulum", 200, (-2000.0, 0.0))
PENDULUM_ALIKE = PENDULUM._replace(crowd_called=", alike", spread=0.15, slips=(1.0, 60.0))
