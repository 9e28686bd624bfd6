"""How fast the worlds are: against gymnax, Gymnasium's own stepping, SciPy's odeint and MinAtar.

    python benchmarks/worlds.py [--gymnax-python PATH] [--json PATH]

Everything runs in one session, in alternating rounds, so that a busy machine is busy for all;
ratios are medians over rounds of the ratio within a round. See `benchmarks/README.md`.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import scipy
from jax.sharding import Mesh, PartitionSpec as P
from rich.console import Console
from rich.table import Table
from scipy.integrate import odeint

from beside import Beside, beside
from quorum_rl.envs import get_world, roll_out, start, uniform_policy, with_params
from quorum_rl.envs.hiv import EFFICACY, UNHEALTHY_START

HERE = Path(__file__).parent
GYMNAX_PYTHON = HERE.parent / ".benchmark-envs" / "gymnax" / "bin" / "python"
# gymnax's time limit of 500 for both worlds, so that both restart equally often.
TIME_LIMIT = 500
HIV_STEPS = 10
GYMNASIUM_STEPS = {"CartPole": 20_000, "Acrobot": 4_000}
ODEINT_STEPS = 100
MINATAR = {"Breakout": "breakout", "SpaceInvaders": "space_invaders"}
MINATAR_STEPS = 10_000
PICTURE_COPIES = 256  # every transition of 4096 copies would be gigabytes of pictures
Clock = Callable[[int], float]  # the seconds of one measurement with a seed


@dataclass(frozen=True)
class Contest:
    """One world against one other implementation; `bar`: how many times faster it must be."""

    world: str
    other: str
    bar: float | None
    ours: Clock
    our_steps: int
    theirs: Clock
    their_steps: int


@dataclass(frozen=True)
class Result:
    world: str
    other: str
    our_steps_per_second: float
    their_steps_per_second: float
    ratio: float
    lowest_ratio: float
    bar: float | None
    passed: bool | None


def our_clock(name: str, copies: int, steps: int) -> Clock:
    """Random actions with autoreset, copies spread over the devices; every transition is kept."""
    mesh = Mesh(np.array(jax.devices()), ("worlds",))
    world = get_world(name)
    params = with_params(world, time_limit=50 if name == "HIV" else TIME_LIMIT)

    def part(keys: jax.Array) -> Any:
        running = start(world, keys[0], params, copies // mesh.size)
        return roll_out(world, uniform_policy(world), keys[1], running, params, steps)[1]

    run = jax.jit(
        jax.shard_map(
            part, mesh=mesh, in_specs=P("worlds"), out_specs=P(None, "worlds"), check_vma=False
        )
    )

    def clock(seed: int) -> float:
        keys = jax.block_until_ready(jax.random.split(jax.random.key(seed), 2 * mesh.size))
        began = time.perf_counter()
        jax.block_until_ready(run(keys))
        return time.perf_counter() - began

    clock(0)  # compiles
    return clock


def gymnasium_clock(name: str) -> Clock:
    """One environment in a Python loop, as Gymnasium is used, with its time limit."""
    env = gymnasium.make(f"{name}-v1")

    def clock(seed: int) -> float:
        env.reset(seed=seed)
        actions = np.random.default_rng(seed).integers(
            env.action_space.n,  # type: ignore[attr-defined]
            size=GYMNASIUM_STEPS[name],
        )
        began = time.perf_counter()
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        return time.perf_counter() - began

    return clock


def hiv_equations(now: Any, _: float, drug_1: float, drug_2: float) -> tuple[float, ...]:
    t1, t2, x1, x2, v, e = now
    x = x1 + x2
    i1, i2 = (1 - drug_1) * 8e-7 * v * t1, (1 - 0.34 * drug_1) * 1e-4 * v * t2
    clearance = 0.7 + 1e-5 * e
    return (
        1e4 - 0.01 * t1 - i1,
        31.98 - 0.01 * t2 - i2,
        i1 - clearance * x1,
        i2 - clearance * x2,
        (1 - drug_2) * 70 * x - 13 * v - i1 - i2,
        1 + (0.3 * x / (x + 100) - 0.25 * x / (x + 500) - 0.1) * e,
    )


def odeint_clock(**tolerance: float) -> Clock:
    """Random treatment of one patient."""
    solve = partial(odeint, hiv_equations, mxstep=100_000, **tolerance)

    def clock(seed: int) -> float:
        actions = np.random.default_rng(seed).integers(4, size=ODEINT_STEPS)
        state = np.array(UNHEALTHY_START)
        began = time.perf_counter()
        for action in actions:
            state = solve(state, (0.0, 20.0), EFFICACY[action])[-1]
        return time.perf_counter() - began

    return clock


def minatar_clock(name: str) -> Clock:
    """One game in a Python loop, as MinAtar is used."""
    from minatar import Environment

    env = Environment(MINATAR[name])
    listed = env.minimal_action_set()

    def clock(seed: int) -> float:
        env.seed(seed)
        env.reset()
        actions = np.random.default_rng(seed).choice(listed, size=MINATAR_STEPS)
        began = time.perf_counter()
        for action in actions:
            _, terminated = env.act(action)
            if terminated:
                env.reset()
            env.state()
        return time.perf_counter() - began

    return clock


def gymnax_clock(gymnax: Beside, name: str) -> Clock:
    return lambda seed: float(gymnax.ask(f"{name} {seed}"))


def gymnax_beside(python: Path, copies: int, steps: int) -> AbstractContextManager[Beside]:
    sizes = ["--copies", str(copies), "--steps", str(steps)]
    # Importing gymnax starts JAX, so the number of devices has to come from outside.
    surroundings = os.environ | {"JAX_NUM_CPU_DEVICES": str(len(jax.devices()))}
    return beside("gymnax", [str(python), str(HERE / "gymnax_worlds.py"), *sizes], surroundings)


def contests(copies: int, steps: int, gymnax: Beside | None) -> list[Contest]:
    hiv, hiv_count = our_clock("HIV", copies, HIV_STEPS), copies * HIV_STEPS
    solvers = {
        "odeint, rtol 1e-10": odeint_clock(rtol=1e-10, atol=1e-12),  # the parity tests' truth
        "odeint, rtol 1.5e-8": odeint_clock(),  # SciPy's default
    }
    made = [
        Contest("HIV", other, 300, hiv, hiv_count, theirs, ODEINT_STEPS)
        for other, theirs in solvers.items()
    ]
    for name in MINATAR if find_spec("minatar") else ():
        pictures, count = our_clock(name, PICTURE_COPIES, steps), PICTURE_COPIES * steps
        made.append(
            Contest(name, "MinAtar", None, pictures, count, minatar_clock(name), MINATAR_STEPS)
        )
    for name in ("Acrobot", "CartPole"):
        ours, count = our_clock(name, copies, steps), copies * steps
        theirs = gymnasium_clock(name)
        made.insert(0, Contest(name, "Gymnasium", 100, ours, count, theirs, GYMNASIUM_STEPS[name]))
        if gymnax is not None:
            made.insert(
                0, Contest(name, "gymnax", 1, ours, count, gymnax_clock(gymnax, name), count)
            )
    return made


def hold(contest: Contest, rounds: int) -> Result:
    """Measure both by turns."""
    ours, theirs = [], []
    for seed in range(1, rounds + 1):
        ours.append(contest.our_steps / contest.ours(seed))
        theirs.append(contest.their_steps / contest.theirs(seed))
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    ratio = statistics.median(ratios)
    return Result(
        world=contest.world,
        other=contest.other,
        our_steps_per_second=statistics.median(ours),
        their_steps_per_second=statistics.median(theirs),
        ratio=ratio,
        lowest_ratio=min(ratios),
        bar=contest.bar,
        passed=None if contest.bar is None else ratio >= contest.bar,
    )


def machine() -> dict[str, str | int | None]:
    return {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "cores used": len(jax.devices()),
        "device": jax.devices()[0].device_kind,
        "python": platform.python_version(),
        "jax": jax.__version__,
        "gymnasium": gymnasium.__version__,
        "scipy": scipy.__version__,
    }


def table(results: list[Result], title: str) -> Table:
    made = Table("world", "against", "ours/s", "theirs/s", "ratio", "lowest", "bar", title=title)
    made.add_column("")
    for result in results:
        made.add_row(
            result.world,
            result.other,
            f"{result.our_steps_per_second:,.0f}",
            f"{result.their_steps_per_second:,.0f}",
            f"{result.ratio:,.2f}",
            f"{result.lowest_ratio:,.2f}",
            "" if result.bar is None else f"{result.bar:,.0f}",
            {None: "", True: "pass", False: "FAIL"}[result.passed],
        )
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description="How fast the worlds are, side by side.")
    parser.add_argument("--gymnax-python", type=Path, default=GYMNAX_PYTHON)
    parser.add_argument("--copies", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=200, help="of CartPole and Acrobot, a round")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path, help="write the results here as well")
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    # One device per core spends no time on handing 4096 short rows from thread to thread.
    jax.config.update("jax_num_cpu_devices", options.cores)
    console, about = Console(width=100), machine()
    title = f"{options.copies} worlds at once, {options.cores} cores, jax {about['jax']}"

    def measured(gymnax: Beside | None) -> list[Result]:
        return [
            hold(one, options.rounds) for one in contests(options.copies, options.steps, gymnax)
        ]

    skipped = None
    if options.gymnax_python.is_file():
        with gymnax_beside(options.gymnax_python, options.copies, options.steps) as gymnax:
            about |= {f"{name} beside": version for name, version in gymnax.answer().items()}
            results = measured(gymnax)
    else:
        skipped = f"gymnax was skipped: there is no interpreter at {options.gymnax_python}."
        results = measured(None)
    console.print(table(results, title))
    if not find_spec("minatar"):
        console.print("MinAtar was skipped: the package minatar is not installed.")
    if skipped:
        console.print(f"{skipped} benchmarks/README.md says how to make one.")
    if options.json:
        written = {"machine": about, "skipped": skipped, "results": [asdict(r) for r in results]}
        options.json.write_text(json.dumps(written, indent=2) + "\n")
    return 0 if all(result.passed is not False for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
