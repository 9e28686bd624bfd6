"""The shell around training a population: progress, interruption, files."""

import math
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpy.typing as npt
from rich.console import Console

from quorum_rl import __version__, envs, experts
from quorum_rl.cli.experts import Train
from quorum_rl.cli.output import console, stoppable_bar
from quorum_rl.distributed import is_first, is_single_process
from quorum_rl.errors import Interrupted, QuorumError

SECONDS_BETWEEN_CHECKPOINTS = 600


def train(command: Train) -> None:
    """Train, choose and save experts; or stop, and leave what is needed to go on."""
    world = envs.get_world(command.world)
    if command.world not in envs.world_names():
        envs.check_world(world)
    chosen = command.planned(world)
    configuration = _configuration(command, chosen)
    begun = time.perf_counter()
    judged, numbers = _trained(command, world, chosen, configuration)
    population = experts.Population(
        observation_size=world.spaces.observation_size,
        action_count=world.spaces.action_count,
        action_bounds=world.spaces.action_bounds,
        network=jax.tree.map(lambda leaf: leaf[numbers], judged.network),
        origin=configuration | {"quorum": __version__, "jax": jax.__version__},
    )
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(population.network)):
        raise QuorumError(
            "some of the chosen experts diverged, their weights are not finite: lower "
            "--learning-rates, or ask for fewer experts."
        )
    if is_first():  # all have all
        experts.save_population(population, command.out, half_precision=command.half_precision)
    _unfinished(command).unlink(missing_ok=True)
    _shown().print(
        f"{len(population)} experts after {time.perf_counter() - begun:.0f} s: {command.out}; "
        f"mean return on their own settings {judged.returns[numbers].mean():.4g}{_peak_memory()}"
    )


def _trained(
    command: Train, world: envs.AnyWorld, chosen: experts.Preset, configuration: dict[str, Any]
) -> tuple[experts.JudgedAgents, npt.NDArray[np.intp]]:
    """Train all agents, going on from where an interrupted command stopped."""
    plan, recipe = chosen.plan, chosen.recipe
    unfinished, shown = _unfinished(command), _shown()
    standing = None
    if unfinished.exists():
        standing = experts.load_standing(unfinished, world, recipe, configuration)
        shown.print(f"going on from {str(unfinished)!r}")
    shown.print(
        f"{plan.agents} agents ({plan.settings} settings of {world.name} × {plan.candidates} "
        f"candidates), {plan.total_steps:,} steps each, hidden {recipe.hidden}, on "
        f"{len(jax.devices())} {jax.devices()[0].device_kind}"
    )
    steps, reported = 0, time.perf_counter()
    saved = reported
    with stoppable_bar(shown, "steps") as update:

        def report(progress: experts.PopulationProgress, standing: experts.WaveState) -> bool:
            """Between two chunks: the bar moves, a checkpoint may be due, somebody may stop it."""
            nonlocal steps, reported, saved
            now = time.perf_counter()
            speed = (progress.steps - steps) / (now - reported)
            returned = "-" if math.isnan(progress.mean_return) else f"{progress.mean_return:.4g}"
            steps, reported = progress.steps, now
            if now - saved > SECONDS_BETWEEN_CHECKPOINTS:
                experts.save_standing(standing, unfinished, configuration)
                saved = time.perf_counter()
            return update(steps, progress.total_steps, f"{speed:,.0f} steps/s, return {returned}")

        try:
            return experts.train_population(
                world,
                plan,
                recipe,
                seed=command.seed,
                agents_per_wave=experts.agents_per_wave(world, plan, recipe),
                standing=standing,
                report=report,
            )
        except experts.Stopped as stopped:
            experts.save_standing(stopped.standing, unfinished, configuration)
            raise Interrupted(
                f"stopped after {steps:,} steps; the same command goes on from {str(unfinished)!r}."
            ) from None


def _configuration(command: Train, chosen: experts.Preset) -> dict[str, Any]:
    """All that decides what experts come out, as a file can hold it."""
    made = {"world": _lasting(command.world), "seed": command.seed}
    made |= asdict(chosen.plan) | asdict(chosen.recipe)
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in made.items()
    }


def _unfinished(command: Train) -> Path:
    """Where an interrupted training is kept; each of several processes has its own share."""
    own = "" if is_single_process() else f".{jax.process_index()}"
    return command.out.with_name(f"{command.out.name}.unfinished{own}")


def _shown() -> Console:
    """Where people read, which of several processes only the first writes to."""
    shown = console()
    shown.quiet = not is_first()
    return shown


def _peak_memory() -> str:
    stats = jax.local_devices()[0].memory_stats() or {}
    peak = stats.get("peak_bytes_in_use")
    return f"; peak memory {peak / 2**30:.1f} GiB a device" if peak else ""


def _lasting(world: str) -> str:
    """A world's name that is true from any folder."""
    path, colon, attribute = world.rpartition(":")
    return f"{Path(path).resolve()}:{attribute}" if colon else world
