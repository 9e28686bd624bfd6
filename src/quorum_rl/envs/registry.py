"""The worlds by name, and how a user's own is found."""

import hashlib
from pathlib import Path

from quorum_rl.envs.acrobot import Acrobot
from quorum_rl.envs.breakout import Breakout
from quorum_rl.envs.cartpole import CartPole
from quorum_rl.envs.hiv import Hiv
from quorum_rl.envs.lunar_lander import LunarLander, LunarLanderContinuous
from quorum_rl.envs.pendulum import Pendulum
from quorum_rl.envs.space_invaders import SpaceInvaders
from quorum_rl.envs.world import AnyWorld, World
from quorum_rl.errors import QuorumError, unknown_name
from quorum_rl.files import attribute_in_file

WORLDS: dict[str, AnyWorld] = {
    world.name: world
    for world in (
        CartPole(), Acrobot(), LunarLander(), Hiv(), Pendulum(), LunarLanderContinuous(),
        Breakout(), SpaceInvaders(),
    )
}  # fmt: skip


def world_names() -> tuple[str, ...]:
    """The names of the worlds that come with Quorum."""
    return tuple(WORLDS)


def get_world(name: str) -> AnyWorld:
    """The world called `name`; `path/to/file.py:ATTRIBUTE` takes one from a user's own file.

    Raises:
        QuorumError: if there is no such world, file or attribute.
    """
    if ":" in name:
        return _world_in_file(name)
    if name not in WORLDS:
        raise unknown_name("world", name, WORLDS)
    return WORLDS[name]


def code_of_world(name: str) -> str | None:
    """Of a world in a user's own file, which code that is; None of another."""
    path = name.rpartition(":")[0]
    return hashlib.sha256(Path(path).read_bytes()).hexdigest() if path else None


def _world_in_file(name: str) -> AnyWorld:
    world = attribute_in_file("world", name)
    if not isinstance(world, World):
        path, _, attribute = name.rpartition(":")
        raise QuorumError(
            f"world {name!r}: {path!r} has no world called {attribute!r}; "
            "it needs the members that quorum_rl.envs.World lists."
        )
    return world
