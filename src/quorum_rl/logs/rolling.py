"""All experts in all their worlds, step by step on the devices.

Networks that are on the devices answer there, so nothing waits for the host: it draws the chances
ahead, and takes what happened in pieces of several steps. Other experts are asked on the host.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from quorum_rl.distributed import joined, joined_rows, over_experts, own_share, padded, placed
from quorum_rl.envs import AnyWorld, in_blocks
from quorum_rl.experts import RULES, SmoothedExperts, UnloggedExperts, check_floor

Array: TypeAlias = jax.Array

STEPS_AT_ONCE: Final = 32  # that the host takes together


class Played(NamedTuple):
    """Episodes one after the other, those of each expert together.

    Shapes: `observations` (steps + episodes, observation_size), `actions` and `rewards` (steps,),
    the others (episodes,).
    """

    observations: npt.NDArray[np.float32]
    actions: npt.NDArray[Any]  # int32, or float32 with an axis of numbers
    rewards: npt.NDArray[np.float32]
    length: npt.NDArray[np.int64]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]


class _Now(NamedTuple):
    """Worlds in the middle of their episodes; leading axes are experts and trajectories."""

    state: Any
    observation: Array  # of an ended episode the last one
    going: Array
    terminated: Array
    truncated: Array
    start: Any  # the state in which each episode began


class _Seen(NamedTuple):
    """One step of all worlds, or several along the third axis."""

    observation: Any  # before it
    action: Any
    reward: Any
    going: Any  # whether the episode had not ended before
    answered: Any  # whether the expert gave a distribution


class _Piece(NamedTuple):
    """The rows of some steps, episode by episode, and how many of each episode."""

    first: int
    counts: npt.NDArray[np.int64]
    observations: npt.NDArray[np.float32]
    actions: npt.NDArray[Any]
    rewards: npt.NDArray[np.float32]


Act = Callable[[Array], tuple[Array, Array]]
"""Actions for the observations of all worlds, and whether an answer stands behind each."""


def rolled(
    experts: UnloggedExperts,
    world: AnyWorld,
    params: Any,
    *,
    trajectories: int,
    horizon: int,
    seed: int | None,
) -> Played:
    """Let every expert act in worlds of its own, as a query would find it.

    Each process does so for its share of the experts, and all get all.

    Raises:
        QuorumError: if an expert's answer is no distribution, or is below its floor.
    """
    for_worlds, for_actions = map(np.random.Philox, np.random.SeedSequence(seed).spawn(2))
    everyone, own = (len(experts), trajectories), own_share(len(experts))
    # Every trajectory has a key of its own: knowing one says nothing about another.
    words = np.random.Generator(for_worlds).integers(2**32, size=(*everyone, 2), dtype=np.uint32)
    count = len(range(len(experts))[own])
    keys = placed(padded(words[own], count))
    rng = np.random.Generator(for_actions)
    act, check = _acting(experts, own, lambda: chances(experts, rng, everyone)[own])
    begin, step, stacked = _compiled(world)
    now = begin(keys, params)
    pieces: list[_Piece] = []
    under_way: tuple[int, _Seen] | None = None

    def taken(first: int, steps: _Seen) -> bool:
        """Keep what was seen; whether some episode was going at its end."""
        host = _Seen(*(np.asarray(leaf)[:count] for leaf in steps))
        if not host.answered.all():
            for place in range(host.answered.shape[2]):
                check(host.observation[:, :, place])
        pieces.append(_piece(first, host))
        return bool(host.going[..., -1].any())

    for first in range(0, horizon, STEPS_AT_ONCE):
        some = []
        for time in range(first, min(first + STEPS_AT_ONCE, horizon)):
            actions, answered = act(now.observation)
            now, seen = step(now, keys, actions, answered, time, params)
            some.append(seen)
        steps = stacked(some)
        for leaf in steps:
            leaf.copy_to_host_async()
        if under_way is not None and not taken(*under_way):  # while the devices go on
            under_way = None
            break
        under_way = first, steps
    if under_way is not None:
        taken(*under_way)
    last, terminated, truncated = (
        np.asarray(leaf)[:count] for leaf in (now.observation, now.terminated, now.truncated)
    )
    rows = _put_together(pieces, last.reshape(-1, last.shape[-1]))
    length = joined(rows.length.reshape(count, -1), len(experts)).reshape(-1)
    ended, cut = (joined(leaf, len(experts)).reshape(-1) for leaf in (terminated, truncated))
    observations, moves, rewards = joined_rows((rows.observations, rows.actions, rows.rewards))
    return Played(observations, moves, rewards, length, ended, cut)


def _piece(first: int, seen: _Seen) -> _Piece:
    steps = seen.going.shape[2]
    going = np.asarray(seen.going).reshape(-1, steps)
    each = (np.asarray(leaf).reshape(-1, steps, *leaf.shape[3:]) for leaf in seen[:3])
    return _Piece(first, going.sum(axis=1), *(leaf[going] for leaf in each))


class _Rows(NamedTuple):
    observations: npt.NDArray[np.float32]
    actions: npt.NDArray[Any]
    rewards: npt.NDArray[np.float32]
    length: npt.NDArray[np.int64]


def _put_together(pieces: list[_Piece], last: npt.NDArray[np.float32]) -> _Rows:
    """All pieces, episode by episode; `last` are the observations after the last steps."""
    length = np.sum([piece.counts for piece in pieces], axis=0)
    ends = np.cumsum(length)
    firsts, episodes = ends - length, np.arange(len(length))
    observations = np.empty((ends[-1] + len(length), last.shape[1]), np.float32)
    taken = pieces[0].actions
    actions = np.empty((ends[-1], *taken.shape[1:]), taken.dtype)
    rewards = np.empty(ends[-1], np.float32)
    observations[ends + episodes] = last
    for piece in pieces:
        within = np.arange(len(piece.actions)) - np.repeat(
            np.cumsum(piece.counts) - piece.counts, piece.counts
        )
        places = within + np.repeat(firsts + piece.first, piece.counts)
        actions[places], rewards[places] = piece.actions, piece.rewards
        observations[places + np.repeat(episodes, piece.counts)] = piece.observations
    return _Rows(observations, actions, rewards, length)


# --- acting ---


def _acting(
    experts: UnloggedExperts, own: slice, draw: Callable[[], npt.NDArray[np.float64]]
) -> tuple[Act, Callable[[npt.NDArray[np.float32]], Any]]:
    """What some experts do, and the same on the host, where it says what is wrong with an answer.

    `draw` draws chances for each of their worlds.
    """
    numbers = range(len(experts))[own]
    asked = experts.among(own)

    def checked(observations: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        probabilities = asked(observations)
        check_floor(probabilities, numbers, experts.p_min)
        return probabilities

    def on_the_host(observations: Array) -> tuple[Array, Array]:
        answers = asked(np.array(observations)[: len(numbers)])
        chosen = chosen_actions(experts, numbers, answers, draw())
        actions: Any = placed(padded(chosen, len(numbers)))
        answered: Any = placed(np.ones(actions.shape[:2], bool))
        return actions, answered

    if not isinstance(experts, SmoothedExperts) or experts.rule != "greedy":
        return on_the_host, checked
    likeliest = experts.original.likeliest_among(own)
    if likeliest is None:
        return on_the_host, checked
    every = RULES[experts.rule](np.eye(experts.action_count), experts.p_min)

    def on_the_devices(observations: Array) -> tuple[Array, Array]:
        """The action for each likeliest one is drawn before it is known which one that is."""
        table = drawn(every[:, None], draw()[:, None])
        found: tuple[Array, Array] = _looked_up()(
            likeliest(observations), placed(padded(table.astype(np.int16), len(numbers)))
        )
        return found

    return on_the_devices, checked


def chances(
    experts: UnloggedExperts, rng: np.random.Generator, shape: tuple[int, ...]
) -> npt.NDArray[np.float64]:
    """What decides between actions: a uniform number, or a Gaussian one for each of an action's."""
    if experts.action_bounds:
        return rng.standard_normal((*shape, experts.action_count))
    return rng.random(shape)


