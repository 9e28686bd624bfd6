"""Episodes of LunarLander, played by Gymnasium and by our world from the same draws.

Seed s of Gymnasium gives the ground, the first push, the wind's clocks and the engines'
dispersion; our world takes them as they are. Gymnasium's rule for landing acts on what each side
sees; the random policy takes the same actions on both.
"""

import importlib
import multiprocessing
import os
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any, Final, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from quorum_rl.distributed import over_experts, padded
from quorum_rl.envs.lunar_lander import LunarLander, LunarLanderParams, LunarLanderState
from quorum_rl.envs.lunar_lander.geometry import EDGES, HEIGHT, Vec, terrain
from quorum_rl.envs.lunar_lander.world import FIRST_FORCE, LATEST_WIND, assembled, observed

Array = jax.Array
Floats = NDArray[np.float64]
STRETCH: Final = 50  # steps between two looks at which episodes have ended
SEEDS_AT_ONCE: Final = 50  # that a process of Gymnasium's side takes


class Played(NamedTuple):
    """Episodes of one side, an entry each."""

    returns: Floats
    landed: Floats  # 1 or 0
    steps: Floats


# --- the draws that both sides share ---


class Draws(NamedTuple):
    """All that chance decides in an episode of Gymnasium's."""

    heights: Any
    push: Any
    clocks: Any
    dispersion: Any
    actions: Any  # of the random policy


def draws(seed: int, params: LunarLanderParams, steps: int | None = None) -> Draws:
    """What Gymnasium's generator gives after `reset(seed=seed)`, in its order."""
    rng, windy = np.random.default_rng(seed), is_windy(params)
    steps = params.time_limit if steps is None else steps
    heights = rng.uniform(0, HEIGHT / 2, size=EDGES + 2)
    push = [rng.uniform(-FIRST_FORCE, FIRST_FORCE) for _ in range(2)]
    clocks = [rng.integers(-LATEST_WIND, LATEST_WIND) if windy else 0 for _ in range(2)]
    dispersion = rng.uniform(-1.0, 1.0, size=(steps + 1, 2))[1:]  # the first are the reset's
    return Draws(
        np.asarray(heights, np.float32),
        np.asarray(push, np.float32),
        np.asarray(clocks, np.int32),
        dispersion.astype(np.float32),
        random_actions(seed, steps).astype(np.int32),
    )


def random_actions(seed: int, steps: int) -> Any:
    return np.random.default_rng((seed, 1)).integers(4, size=steps)


# --- Gymnasium's side ---


def play_gymnasium(
    policy: str, params: LunarLanderParams, nudge: float, seeds: Iterable[int]
) -> Played:
    """Each seed's episode, with a hull that is faster by `nudge` metres a second at the start."""
    module = importlib.import_module("gymnasium.envs.box2d.lunar_lander")
    env: Any = gymnasium.make(
        "LunarLander-v3",
        max_episode_steps=params.time_limit,
        gravity=-params.gravity,
        enable_wind=is_windy(params),
        wind_power=params.wind_power,
        turbulence_power=params.turbulence_power,
    )
    rows = []
    for seed in seeds:
        seen, _ = env.reset(seed=seed)
        hull = env.unwrapped.lander
        if nudge:
            hull.linearVelocity = tuple(part + nudge for part in hull.linearVelocity)
        actions = random_actions(seed, params.time_limit)
        total, steps, ended = 0.0, 0, False
        while not ended:
            action = module.heuristic(env, seen) if policy == "heuristic" else actions[steps]
            seen, reward, terminated, truncated, _ = env.step(int(action))
            total, steps, ended = total + float(reward), steps + 1, terminated or truncated
        rows.append((total, float(reward == 100), float(steps)))
    return Played(*np.array(rows).T)


def play_gymnasium_in_processes(
    policy: str, params: LunarLanderParams, episodes: int, nudge: float = 0.0
) -> Played:
    parts = [
        range(first, min(first + SEEDS_AT_ONCE, episodes))
        for first in range(0, episodes, SEEDS_AT_ONCE)
    ]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=spawn) as pool:
        played = pool.map(partial(play_gymnasium, policy, params, nudge), parts)
        return Played(*(np.concatenate(column) for column in zip(*played, strict=True)))


def is_windy(params: LunarLanderParams) -> bool:
    return params.wind_power > 0 or params.turbulence_power > 0


# --- our side ---


class Flying(NamedTuple):
    """Episodes under way; every leaf has a leading axis of episodes."""

    state: LunarLanderState
    observation: Array
    total: Array
    landed: Array
    steps: Array
    ended: Array


