"""What a private step costs: beside a plain one, beside other ways to clip, and beside PyTorch.

    python benchmarks/training.py [--torch-python PATH] [--out PATH]

Everything runs in one session, in alternating rounds. A step is whole: it draws its data, takes the
gradient, and moves parameters (Adam) and target. See `benchmarks/README.md`.
"""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax
from rich.console import Console
from rich.table import Table

from beside import Beside, beside
from quorum_rl.learners import DenseLearner, get_learner
from quorum_rl.training.contributions import Gradient, mean_gradient
from quorum_rl.training.data import ExpertData, plain_batch, transitions_of
from quorum_rl.training.mechanism import (
    PrivateStep,
    default_chunk,
    lattice_sum,
    private_mean,
    trained_count,
)
from quorum_rl.training.noise import rounded_noise
from quorum_rl.training.randomness import Array, keys_of
from quorum_rl.types import Transition

try:
    from jax_privacy.clipping import clipped_grad
except ImportError:  # a dependency of development only
    clipped_grad = None

HERE = Path(__file__).parent
TORCH_PYTHON = HERE.parent / ".benchmark-envs" / "d3rlpy" / "bin" / "python"
EXPERTS, TRANSITIONS = 3000, 100  # in the logs: how many, and how many of each
OBSERVATION_SIZE, ACTION_COUNT = 4, 2  # CartPole's
STEPS = 20  # in one measurement
TORCH_STEPS = 10
PRIVATE_BAR, OPACUS_BAR = 1.5, 8.0
D3RLPY_BARS = {"cql": 6.0, "bcq": 4.0}
D3RLPY_BATCH, OPACUS_EXPERTS, HIDDEN = 128, 256, (256, 256)
SHAPES = ((128, 1), (256, 1), (512, 1), (64, 16))  # experts drawn, transitions of each

Clock = Callable[[], float]  # seconds of one step


@dataclass(frozen=True)
class Contest:
    """Two ways to do the same. The ratio is `other` over `ours` or, for a `cost`, the reverse."""

    what: str
    against: str
    ours: Clock
    other: Clock
    bar: float | None = None
    cost: bool = False


@dataclass(frozen=True)
class Result:
    what: str
    against: str
    ours_ms: float
    other_ms: float
    ratio: float
    bar: float | None
    passed: bool | None


def logs() -> ExpertData:
    keys = jax.random.split(jax.random.key(0), 4)
    count = EXPERTS * TRANSITIONS
    states = jax.random.normal(keys[0], (2, count, OBSERVATION_SIZE))
    none = jnp.zeros(count, bool)
    actions = jax.random.randint(keys[1], (count,), 0, ACTION_COUNT)
    rewards = jax.random.normal(keys[2], (count,))
    made = Transition(states[0], actions, rewards, states[1], none, none)
    return ExpertData(made, jnp.arange(EXPERTS + 1) * TRANSITIONS)


def step_clock(learner: DenseLearner, data: ExpertData, gradient_of: Callable[..., Any]) -> Clock:
    """Whole steps, all in one program; `gradient_of(params, target, data, key)`."""
    optimiser = optax.adam(1e-4)

    def one_step(data: ExpertData, carry: Any, inputs: Any) -> Any:
        params, target, state = carry
        number, key = inputs
        change, state = optimiser.update(gradient_of(params, target, data, key), state)
        params = optax.apply_updates(params, change)
        return (params, learner.update_target(params, target, number), state), None

    @jax.jit
    def run(carry: Any, data: ExpertData, keys: Array) -> Any:
        return jax.lax.scan(partial(one_step, data), carry, (jnp.arange(1, STEPS + 1), keys))[0]

    params = learner.init(jax.random.key(1), OBSERVATION_SIZE, ACTION_COUNT)
    start = (params, learner.init_target(params), optimiser.init(params))
    # The same draws in every round, several of them, as their sizes differ.
    return clock(run, start, data, jax.random.split(jax.random.key(2), STEPS), count=STEPS)


