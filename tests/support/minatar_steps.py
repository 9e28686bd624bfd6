"""Steps of MinAtar's games with chance decided from outside, and the file of some that tests keep.

    python tests/support/minatar_steps.py    # plays and writes that file; needs the package minatar

MinAtar draws two numbers: whether an action sticks, and from which side Breakout's ball comes.
"""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from quorum_rl.envs import AnyWorld, get_world, reference_policy
from quorum_rl.envs.minatar import STICKY_PROBABILITY

GAMES = {"Breakout": "breakout", "SpaceInvaders": "space_invaders"}
KEPT = Path(__file__).parent / "minatar_steps.npz"


class Chosen(NamedTuple):
    """What decides a play: one row a step."""

    action: Any
    sticks: Any  # bool
    right: Any  # bool: whether the ball of an episode that begins after this step comes from there


class Seen(NamedTuple):
    """What came of it; after an end the next step is of a new episode."""

    observation: Any  # bool, (steps, 10, 10, channels)
    reward: Any
    terminated: Any


def chosen(world: AnyWorld, steps: int, seed: int, clever: float) -> Chosen:
    """Actions of the reference policy with probability `clever`, or any; chance as MinAtar's."""
    rng = np.random.default_rng(seed)
    sticks, right = rng.random(steps) < STICKY_PROBABILITY, rng.random(steps) < 0.5
    any_action = rng.integers(world.spaces.action_count, size=steps).astype(np.int32)
    _, action = _played(
        world, Chosen(any_action, sticks, right), jnp.asarray(rng.random(steps) < clever)
    )
    return Chosen(np.asarray(action), sticks, right)


def ours(world: AnyWorld, plays: Chosen) -> Seen:
    after, _ = _played(world, plays, jnp.zeros(len(plays.action), bool))
    pictures = np.asarray(after.observation).reshape(len(plays.action), 10, 10, -1)
    return Seen(pictures.astype(bool), np.asarray(after.reward), np.asarray(after.terminated))


def _played(world: AnyWorld, plays: Chosen, clever: Any) -> tuple[Seen, Any]:
    policy, key = reference_policy(world), jax.random.key(0)
    params = vars(world.default_params()) | {"time_limit": len(plays.action) + 1}

    def begun(right: Any) -> Any:
        sided = {"right_start": right.astype(jnp.float32)} if "right_start" in params else {}
        return world.reset(key, type(world.default_params())(**(params | sided)))

    def step(now: Any, row: tuple[Chosen, Any]) -> tuple[Any, Any]:
        (state, observation), (play, wise) = now, row
        act = lambda: policy(key, observation).astype(jnp.int32)  # noqa: E731
        action = jax.lax.cond(wise, act, lambda: play.action)
        stuck = {"sticky_probability": play.sticks.astype(jnp.float32)}
        after = world.step(key, state, action, type(world.default_params())(**(params | stuck)))
        fresh, going = begun(play.right), (after.state, after.observation)
        going = jax.tree.map(lambda new, old: jnp.where(after.terminated, new, old), fresh, going)
        return going, (Seen(after.observation, after.reward, after.terminated), action)

    rows = (jax.tree.map(jnp.asarray, plays), clever)
    run = jax.jit(lambda rows: jax.lax.scan(step, begun(jnp.bool_(False)), rows))
    seen: tuple[Seen, Any] = run(rows)[1]
    return seen


class _Forced:
    """In the place of MinAtar's generator of random numbers."""

    sticks = right = False

    def rand(self) -> float:
        return 0.0 if self.sticks else 1.0

    def randint(self, count: int) -> int:
        assert count == 2
        return int(self.right)


def theirs(name: str, plays: Chosen) -> Seen:
    """The same steps of MinAtar, each episode as of a new environment."""
    from minatar import Environment

    env: Any = Environment(GAMES[name])
    env.random = env.env.random = forced = _Forced()
    env.reset()
    listed, rows = env.minimal_action_set(), []
    for action, forced.sticks, right in zip(*plays, strict=True):
        reward, terminated = env.act(listed[action])
        rows.append((env.state(), reward, terminated))
        forced.right = right
        if terminated:
            env.reset()
            env.last_action = 0
    return Seen(*(np.array(column) for column in zip(*rows, strict=True)))


def kept(name: str) -> tuple[Chosen, Seen]:
    """MinAtar's steps as they were written down."""
    with np.load(KEPT) as stored:
        own = {field: stored[f"{name} {field}"] for field in (*Chosen._fields, *Seen._fields)}
    shape = (len(own["action"]), 10, 10, get_world(name).spaces.observation_size // 100)
    cells = np.unpackbits(own["observation"], axis=1, count=int(np.prod(shape[1:])))
    own["observation"] = cells.reshape(shape).astype(bool)
    own["action"] = own["action"].astype(np.int32)
    return (
        Chosen(*(own[field] for field in Chosen._fields)),
        Seen(*(own[field] for field in Seen._fields)),
    )


def main() -> None:
    stored: dict[str, Any] = {}
    for name in GAMES:
        plays = chosen(get_world(name), steps=4_000, seed=0, clever=0.97)
        seen = theirs(name, plays)
        packed = np.packbits(seen.observation.reshape(len(seen.reward), -1), axis=1)
        fields = plays._asdict() | seen._replace(observation=packed)._asdict()
        fields["action"] = fields["action"].astype(np.int8)
        fields["reward"] = fields["reward"].astype(np.int8)
        stored |= {f"{name} {field}": value for field, value in fields.items()}
    np.savez_compressed(KEPT, **stored)


if __name__ == "__main__":
    main()