def chosen_actions(
    experts: UnloggedExperts,
    numbers: range,
    answers: npt.NDArray[np.float64],
    chance: npt.NDArray[np.float64],
) -> npt.NDArray[Any]:
    """The actions of some experts who answered so.

    Raises:
        QuorumError: if a probability is below the floor.
    """
    if experts.action_bounds:
        mean, log_deviation = np.split(answers, 2, axis=-1)
        low, high = np.asarray(experts.action_bounds, np.float32).T
        return np.clip(mean + np.exp(log_deviation) * chance, low, high).astype(np.float32)
    check_floor(answers, numbers, experts.p_min)
    return drawn(answers, chance)


def drawn(
    probabilities: npt.NDArray[np.float64], uniform: npt.NDArray[np.float64]
) -> npt.NDArray[np.int32]:
    """An action for each row of probabilities, by inversion of one uniform number each."""
    edges = probabilities.cumsum(axis=-1)
    shape = np.broadcast_shapes(edges.shape[:-1], uniform.shape)
    chosen = np.zeros(shape, np.int32)
    for action in range(edges.shape[-1] - 1):
        chosen += uniform >= edges[..., action]
    return chosen


# --- programs ---


@lru_cache(maxsize=1)
def _looked_up() -> Any:
    """Of a table (experts, actions, trajectories) the entries of the likeliest actions."""

    def look_up(likeliest: Array, table: Array) -> tuple[Array, Array]:
        answered = likeliest >= 0
        place = jnp.where(answered, likeliest, 0)[:, None]
        return jnp.take_along_axis(table, place, axis=1)[:, 0].astype(jnp.int32), answered

    return over_experts(look_up)


