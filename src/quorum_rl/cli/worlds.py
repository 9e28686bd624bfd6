"""`quorum worlds`: which there are, and what happens in them."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from quorum_rl.cli.output import check_picture, check_seed, console, save_picture, show_facts
from quorum_rl.cli.parser import RUNS_CODE, Positional

if TYPE_CHECKING:
    from quorum_rl.envs import AnyWorld
    from quorum_rl.types import Transition


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
            show_facts(facts, as_json=True)
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

    world: Annotated[str, Positional("WORLD"), RUNS_CODE]
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
        from quorum_rl.envs import draw_episode, get_world, with_params

        world = get_world(self.world)
        params = with_params(world, **self.param)
        check_picture(self.out)
        check_seed(self.seed)
        episode, state = self._episode(world, params)
        title = f"{world.name}, {self.policy} policy, return {episode.reward.sum():.4g}"
        save_picture(draw_episode(world, episode, params, title, state), self.out)
        console().print(f"{title}: {self.out}")

    def _episode(self, world: "AnyWorld", params: Any) -> "tuple[Transition, Any]":
        """A whole episode, with a leading axis of steps, and its first state."""
        import jax
        import numpy as np

        from quorum_rl.envs import reference_policy, roll_out, start, uniform_policy

        acts = reference_policy(world) if self.policy == "reference" else uniform_policy(world)
        key = jax.random.key(self.seed)
        begun = start(world, key, params, 1)
        _, seen = roll_out(world, acts, key, begun, params, int(params.time_limit))
        length = int(np.argmax(np.asarray(seen.terminated | seen.truncated)[:, 0])) + 1
        episode: Transition = jax.tree.map(lambda leaf: np.asarray(leaf)[:length, 0], seen)
        return episode, jax.tree.map(lambda leaf: np.asarray(leaf)[0], begun.state)
