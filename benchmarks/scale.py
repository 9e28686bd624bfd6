"""What every stage takes for 100 to 30,000 experts: the measurements of docs/takes.md.

    python -m benchmarks.scale --out results/scale.parquet --name h200
    python -m benchmarks.scale --sizes cpu --out results/scale.parquet --name cpu --limit 300
    python -m benchmarks.scale --sizes tiny --out tiny.parquet

Each part (training experts, asking them, private steps) runs in a process of its own, as a device
tells its peak of memory only since the process began, and sizes rise within a part for the same
reason. Networks have random weights and the logs nothing but zeros: time does not depend on either.
A row says how large the run was. On a CPU the processor's seconds stand beside those of the clock,
as other work may take some of the latter. Compiling is not timed. About two and a half minutes on
an H200; `--limit` is the seconds after which a part begins nothing new.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from quorum_rl.distributed import prepare, this_machine
from reproduction.results import add

WIDTH, ACTIONS, HORIZON, TRAJECTORIES = 4, 2, 200, 20
HIDDEN: Final = (512, 256, 64)
WAVES: Final = 3  # of agents, at most so many are timed; they are alike
RATE: Final = 0.17  # what `fit` draws of the experts for a private step
PER_EXPERT: Final = 16
BLOCK: Final = 256  # experts that a GPU asks at once

Row = dict[str, Any]
BEGAN = time.perf_counter()


@dataclass(frozen=True)
class Sizes:
    """How much to measure."""

    experts: tuple[int, ...] = (100, 1000, 10_000, 30_000)
    agents_at_once: int = 5000
    hidden: tuple[int, ...] = HIDDEN
    acting: int = 16  # steps that experts act
    iterations: int = 400  # of a release
    counted: int = 16  # steps of each
    private_steps: int = 100
    private_of: int = 10_000  # experts, where other things vary
    batches: tuple[tuple[int, int, tuple[int, ...]], ...] = (
        (512, 16, (256, 256)),
        (512, 1, (256, 256)),
        (64, 16, (256, 256)),
        (512, 16, (64, 64)),
        (512, 16, (1024, 1024)),
    )


TINY: Final = Sizes(
    experts=(10, 40),
    agents_at_once=20,
    hidden=(16,),
    acting=4,
    iterations=20,
    counted=4,
    private_steps=4,
    private_of=40,
    batches=((8, 4, (16,)), (8, 1, (16,))),
)


CPU: Final = Sizes(
    experts=(10, 100),
    agents_at_once=100,
    hidden=(64, 64),
    iterations=100,
    counted=8,
    private_steps=10,
    private_of=300,
    batches=((64, 16, (256, 256)), (64, 1, (256, 256)), (64, 16, (64, 64)), (8, 16, (256, 256))),
)
SIZES: Final = {"gpu": Sizes(), "cpu": CPU, "tiny": TINY}


@dataclass
class Notes:
    """What was measured so far, written to a file after every row."""

    path: Path
    limit: float
    rows: list[Row] = field(default_factory=list)

    def add(self, stage: str, size: Row, took: "Took", **more: Any) -> None:
        row = {"stage": stage, "size": size, "seconds": took.seconds, **more, **memory()}
        if jax.default_backend() == "cpu":
            row["processor_seconds"] = took.processor
        self.rows.append(row)
        self.path.write_text(json.dumps(self.rows, indent=1))
        print(f"{time.perf_counter() - BEGAN:6.1f} s", json.dumps(row), flush=True)

    @property
    def late(self) -> bool:
        if time.perf_counter() - BEGAN < self.limit:
            return False
        print("out of time: the rest of this part is left out", flush=True)
        return True


def memory() -> Row:
    """The device's bytes in use, now and at most since the process began, where it tells them."""
    known = jax.local_devices()[0].memory_stats() or {}
    return {
        name: known[key]
        for name, key in (("bytes_now", "bytes_in_use"), ("bytes_peak", "peak_bytes_in_use"))
        if key in known
    }