def clock(function: Callable[..., Any], *arguments: Any, count: int = 1) -> Clock:
    def seconds() -> float:
        began = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        return (time.perf_counter() - began) / count

    seconds()  # compiles
    return seconds


def plain_clock(learner: DenseLearner, data: ExpertData, batch: int) -> Clock:
    def gradient(params: Any, target: Any, data: ExpertData, key: Array) -> Any:
        drawn = plain_batch(data.transitions, key, batch)
        return mean_gradient(learner, params, target, drawn, key)

    return step_clock(learner, data, gradient)


def private_clock(learner: DenseLearner, data: ExpertData, experts: int, each: int) -> Clock:
    rate = experts / EXPERTS
    step = PrivateStep(
        sampling_rate=rate,
        clip_norm=1.0,
        noise_multiplier=1.0,
        expected_batch=experts,
        chunk=default_chunk(EXPERTS, rate, each),
        contribution=Gradient(transitions=each),
    )
    params = learner.init(jax.random.key(1), OBSERVATION_SIZE, ACTION_COUNT)
    count = trained_count(learner, params, step.contribution)
    drawn = partial(rounded_noise, [[1, 2]], [step.noise_scale], 1, STEPS, count)

    def gradient(params: Any, target: Any, data: ExpertData, key: Array) -> Any:
        noise = jnp.zeros(count, jnp.int32)  # is drawn beside the steps, and timed with them
        return private_mean(
            learner, params, target, data, keys_of(key), noise, step.numbers, step.shape
        )

    steps, noise = step_clock(learner, data, gradient), clock(drawn, count=STEPS)
    return lambda: steps() + noise()


def clipping_contests(
    learner: DenseLearner, data: ExpertData, experts: int, each: int
) -> list[Contest]:
    """The clipped sum alone, on one batch."""
    params = learner.init(jax.random.key(1), OBSERVATION_SIZE, ACTION_COUNT)
    target = learner.init_target(params)
    batch = transitions_of(data, jnp.arange(experts), jax.random.key(2), each)
    keys = jax.random.split(jax.random.key(3), (experts, each))
    everyone, one_key = jnp.ones(experts, bool), jax.random.split(jax.random.key(4), experts)

    def mean_loss(params: Any, target: Any, transitions: Transition, keys: Array) -> Array:
        losses = jax.vmap(learner.loss, (None, None, 0, 0))(params, target, transitions, keys)
        return losses.mean()

    def on_lattice(params: Any, target: Any, transitions: Transition, keys: Array) -> Any:
        each_one = jax.vmap(partial(mean_gradient, learner, params, target))(transitions, keys)
        return lattice_sum(
            jax.tree.leaves(each_one), everyone, jnp.float32(1.0), jnp.float32(2**15)
        )

    if clipped_grad is None:
        return []
    theirs = clipped_grad(mean_loss, l2_clip_norm=1.0, batch_argnums=(2, 3), keep_batch_dim=False)
    other = clock(jax.jit(theirs), params, target, batch, keys)
    ours = clock(jax.jit(on_lattice), params, target, batch, one_key)
    what = f"clipped sum, {learner.name}, {experts} × {each}"
    return [Contest(what, "jax-privacy", ours, other)]


def torch_clock(torch: Beside, name: str) -> Clock:
    return lambda: float(torch.ask(f"{name} {TORCH_STEPS}")) / TORCH_STEPS


def torch_beside(python: Path) -> AbstractContextManager[Beside]:
    return beside("PyTorch", [str(python), str(HERE / "torch_training.py")])