def landing_rule(seen: Array) -> Array:
    """Gymnasium's `heuristic`: what it does, for one observation."""
    x, y, speed_x, speed_y, angle, spin, first, second = seen
    grounded = (first > 0) | (second > 0)
    lean = jnp.clip(0.5 * x + speed_x, -0.4, 0.4)
    turn = jnp.where(grounded, 0.0, 0.5 * (lean - angle) - spin)
    lift = jnp.where(grounded, -0.5 * speed_y, (0.55 * jnp.abs(x) - y) * 0.5 - 0.5 * speed_y)
    sideways = jnp.where(turn < -0.05, 3, jnp.where(turn > 0.05, 1, 0))
    return jnp.where((lift > jnp.abs(turn)) & (lift > 0.05), 2, sideways).astype(jnp.int32)


def begun(world: LunarLander, drawn: Draws, params: LunarLanderParams) -> Flying:
    """One episode at its start."""
    before = assembled(terrain(drawn.heights), drawn.clocks)
    state = world.dropped(before, Vec(drawn.push[0], drawn.push[1]), params)
    no = jnp.bool_(False)
    return Flying(state, observed(state.lander), jnp.float32(0), no, jnp.int32(0), no)


def flown_on(
    world: LunarLander,
    flying: Flying,
    dispersion: Array,
    actions: Array,
    params: LunarLanderParams,
    by_rule: Array,
) -> Flying:
    """A stretch of one episode: by Gymnasium's rule, or with the `actions` given."""

    def step(now: Flying, given: tuple[Array, Array]) -> tuple[Flying, None]:
        scatter, action = given
        action = jnp.where(by_rule, landing_rule(now.observation), action)
        after = world.flown(now.state, action, scatter, params)
        alive = ~now.ended
        return Flying(
            after.state,
            after.observation,
            now.total + jnp.where(alive, after.reward, 0.0),
            now.landed | (alive & (after.reward == 100)),
            now.steps + alive,
            now.ended | after.terminated | after.truncated,
        ), None

    return jax.lax.scan(step, flying, (dispersion, actions))[0]


class Places:
    """Places for episodes under way, and what became of those that have left theirs."""

    def __init__(self, params: LunarLanderParams, waiting: Flying, count: int, room: int) -> None:
        self.params, self.waiting, self.count = params, waiting, count
        self.who = np.arange(room)  # the episode at each place; from `count` on, none
        self.since = np.zeros(room, int)  # its steps so far
        self.drawn = [self.drawn_for(episode) for episode in range(room)]
        self.played = Played(*(np.zeros(count) for _ in Played._fields))

    def drawn_for(self, episode: int) -> Draws:
        return draws(min(episode, self.count - 1), self.params)

    def taken(self) -> Any:
        return self.who < self.count

    def ahead(self) -> tuple[Any, Any]:
        """The dispersion and the actions of the next stretch."""
        parts = [slice(first, first + STRETCH) for first in self.since]
        both = list(zip(self.drawn, parts, strict=True))
        return (
            np.stack([drawn.dispersion[part] for drawn, part in both]),
            np.stack([drawn.actions[part] for drawn, part in both]),
        )

    def after(self, flying: Flying) -> Flying:
        """Note what has ended, and begin the next episodes in its place."""
        flying = jax.tree.map(np.array, flying)
        self.since = np.minimum(self.since + STRETCH, self.params.time_limit - STRETCH)
        for place in np.flatnonzero(flying.ended & self.taken()):
            row = (flying.total[place], flying.landed[place], flying.steps[place])
            for column, value in zip(self.played, row, strict=True):
                column[self.who[place]] = value
            following = int(self.who.max()) + 1
            self.who[place], self.since[place] = following, 0
            if following < self.count:
                self.drawn[place] = self.drawn_for(following)
                fresh = jax.tree.leaves(self.waiting)
                for leaf, new in zip(jax.tree.leaves(flying), fresh, strict=True):
                    leaf[place] = new[following]
        return flying


def play_ours(world: LunarLander, policy: str, params: LunarLanderParams, episodes: int) -> Played:
    """As many episodes at once as stay in the cache; those that end make room for the next."""
    firsts = [draws(seed, params, steps=0) for seed in range(episodes)]
    drawn = Draws(*map(np.stack, zip(*firsts, strict=True)))
    start = over_experts(jax.vmap(partial(begun, world), (0, None)), shared=1)
    waiting: Flying = jax.tree.map(np.array, start(padded(drawn, episodes), params))
    room = world.copies_at_once * len(jax.devices())
    places = Places(params, waiting, episodes, room)
    axes = (0, 0, 0, None, None)
    advance = over_experts(jax.vmap(partial(flown_on, world), axes), shared=2)
    by_rule = np.bool_(policy == "heuristic")
    flying: Flying = jax.tree.map(lambda leaf: leaf[np.minimum(places.who, episodes - 1)], waiting)
    while places.taken().any():
        flying = places.after(advance(flying, *places.ahead(), params, by_rule))
    return places.played