@lru_cache(maxsize=8)
def _compiled(world: AnyWorld) -> tuple[Any, Any, Any]:
    """Starting and stepping every expert's worlds, spread over the devices, and joining steps.

    Leading axes are experts and trajectories; keys come as the words that they are made of.
    """

    def key_at(words: Array, time: Array | int) -> Array:
        return jax.random.fold_in(jax.random.wrap_key_data(words, impl="threefry2x32"), time)

    def begin(keys: Array, params: Any) -> _Now:
        def reset(words: Array) -> Any:
            return world.reset(key_at(words, 0), params)

        state, observation = jax.vmap(jax.vmap(reset))(keys)
        never = jnp.zeros(keys.shape[:2], bool)
        return _Now(state, observation, ~never, never, never, state)

    def step(
        now: _Now, keys: Array, actions: Array, answered: Array, time: Array, params: Any
    ) -> tuple[_Now, _Seen]:
        def one(words: Array, state: Any, action: Array) -> Any:
            return world.step(key_at(words, time + 1), state, action, params)

        def some(copies: tuple[Array, Any, Array], own: Any) -> Any:
            del own  # they share one setting
            return jax.vmap(one)(*copies)

        experts, trajectories = actions.shape[:2]
        flat = jax.tree.map(
            lambda leaf: leaf.reshape(experts * trajectories, *leaf.shape[2:]),
            (keys, now.state, actions),
        )
        after = jax.tree.map(
            lambda leaf: leaf.reshape(experts, trajectories, *leaf.shape[1:]),
            in_blocks(world, some, flat, params),
        )
        terminated, truncated = now.going & after.terminated, now.going & after.truncated
        going = now.going & ~(terminated | truncated)
        # An ended world begins anew, unseen, and again with each step: what happens after an end
        # may be no number, or take a world long. Its last observation stays.
        state = jax.tree.map(lambda new, old: _where(going, new, old), after.state, now.start)
        observation = _where(now.going, after.observation, now.observation)
        seen = _Seen(now.observation, actions, after.reward, now.going, answered)
        ended = now.terminated | terminated, now.truncated | truncated
        return _Now(state, observation, going, *ended, now.start), seen

    def stacked(steps: list[_Seen]) -> _Seen:
        made: _Seen = jax.tree.map(lambda *leaves: jnp.stack(leaves, axis=2), *steps)
        return made

    return (
        over_experts(begin, shared=1),
        over_experts(step, shared=2),
        over_experts(stacked),
    )


def _where(chosen: Array, new: Array, old: Array) -> Array:
    return jnp.where(chosen.reshape(chosen.shape + (1,) * (new.ndim - chosen.ndim)), new, old)