def our_contests(data: ExpertData) -> list[Contest]:
    made = []
    for name in ("cql", "bcq"):
        learner = get_learner(name, hidden_sizes=HIDDEN)
        for experts, each in SHAPES:
            made.append(
                Contest(
                    f"private step, {name}, {experts} × {each}",
                    f"plain step, {experts * each}",
                    private_clock(learner, data, experts, each),
                    plain_clock(learner, data, experts * each),
                    PRIVATE_BAR,
                    cost=True,
                )
            )
    for experts, each in ((256, 1), (64, 16)):
        made += clipping_contests(get_learner("cql", hidden_sizes=HIDDEN), data, experts, each)
    return made


def torch_contests(data: ExpertData, torch: Beside, measures: list[str]) -> list[Contest]:
    made = []
    for name, bar in D3RLPY_BARS.items():
        for theirs, needed in ((f"d3rlpy-{name}", bar), (f"d3rlpy-{name}-update", None)):
            if theirs in measures:
                ours = plain_clock(get_learner(name, hidden_sizes=HIDDEN), data, D3RLPY_BATCH)
                what = f"plain step, {name}, {D3RLPY_BATCH}"
                made.append(Contest(what, theirs, ours, torch_clock(torch, theirs), needed))
    if "opacus" in measures:
        ours = private_clock(get_learner("cql", hidden_sizes=HIDDEN), data, OPACUS_EXPERTS, 1)
        what = f"private step, cql, {OPACUS_EXPERTS} × 1"
        made.append(Contest(what, "opacus", ours, torch_clock(torch, "opacus"), OPACUS_BAR))
    return made


def hold(contest: Contest, rounds: int) -> Result:
    """Measure both by turns; the best round of each counts, as others only ever slow one down."""
    ours, other = (
        min(times)
        for times in zip(*((contest.ours(), contest.other()) for _ in range(rounds)), strict=True)
    )
    ratio = ours / other if contest.cost else other / ours
    passed = ratio <= contest.bar if contest.cost and contest.bar else ratio >= (contest.bar or 0)
    return Result(
        contest.what,
        contest.against,
        ours * 1e3,
        other * 1e3,
        ratio,
        contest.bar,
        None if contest.bar is None else passed,
    )


def table(results: list[Result], title: str) -> Table:
    made = Table("what", "against", "ms", "its ms", "ratio", "bar", "", title=title)
    for result in results:
        made.add_row(
            result.what,
            result.against,
            f"{result.ours_ms:.2f}",
            f"{result.other_ms:.2f}",
            f"{result.ratio:.2f}",
            "" if result.bar is None else f"{result.bar:g}",
            {None: "", True: "pass", False: "FAIL"}[result.passed],
        )
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description="What a private step costs, side by side.")
    parser.add_argument("--torch-python", type=Path, default=TORCH_PYTHON)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, help="write the results here as well, as JSON")
    options = parser.parse_args()
    data = logs()
    about: dict[str, Any] = {
        "processor": platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "device": jax.devices()[0].device_kind,
        "python": platform.python_version(),
        "jax": jax.__version__,
        "load": os.getloadavg()[0],
    }
    results = [hold(one, options.rounds) for one in our_contests(data)]
    skipped = []
    if options.torch_python.is_file():
        with torch_beside(options.torch_python) as torch:
            hello = torch.answer()
            about |= hello["versions"]
            missing = {"d3rlpy", "opacus"} - set(hello["versions"])
            skipped = [
                f"{name} was skipped: it is not installed there." for name in sorted(missing)
            ]
            contests = torch_contests(data, torch, hello["measures"])
            results += [hold(one, options.rounds) for one in contests]
    else:
        skipped = [f"PyTorch was skipped: there is no interpreter at {options.torch_python}."]
    console = Console(width=110)
    console.print(table(results, f"{about['cores']} cores, jax {about['jax']}, nets (256, 256)"))
    for reason in skipped:
        console.print(f"{reason} benchmarks/README.md says how to make one.")
    if options.out:
        written = {"machine": about, "skipped": skipped, "results": [asdict(r) for r in results]}
        options.out.write_text(json.dumps(written, indent=2) + "\n")
    return 0 if all(result.passed is not False for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
