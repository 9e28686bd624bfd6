"""One greedy episode of a run's policy in its world, drawn for the page."""

import re
from functools import partial
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from quorum_rl.report.facts import EpisodePicture, Maybe, Missing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SEED: Final = 0  # the page shows the same episode each time it is made


def gather_episode(folder: Path, world: str | None) -> Maybe[EpisodePicture]:
    """Lets the policy act in the world it was learned for, if that is one of ours.

    Guarantee: the policy and the world are public, so this costs nothing.

    Raises:
        QuorumError: if the policy's file is damaged.
    """
    from quorum_rl.envs import world_names  # late: worlds bring JAX

    if world is None:
        why = "The logs do not name a world, so the policy cannot be shown acting."
        return Missing(why, meant=False)
    if world not in world_names():
        why = f"{world} is not one of Quorum's own worlds, so no episode is drawn here."
        return Missing(why, meant=False)
    if not (folder / "policy.safetensors").exists():
        return Missing("There is no policy in this folder yet, so it cannot act.")
    return _drawn(folder / "policy.safetensors", world)


def _drawn(path: Path, name: str) -> Maybe[EpisodePicture]:
    from quorum_rl.envs import WorldEnv, draw_episode, get_world, play_episodes, with_params
    from quorum_rl.policy import Policy
    from quorum_rl.types import Transition

    world, policy = get_world(name), Policy.load(path)
    if policy.by_code is not None:
        why = f"The policy acts by the code of {policy.learner}, which a report does not run."
        return Missing(why, meant=False)
    sizes = (world.spaces.observation_size, world.spaces.action_count)
    if (policy.observation_size, policy.action_count) != sizes:
        return Missing(f"The policy does not have the observations and actions of {name}.")
    limit = world.facts.evaluation_time_limit
    params = with_params(world, time_limit=limit)

    make = partial(WorldEnv, world, time_limit=limit)
    (episode,) = play_episodes(
        make, lambda seen, _: policy.action_numbers(seen), episodes=1, copies=1, seed=SEED
    )
    steps = len(episode.actions)
    ended = np.arange(steps) == steps - 1
    columns: Any = {  # in NumPy: pictures need no more
        "observation": episode.observations[:-1],
        "action": episode.actions,
        "reward": episode.rewards,
        "next_observation": episode.observations[1:],
        "terminated": ended & episode.terminated,
        "truncated": ended & episode.truncated,
    }
    return EpisodePicture(
        world=name,
        steps=steps,
        total_reward=float(episode.rewards.sum()),
        svg=inline_svg(draw_episode(world, Transition(**columns), params)),
    )


def inline_svg(figure: "Figure") -> str:
    """A figure as SVG to be put into a page: without a background, in the colour of its text."""
    from matplotlib import rc_context

    drawn = StringIO()
    with rc_context({"svg.hashsalt": "quorum"}):
        figure.savefig(drawn, format="svg", metadata={"Date": None}, transparent=True)
    svg = drawn.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # A style sheet inside an inlined SVG would hold for the whole page.
    svg = re.sub(r"<style[^>]*>.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    return svg.replace("#000000", "currentColor")
