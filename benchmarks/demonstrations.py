"""How fast demonstrations are collected, a large file of them opens, and how little of it is read.

    python benchmarks/demonstrations.py
    python benchmarks/demonstrations.py --transitions 60000000 --observation-size 8
    python benchmarks/demonstrations.py --collect LunarLander --experts 3000

Writes a generated file to a temporary folder, drops it from the page cache (where the system
allows), and then opens it and draws from it in a fresh process. With `--collect` experts act
instead, one network of random numbers each: in turns with the plain loop of `plain_rolling.py`,
which waits for the host at every step, or alone with `--plain 0`.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import jax
import numpy as np

import plain_rolling
from quorum_rl.cli.parser import parse
from quorum_rl.distributed import padded, placed, prepare
from quorum_rl.envs import AnyWorld, get_world, with_params
from quorum_rl.experts import Population, SmoothedExperts, UnloggedExperts
from quorum_rl.logs import (
    Declared,
    Demonstrations,
    collect,
    from_episodes,
    open_demonstrations,
    rolling,
    save_demonstrations,
    split_release_pool,
)
from quorum_rl.nets import Layer

EXPERTS_DRAWN = 512
TRANSITIONS_DRAWN = 16  # per expert
STEPS_TIMED = 20


@dataclass(frozen=True)
class Args:
    transitions: int = 12_000_000
    experts: int = 3000
    observation_size: int = 4
    horizon: int = 200
    open_only: Path | None = None  # measure this file in this process
    collect: str | None = None  # a world: measure how fast experts act there
    hidden: tuple[int, ...] = (512, 256, 64)
    trajectories: int = 20
    time_limit: int | None = None  # that of the world's demonstrations
    plain: int = 1  # rounds of the plain loop
    rounds: int = 2


def write(args: Args, path: Path) -> float:
    """Write a generated log of about `transitions` steps; the seconds that writing took."""
    rng = np.random.default_rng(0)
    episodes = args.transitions // args.horizon
    steps = episodes * args.horizon
    demonstrations = from_episodes(
        Declared(2, args.observation_size, args.horizon),
        expert=np.sort(np.arange(episodes) % args.experts),
        length=np.full(episodes, args.horizon),
        observations=rng.random((steps + episodes, args.observation_size), dtype=np.float32),
        actions=rng.integers(2, size=steps, dtype=np.uint8),
        rewards=rng.random(steps, dtype=np.float32),
        terminated=np.zeros(episodes, dtype=bool),
        truncated=np.ones(episodes, dtype=bool),
    )
    start = time.perf_counter()
    save_demonstrations(demonstrations, path)
    return time.perf_counter() - start


def measure(path: Path) -> dict[str, float]:
    """Open, split and draw: seconds, and growth of memory in MB.

    Own memory is what the process needs; mapped memory is the file's pages it has touched, which
    the system can take back at any time.
    """
    before = memory()
    start = time.perf_counter()
    demonstrations = open_demonstrations(path, values=False)
    opened = time.perf_counter()
    after_open = memory()
    training = split_release_pool(demonstrations, per_expert=5).training
    split = time.perf_counter()
    draw(training, 0)
    first = time.perf_counter()
    for seed in range(1, 11):
        draw(training, seed)
    later = time.perf_counter()
    after_draws = memory()
    return {
        "open_s": opened - start,
        "open_own_mb": after_open[0] - before[0],
        "open_mapped_mb": after_open[1] - before[1],
        "split_s": split - opened,
        "first_draw_s": first - split,
        "later_draw_s": (later - first) / 10,
        "draws_own_mb": after_draws[0] - before[0],
        "draws_mapped_mb": after_draws[1] - before[1],
    }


def draw(demonstrations: Demonstrations, seed: int) -> None:
    """Some experts, and for each some of its transitions, as private training does."""
    rng = np.random.default_rng(seed)
    expert = rng.integers(demonstrations.expert_count, size=EXPERTS_DRAWN)
    offsets = demonstrations.expert_transition_offsets
    first, count = offsets[expert], np.diff(offsets)[expert]
    within = (rng.random((TRANSITIONS_DRAWN, EXPERTS_DRAWN)) * count).astype(np.int64)
    demonstrations.transitions(first + within)


def collecting(args: Args, world: AnyWorld) -> None:
    """Seconds of each round, and of the plain loop beside it; the first ones compile."""
    spaces = world.spaces
    limit = args.time_limit or world.facts.demonstration_time_limit
    params = with_params(world, time_limit=limit)
    sizes = (spaces.observation_size, *args.hidden, spaces.action_count)
    rng = np.random.default_rng(0)

    def layer(rows: int, columns: int) -> Layer:
        weight = rng.standard_normal((args.experts, rows, columns), np.float32) / np.sqrt(rows)
        return Layer(weight, np.zeros((args.experts, columns), np.float32))

    experts = Population(
        observation_size=spaces.observation_size,
        action_count=spaces.action_count,
        network=tuple(layer(*pair) for pair in pairwise(sizes)),
    ).smoothed(0.02)
    ways: dict[str, Callable[[], Demonstrations]] = {
        "collect": lambda: collect(experts, world, params, trajectories=args.trajectories, seed=0)[
            0
        ],
        "plain": lambda: plain_rolling.collected(experts, world, params, args.trajectories, 0),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(args.rounds):
        for name, way in ways.items():
            if name == "plain" and number >= args.plain:
                continue
            begun = time.perf_counter()
            log = way()
            seconds[name].append(time.perf_counter() - begun)
            rate = log.transition_count / seconds[name][-1]
            print(f"{name:8}{seconds[name][-1]:8.2f} s, {rate:,.0f} transitions/s", flush=True)
    if seconds["plain"]:
        print(f"ratio {min(seconds['plain']) / min(seconds['collect']):.1f}")
    for name, each in parts(experts, world, params, args.trajectories).items():
        print(f"{name:8}{1000 * each:8.2f} ms of a step, when waited for")


def parts(
    experts: UnloggedExperts, world: AnyWorld, params: object, trajectories: int
) -> dict[str, float]:
    """Seconds of a step's parts, one after the other: drawing, asking all experts, the worlds."""
    rng = np.random.default_rng(0)
    shape = (len(experts), trajectories)
    begin, step, _ = rolling._compiled(world)
    keys = placed(padded(rng.integers(2**32, size=(*shape, 2), dtype=np.uint32), len(experts)))
    now = begin(keys, params)
    assert isinstance(experts, SmoothedExperts)
    likeliest = experts.original.likeliest_among(slice(None))
    act, _ = rolling._acting(experts, slice(None), lambda: rng.random(shape))
    assert likeliest is not None  # a population is on the devices
    seconds = {"draw": 0.0, "ask": 0.0, "step": 0.0}
    for time_step in range(STEPS_TIMED + 1):
        marks = [time.perf_counter()]
        jax.block_until_ready(likeliest(now.observation))
        marks.append(time.perf_counter())
        taken = jax.block_until_ready(act(now.observation))
        marks.append(time.perf_counter())
        now, _ = jax.block_until_ready(step(now, keys, *taken, time_step, params))
        marks.append(time.perf_counter())
        if time_step:  # the first one compiles
            asked, both, stepped = np.diff(marks) / STEPS_TIMED
            found = {"draw": both - asked, "ask": asked, "step": stepped}
            seconds = {name: seconds[name] + found[name] for name in seconds}
    return seconds


def memory() -> tuple[float, float]:
    """Resident memory of this process in MB: its own, and pages of files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    own, mapped = (int(fields[name].split()[0]) / 1e3 for name in ("RssAnon", "RssFile"))
    return own, mapped


def forget(path: Path) -> None:
    """Ask the system to drop the file from its cache."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def main(args: Args) -> None:
    if args.open_only is not None:
        print(json.dumps(measure(args.open_only)))
        return
    if args.collect is not None:
        prepare(fast=True)
        collecting(args, get_world(args.collect))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "demonstrations.arrow"
        seconds = write(args, path)
        print(f"wrote {path.stat().st_size / 1e6:.0f} MB in {seconds:.2f} s")
        for name in ("cold", "warm"):
            if name == "cold":
                forget(path)
            command = [sys.executable, __file__, "--open-only", str(path)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            numbers = json.loads(done.stdout)
            print(name, " ".join(f"{key}={value:.4f}" for key, value in numbers.items()))


if __name__ == "__main__":
    main(parse(Args, sys.argv[1:], called="demonstrations.py"))
