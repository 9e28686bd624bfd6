"""`quorum worlds`: which there are, and what happens in them."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from quorum_rl.cli.output import check_picture, check_seed, console, save_picture


@dataclass(frozen=True)
class List:
    """Say which worlds there are.

    Example: quorum worlds list
    """

    json: bool = False
    """Print machine-readable facts instead of a table."""

    def run(self) -> None:
        from rich.table import Table

        from quorum_rl.envs import get_world, world_names

        worlds = [get_world(name) for name in world_names()]
        if self.json:
            facts = {
                world.name: asdict(world.facts)
                | {
                    "observations": world.spaces.observation_names,
                    "actions": world.spaces.action_names,
                    "params": asdict(world.default_params()),
                    "settings": len(world.settings().time_limit),
                }
                for world in worlds
            }
            print(json.dumps(facts, indent=2))
            return
        table = Table("world", "sees", "actions", "settings", "random", "reference")
        for world in worlds:
            table.add_row(
                world.name,
                f"{world.spaces.observation_size} numbers",
                ", ".join(world.spaces.action_names),
                f"{len(world.settings().time_limit)}",
                f"{world.facts.random_return:.4g}",
                f"{world.facts.reference_return:.4g}",
            )
        console().print(table)
        console().print("Parameters that may be changed (with --param NAME VALUE):")
        for world in worlds:
            params = ", ".join(f"{k} {v:g}" for k, v in asdict(world.default_params()).items())
            console().print(f"  {world.name}: {params}")


@dataclass(frozen=True)
class Draw:
    """Draw one episode of a world.

    Example: quorum worlds draw Acrobot --policy reference --out acrobot.png
    """

    world: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="WORLD")]
    """A world's name, or path/to/file.py:NAME for your own."""
    out: Path
    """The picture to write: .png or .svg."""
    policy: Literal["random", "reference"] = "random"
    """Who acts: chance, or the policy that returns are measured against."""
    seed: int = 0
    """Another number, another episode."""
    param: dict[str, float] = field(default_factory=dict)
    """World parameters to change, such as --param gravity 9.0."""

    def run(self) -> None:
        from quorum_rl.cli.episodes import one_episode
        from quorum_rl.envs import draw_episode, get_world, with_params

        world = get_world(self.world)
        params = with_params(world, **self.param)
        check_picture(self.out)
        check_seed(self.seed)
        episode, state = one_episode(world, params, self.policy, self.seed)
        title = f"{world.name}, {self.policy} policy, return {episode.reward.sum():.4g}"
        save_picture(draw_episode(world, episode, params, title, state), self.out)
        console().print(f"{title}: {self.out}")


@dataclass(frozen=True)
class Worlds:
    """The worlds: list them, draw an episode."""

    command: (
        Annotated[List, tyro.conf.subcommand("list")]
        | Annotated[Draw, tyro.conf.subcommand("draw")]
    )

    def run(self) -> None:
        self.command.run()