def size_of(sizes: Sizes, experts: int, **more: Any) -> Row:
    """How large a measured run is."""
    usual = {
        "experts": experts,
        "trajectories": TRAJECTORIES,
        "horizon": HORIZON,
        "observation_size": WIDTH,
        "actions": ACTIONS,
        "iterations": 1,
        "expert_hidden": sizes.hidden,
    }
    return usual | more


def train_experts(sizes: Sizes, notes: Notes) -> None:
    """Iterations of PPO, on the paper's recipe; the first of a shape compiles and is left out."""
    from quorum_rl.envs import get_world
    from quorum_rl.experts.ppo.plan import Plan, preset
    from quorum_rl.experts.ppo.training import (
        PopulationProgress,
        Stopped,
        WaveState,
        train_population,
    )

    world = get_world("CartPole")
    recipe = replace(preset(world, "paper").recipe, hidden=sizes.hidden)
    if sizes is TINY:
        recipe = replace(recipe, copies=2, roll_out_steps=16, slice_size=32)
    for agents in sizes.experts:
        if notes.late:
            return
        settings = min(agents, 1000)
        many = agents > sizes.agents_at_once
        iterations, waves = (2 if many else 4), -(-agents // sizes.agents_at_once)
        per_agent = iterations * recipe.steps_per_iteration
        plan = Plan(settings, agents // settings, 1, per_agent, judging_episodes=1)
        marks: list[tuple[Took, int]] = []

        def report(_: PopulationProgress, standing: WaveState) -> bool:
            jax.block_until_ready(standing.agents)
            marks.append((Took.since(before[-1]), standing.iteration))  # noqa: B023
            before.append(Took.now())  # noqa: B023
            ended = len(marks) == iterations * min(waves, WAVES)  # noqa: B023
            return ended or notes.late

        before = [Took.now()]
        with suppress(Stopped):
            train_population(
                world, plan, recipe, seed=0, agents_per_wave=min(agents, sizes.agents_at_once),
                iterations_per_chunk=1, report=report,
            )  # fmt: skip
        # An iteration that follows another has neither compiling nor judging in it.
        each = [took.seconds for took, _ in marks]
        alone = sorted(took for took, iteration in marks if iteration > 1)
        at_once = min(agents, sizes.agents_at_once)
        size = size_of(
            sizes, agents, agents=agents, agents_at_once=at_once,
            agent_steps=recipe.steps_per_iteration,
        )  # fmt: skip
        if alone:
            middle = alone[len(alone) // 2].times(waves)
            notes.add("experts", size, middle, each=each, of_waves=waves)


def networks_of(sizes: Sizes, experts: int, on_host: bool) -> Any:
    """Random networks, the same for all; on the device where the host has no need of them."""
    from quorum_rl.experts import Population
    from quorum_rl.experts.networks import Layer

    random = np.random.default_rng(0)
    widths = (WIDTH, *sizes.hidden, ACTIONS)

    def layer(inputs: int, outputs: int) -> Any:
        weight = (random.normal(size=(inputs, outputs)) / np.sqrt(inputs)).astype(np.float32)
        bias = np.zeros(outputs, np.float32)
        made = np if on_host else jnp
        leaves: Any = (made.broadcast_to(leaf, (experts, *leaf.shape)) for leaf in (weight, bias))
        return Layer(*(np.ascontiguousarray(leaf) if on_host else leaf for leaf in leaves))

    network = tuple(layer(*pair) for pair in pairwise(widths))
    population = Population(observation_size=WIDTH, action_count=ACTIONS, network=network)
    return population.smoothed(0.02)


def ask_experts(sizes: Sizes, notes: Notes) -> None:
    """Collecting, and counting for a release, the first time apart: it compiles and uploads."""
    from quorum_rl.envs import get_world
    from quorum_rl.experts.population import PlacedNetworks
    from quorum_rl.logs import collect

    world = get_world("CartPole")
    params = replace(world.default_params(), time_limit=sizes.acting)
    cases = [(experts, TRAJECTORIES) for experts in sizes.experts]
    cases.append((sizes.experts[1], 128))
    for experts, trajectories in sorted(cases):
        if notes.late:
            return
        on_host = experts < 20_000  # whole blocks need no filling, and so stay on the device
        count = experts if on_host else BLOCK * -(-experts // BLOCK)
        policies = networks_of(sizes, count, on_host)
        placing = timed(lambda: PlacedNetworks(policies.original.network).network)  # noqa: B023
        act: Any = partial(collect, policies, world, trajectories=trajectories, seed=0)
        act(replace(params, time_limit=1))  # compiles
        seconds = timed(partial(act, params))
        size = size_of(sizes, count, trajectories=trajectories, horizon=sizes.acting)
        notes.add("collect", size, seconds, placing=placing.seconds, from_host=on_host)
        policies = act = None  # before the same are made again
        if trajectories == TRAJECTORIES:
            count_prefixes(sizes, notes, networks_of(sizes, count, on_host), on_host)


def count_prefixes(sizes: Sizes, notes: Notes, policies: Any, on_host: bool) -> None:
    from quorum_rl.experts import LoggedExperts
    from quorum_rl.privacy.events import ReleaseEvent
    from quorum_rl.release.counting import PrefixCounts

    event = ReleaseEvent(
        mode="tight", experts=100, actions=ACTIONS, p_min=0.02, stop_probability=0.0,
        horizon=HORIZON, prefix_cap=HORIZON, iterations=sizes.iterations, theta=1.1, threshold=50.0,
        threshold_epsilon=1.0, query_epsilon=1.0, pool_size=TRAJECTORIES,
    )  # fmt: skip
    logged = LoggedExperts(policies)
    random = np.random.default_rng(1)
    shape = (sizes.iterations, sizes.counted)
    states = random.normal(size=(*shape, WIDTH)).astype(np.float32)
    actions = random.integers(ACTIONS, size=shape).astype(np.int32)

    def counted() -> Any:
        counts = PrefixCounts(event, logged, np.ones(len(policies), np.bool_), states, actions)
        return counts(np.arange(sizes.iterations), 0, sizes.counted)

    first = timed(counted)
    again = min(timed(counted) for _ in range(2))
    size = size_of(sizes, len(policies), horizon=sizes.counted, iterations=sizes.iterations)
    notes.add("count", size, again, first=first.seconds, from_host=on_host)


def take_private_steps(sizes: Sizes, notes: Notes) -> None:
    """Chunks of private steps; all programs are compiled first, side by side."""
    cases: list[tuple[int, float, int, tuple[int, ...]]]
    cases = [(experts, RATE * experts, PER_EXPERT, (256, 256)) for experts in sizes.experts]
    cases += [(sizes.private_of, *batch) for batch in sizes.batches]
    data: dict[int, Any] = {}
    held: dict[int, int] = {}
    for experts in sorted({case[0] for case in cases}):
        before = memory().get("bytes_now", 0)
        data[experts] = jax.block_until_ready(empty_log(experts))
        held[experts] = memory().get("bytes_now", 0) - before
    trainings = [training(sizes, data[case[0]], *case) for case in cases]
    with ThreadPoolExecutor(8) as workers:
        list(workers.map(lambda one: one(), trainings))
    for (experts, batch, each, hidden), one in zip(cases, trainings, strict=True):
        if notes.late:
            return
        times = [timed(one) for _ in range(3)]
        more = {"batch": round(batch), "transitions_per_expert": each, "learner_hidden": hidden}
        size = size_of(sizes, experts, private_steps=sizes.private_steps, **more)
        each_s = [took.seconds for took in times]
        notes.add("private steps", size, min(times), each=each_s, bytes_of_data=held[experts])


def empty_log(experts: int) -> Any:
    """Transitions of nothing, on the device; time and memory are those of any others."""
    from quorum_rl.training.data import ExpertData
    from quorum_rl.types import Transition

    each = TRAJECTORIES * HORIZON
    steps = experts * each
    flags = (jnp.zeros(steps, bool), jnp.zeros(steps, bool))
    states = [jnp.zeros((steps, WIDTH), jnp.float32) for _ in range(2)]
    reward = jnp.zeros(steps, jnp.float32)
    transitions = Transition(states[0], jnp.zeros(steps, jnp.int32), reward, states[1], *flags)
    return ExpertData(transitions, jnp.arange(experts + 1, dtype=jnp.int32) * each)


def training(
    sizes: Sizes, data: Any, experts: int, batch: float, each: int, hidden: tuple[int, ...]
) -> Callable[[], Any]:
    from quorum_rl.learners import Cql
    from quorum_rl.training.contributions import Gradient
    from quorum_rl.training.loop import begin, train
    from quorum_rl.training.mechanism import PrivateStep, default_chunk
    from quorum_rl.training.recipe import Recipe, StepKind, new_run

    rate = batch / experts
    step = PrivateStep(
        sampling_rate=rate,
        clip_norm=1.0,
        noise_multiplier=1.0,
        expected_batch=float(batch),
        chunk=default_chunk(experts, rate, each),
        contribution=Gradient(transitions=each),
    )
    run = new_run(noise_key=[1, 2], public_key=[3, 4], learning_rate=1e-3, private=step)
    runs = jax.tree.map(lambda leaf: leaf[None], run)
    recipe = Recipe(learner=Cql(hidden_sizes=hidden), private_shape=step.shape, averaging=0.995)
    schedule = np.full(sizes.private_steps, StepKind.PRIVATE, np.int8)

    def take() -> Any:
        standing = begin(recipe, runs, WIDTH, ACTIONS)
        last = train(
            recipe, runs, standing, schedule, private=data, plain=None,
            steps_at_once=sizes.private_steps,
        )  # fmt: skip
        return jax.block_until_ready(last)

    return take


class Took(NamedTuple):
    """How long something took, by the clock and by the processor."""

    seconds: float
    processor: float

    @classmethod
    def since(cls, start: "Took") -> "Took":
        now = cls.now()
        return cls(now.seconds - start.seconds, now.processor - start.processor)

    @classmethod
    def now(cls) -> "Took":
        return cls(time.perf_counter(), time.process_time())

    def times(self, count: int) -> "Took":
        return Took(count * self.seconds, count * self.processor)


def timed(function: Callable[[], Any]) -> Took:
    start = Took.now()
    jax.block_until_ready(function())
    return Took.since(start)


PARTS: Final = {
    "experts": train_experts,
    "asking": ask_experts,
    "private": take_private_steps,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="a Parquet file of results")
    parser.add_argument("--name", default="scale", help="of the result")
    parser.add_argument("--commit", default="")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for each part")
    parser.add_argument("--sizes", choices=SIZES, default="gpu", help="tiny: whether it runs")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        prepare()
        PARTS[given.part](SIZES[given.sizes], Notes(given.out, given.limit))
        told = {"machine": this_machine(), "device": jax.devices()[0].device_kind}
        given.out.with_suffix(".about").write_text(json.dumps(told))
        return
    rows: list[Row] = []
    about: Row = {}
    with tempfile.TemporaryDirectory() as folder:
        for part in given.parts:
            notes = Path(folder) / f"{part}.json"
            command = [
                sys.executable,
                "-m",
                "benchmarks.scale",
                "--part",
                part,
                "--out",
                str(notes),
            ]
            command += ["--limit", str(given.limit), "--sizes", given.sizes]
            done = subprocess.run(command, timeout=2 * given.limit + 60)
            rows += json.loads(notes.read_text()) if notes.exists() else []
            if done.returncode == 0:
                about = json.loads(notes.with_suffix(".about").read_text())
            made = {"commit": given.commit, **about, "versions": versions(), "rows": rows}
            add(given.out, given.name, made)


def versions() -> dict[str, str]:
    return {
        "jax": jax.__version__,
        "numpy": np.__version__,
        "python": sys.version.split()[0],
    }


if __name__ == "__main__":
    main()
