"""`quorum worlds`: which there are, and what happens in them."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from quorum_rl import envs
from quorum_rl.cli.output import check_picture, console, save_picture, show_facts
from quorum_rl.cli.parser import RUNS_CODE, Positional

if TYPE_CHECKING:
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

        table = Table("world", "sees", "actions", "settings", "random", "reference")
        facts, lines = {}, []
        for name in envs.world_names():
            world = envs.get_world(name)
            names, known = world.spaces.action_names, world.facts
            bounds = world.spaces.action_bounds
            params, settings = asdict(world.default_params()), len(world.settings().time_limit)
            facts[name] = asdict(known) | {
                "observations": world.spaces.observation_names,
                "actions": names,
                **({"action_bounds": bounds} if bounds else {}),
                "params": params,
                "settings": settings,
            }
            size, returns = (
                world.spaces.observation_size,
                (known.random_return, known.reference_return),
            )
            scores = [f"{value:.4g}" for value in returns]
            ranges = [f" {low:g} to {high:g}" for low, high in bounds] or [""] * len(names)
            said = ", ".join(map("".join, zip(names, ranges, strict=True)))
            table.add_row(name, f"{size} numbers", said, str(settings), *scores)
            lines.append(f"  {name}: {', '.join(f'{k} {v:g}' for k, v in params.items())}")
        title = "Parameters that may be changed (with --param NAME VALUE):"
        show_facts(facts, table, title, *lines, as_json=self.json)


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
        world = envs.get_world(self.world)
        params = envs.with_params(world, **self.param)
        check_picture(self.out)
        episode, state = self._episode(world, params)
        title = f"{world.name}, {self.policy} policy, return {episode.reward.sum():.4g}"
        save_picture(envs.draw_episode(world, episode, params, title, state), self.out)
        console().print(f"{title}: {self.out}")

    def _episode(self, world: "envs.AnyWorld", params: Any) -> "tuple[Transition, Any]":
        """A whole episode, with a leading axis of steps, and its first state."""
        import jax
        import numpy as np

        refers = self.policy == "reference"
        acts = envs.reference_policy(world) if refers else envs.uniform_policy(world)
        key = jax.random.key(self.seed)
        begun = envs.start(world, key, params, 1)
        _, seen = envs.roll_out(world, acts, key, begun, params, int(params.time_limit))
        length = int(np.argmax(np.asarray(seen.terminated | seen.truncated)[:, 0])) + 1
        episode: Transition = jax.tree.map(lambda leaf: np.asarray(leaf)[:length, 0], seen)
        return episode, jax.tree.map(lambda leaf: np.asarray(leaf)[0], begun.state)
