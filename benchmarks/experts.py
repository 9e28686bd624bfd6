"""How much faster a population learns than Stable-Baselines3 teaches one agent, on CPU.

    python benchmarks/experts.py --sb3-python PATH/TO/python --json results.json

Both sides train PPO with the same recipe on CartPole (200 steps an episode), each measurement in a
process of its own, the two sides in turn. README.md says how to make SB3's own environment.

This file is read by both interpreters, so only the measuring functions import what they measure.
"""

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, Final

BAR: Final = 30.0  # steps per second of the population, over those of one Stable-Baselines3 agent
SB3_PYTHON: Final = Path(__file__).parents[1] / ".benchmark-envs/sb3/bin/python"
CORES: Final = len(os.sched_getaffinity(0))
HIDDEN: Final = (64, 64)
LEARNING_RATE: Final = 1e-3  # annealed to zero on both sides
# Training is cut into so many parts: the first warms up and is not timed, and the episodes that
# end in the last one say how well the agents have learned.
PARTS: Final = 8


@dataclass(frozen=True)
class Setup:
    """One measurement, the same for both sides."""

    copies: int
    roll_out_steps: int
    epochs: int
    slice_size: int
    discount: float = 0.99
    trace_decay: float = 0.95
    clip: float = 0.2
    entropy_weight: float = 0.01
    value_weight: float = 0.5
    gradient_norm: float = 0.5
    sb3_defaults: bool = False  # Stable-Baselines3 as it comes, one world, nothing normalised
    steps: int = 65_536  # of each agent
    agents: int = 1
    threads: int = 1  # of torch
    seed: int = 0


@dataclass(frozen=True)
class Measured:
    """Environment steps per second of all agents together, and what the agents earned."""

    steps_per_s: float
    mean_return: float
    versions: str
    cores: float  # processor time over time: how much of the machine it got
    compile_s: float = 0.0


@dataclass(frozen=True)
class Instant:
    """Now, by the clock and by the processor time of this process."""

    clock: float = field(default_factory=time.perf_counter)
    processor: float = field(default_factory=time.process_time)

    def seconds_to(self, later: "Instant") -> float:
        return later.clock - self.clock

    def cores_to(self, later: "Instant") -> float:
        return (later.processor - self.processor) / self.seconds_to(later)


@dataclass(frozen=True)
class Round:
    """Both sides, one after the other."""

    load: float  # average of a minute, before the round
    ours: Measured | None
    sb3: Measured | None  # with as many threads as made it fastest
    sb3_on_every_core: float | None

    @property
    def disturbed(self) -> bool:
        """Other programs took more than a tenth of what a side could have used.

        Ours wants all cores and Stable-Baselines3 one, so they do not suffer alike.
        """
        got_all = self.ours is None or self.ours.cores >= 0.9 * CORES
        return not (got_all and (self.sb3 is None or self.sb3.cores >= 0.9))


@dataclass(frozen=True)
class Row:
    """All rounds of one setup; disturbed ones count only where there is nothing else."""

    name: str
    setup: Setup
    rounds: list[Round]

    @property
    def counted(self) -> list[Round]:
        return [one for one in self.rounds if not one.disturbed] or self.rounds

    @property
    def ratio(self) -> float | None:
        pairs = [(one.ours, one.sb3) for one in self.counted if one.ours and one.sb3]
        return median(ours.steps_per_s / sb3.steps_per_s for ours, sb3 in pairs) if pairs else None

    @property
    def verdict(self) -> str:
        if self.setup.sb3_defaults:
            return "for reference"
        if self.ratio is None:
            return "skipped"
        answer = "pass" if self.ratio >= BAR else "FAIL"
        return f"{answer} (disturbed)" if self.counted[0].disturbed else answer


SETUPS: Final = {
    "usual": Setup(copies=4, roll_out_steps=128, epochs=4, slice_size=128),
    "long": Setup(copies=16, roll_out_steps=128, epochs=4, slice_size=512),
    "short": Setup(copies=16, roll_out_steps=64, epochs=2, slice_size=512),
    "SB3's defaults": Setup(
        copies=1, roll_out_steps=2048, epochs=10, slice_size=64, sb3_defaults=True
    ),
}


def measure_ours(setup: Setup) -> Measured:
    """Train a population with Quorum, one agent for each of as many settings of CartPole."""
    import jax

    from quorum_rl.distributed import prepare

    prepare()
    from quorum_rl.envs import get_world
    from quorum_rl.experts.ppo.agent import PpoRecipe
    from quorum_rl.experts.ppo.plan import Plan, tunings
    from quorum_rl.experts.ppo.training import (
        PopulationProgress,
        Stopped,
        WaveState,
        train_population,
    )

    recipe = PpoRecipe(
        hidden=HIDDEN,
        copies=setup.copies,
        roll_out_steps=setup.roll_out_steps,
        epochs=setup.epochs,
        slice_size=setup.slice_size,
        discount=setup.discount,
        trace_decay=setup.trace_decay,
        clip=setup.clip,
        entropy_weight=setup.entropy_weight,
        value_weight=setup.value_weight,
        gradient_norm=setup.gradient_norm,
    )
    world, plan = get_world("CartPole"), Plan(setup.agents, 1, setup.agents, setup.steps)
    planned = float(tunings(world, plan, recipe).learning_rate.max())
    if not math.isclose(planned, LEARNING_RATE, rel_tol=1e-6):  # it is a float32
        sys.exit(f"the plan's first learning rate is not {LEARNING_RATE}: change LEARNING_RATE.")
    marks: list[tuple[Instant, PopulationProgress]] = []

    def report(progress: PopulationProgress, standing: WaveState) -> bool:
        jax.block_until_ready(standing.agents)
        marks.append((Instant(), progress))
        return progress.steps == progress.total_steps  # judging is not part of the comparison

    began = Instant()
    with suppress(Stopped):
        train_population(
            world,
            plan,
            recipe,
            seed=setup.seed,
            iterations_per_chunk=plan.iterations(recipe) // PARTS,
            report=report,
        )
    (first_at, first), (last_at, last) = marks[0], marks[-1]
    part_s = first_at.seconds_to(last_at) / (len(marks) - 1)
    return Measured(
        steps_per_s=(last.steps - first.steps) / first_at.seconds_to(last_at),
        mean_return=last.mean_return,
        versions=f"jax {jax.__version__}",
        cores=first_at.cores_to(last_at),
        compile_s=began.seconds_to(first_at) - part_s,
    )


def measure_sb3(setup: Setup) -> Measured:
    """Train one agent with Stable-Baselines3, on CartPole's default setting."""
    import gymnasium
    import stable_baselines3
    import torch
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor, VecNormalize

    torch.set_num_threads(setup.threads)

    def one_world() -> Any:
        return gymnasium.make("CartPole-v1", max_episode_steps=200)

    class Clock(BaseCallback):  # type: ignore[misc]  # the library is not installed here
        """Starts after the first part; forgets the episodes that ended before the last."""

        began = Instant()

        def _on_rollout_start(self) -> None:
            if self.num_timesteps == setup.steps // PARTS:
                self.began = Instant()
            if self.num_timesteps == setup.steps - setup.steps // PARTS:
                self.model.ep_info_buffer.clear()

        def _on_step(self) -> bool:
            return True

    worlds: Any = VecMonitor(DummyVecEnv([one_world] * setup.copies))
    options: dict[str, Any] = {}
    if not setup.sb3_defaults:
        worlds = VecNormalize(worlds, gamma=setup.discount)
        options = {
            "n_steps": setup.roll_out_steps,
            "batch_size": setup.slice_size,
            "n_epochs": setup.epochs,
            "learning_rate": lambda left: LEARNING_RATE * left,
            "gamma": setup.discount,
            "gae_lambda": setup.trace_decay,
            "clip_range": setup.clip,
            "ent_coef": setup.entropy_weight,
            "vf_coef": setup.value_weight,
            "max_grad_norm": setup.gradient_norm,
            "policy_kwargs": {
                "net_arch": {"pi": list(HIDDEN), "vf": list(HIDDEN)},
                "activation_fn": torch.nn.Tanh,
            },
        }
    learner = stable_baselines3.PPO(
        "MlpPolicy", worlds, device="cpu", seed=setup.seed, stats_window_size=10_000, **options
    )
    clock = Clock()
    learner.learn(setup.steps, callback=clock)
    ended = Instant()
    returns = [float(episode["r"]) for episode in learner.ep_info_buffer]
    return Measured(
        steps_per_s=(setup.steps - setup.steps // PARTS) / clock.began.seconds_to(ended),
        mean_return=sum(returns) / len(returns),
        versions=f"stable-baselines3 {stable_baselines3.__version__}, torch {torch.__version__}",
        cores=clock.began.cores_to(ended),
    )


MEASURES: Final[dict[str, Callable[[Setup], Measured]]] = {
    "ours": measure_ours,
    "sb3": measure_sb3,
}


def in_process(python: Path, side: str, setup: Setup) -> Measured:
    """Measure one side in a fresh process of `python`."""
    command = [str(python), __file__, "--measure", side, "--setup", json.dumps(asdict(setup))]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def on_every_core(python: Path, setup: Setup) -> float:
    """Steps per second of one Stable-Baselines3 agent on each core, all at once, added up."""
    setups = [replace(setup, threads=1, seed=core) for core in range(CORES)]
    with ThreadPoolExecutor(CORES) as pool:
        measured = pool.map(lambda one: in_process(python, "sb3", one), setups)
        return sum(one.steps_per_s for one in measured)


def fastest_sb3(python: Path, setup: Setup) -> Measured:
    """Stable-Baselines3 with one torch thread and with one for each core: the faster."""
    tried = [
        in_process(python, "sb3", replace(setup, threads=threads)) for threads in sorted({1, CORES})
    ]
    return max(tried, key=lambda one: one.steps_per_s)


def one_round(setup: Setup, sb3_python: Path | None, agents: int, seed: int) -> Round:
    setup = replace(setup, seed=seed)
    load = os.getloadavg()[0]
    sb3 = fastest_sb3(sb3_python, setup) if sb3_python else None
    show("Stable-Baselines3", sb3)
    if setup.sb3_defaults:
        return Round(load, None, sb3, None)
    ours = in_process(Path(sys.executable), "ours", replace(setup, agents=agents))
    show(f"{agents} agents of ours", ours)
    return Round(load, ours, sb3, on_every_core(sb3_python, setup) if sb3_python else None)


def compare(name: str, setup: Setup, sb3_python: Path | None, agents: int, rounds: int) -> Row:
    """Rounds until so many were undisturbed, but at most three times as many."""
    row = Row(name, setup, [])
    print(f"{name}:", flush=True)
    for seed in range(3 * rounds):
        row.rounds.append(one_round(setup, sb3_python, agents, seed))
        if sum(not one.disturbed for one in row.rounds) == rounds:
            break
        if row.rounds[-1].disturbed:
            print("  (disturbed by other programs)", flush=True)
    return row


def show(side: str, measured: Measured | None) -> None:
    if measured is not None:
        print(
            f"  {side:19} {measured.steps_per_s:10,.0f} steps/s, "
            f"return {measured.mean_return:5.1f}, {measured.cores:.2f} cores, "
            f"compiling {measured.compile_s:.1f} s",
            flush=True,
        )


def middle(values: Iterable[float | None], form: str = ",.0f") -> str:
    """The median of what is there, as text."""
    known = [value for value in values if value is not None]
    return format(median(known), form) if known else "–"


def table(rows: list[Row]) -> str:
    """Medians of the rounds, in Markdown."""
    lines = [
        "| recipe | ours, steps/s | SB3, steps/s | SB3 on every core | ratio | bar | | "
        "return, ours / SB3 | compiling, s |",
        "|---|--:|--:|--:|--:|--:|---|--:|--:|",
    ]
    for row in rows:
        ours = [one.ours for one in row.counted if one.ours]
        sb3 = [one.sb3 for one in row.counted if one.sb3]
        cells = [
            row.name,
            middle(one.steps_per_s for one in ours),
            middle(one.steps_per_s for one in sb3),
            middle(one.sb3_on_every_core for one in row.counted),
            middle([row.ratio], ".1f"),
            f"{BAR:.0f}",
            row.verdict,
            f"{middle(one.mean_return for one in ours)} / {middle(one.mean_return for one in sb3)}",
            middle(one.compile_s for one in ours),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def available(python: Path) -> Path | None:
    """`python` if Stable-Baselines3 can be used from it; otherwise say why not."""
    if not python.exists():
        print(f"Stable-Baselines3 is skipped: {python} does not exist (see --help).")
        return None
    tried = subprocess.run(
        [str(python), "-c", "import stable_baselines3"], capture_output=True, text=True
    )
    if tried.returncode:
        print(f"Stable-Baselines3 is skipped: {tried.stderr.strip().splitlines()[-1]}")
        return None
    return python


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sb3-python", type=Path, default=SB3_PYTHON)
    parser.add_argument("--recipes", nargs="+", choices=SETUPS, default=list(SETUPS))
    parser.add_argument("--agents", type=int, default=64, help="of ours, learning together")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write every measurement to this file")
    parser.add_argument("--measure", choices=MEASURES, help=argparse.SUPPRESS)
    parser.add_argument("--setup", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        setup = Setup(**json.loads(arguments.setup))
        print(json.dumps(asdict(MEASURES[arguments.measure](setup))))
        return
    sb3_python = available(arguments.sb3_python)
    rows = [
        compare(name, SETUPS[name], sb3_python, arguments.agents, arguments.rounds)
        for name in arguments.recipes
    ]
    print(f"\n{table(rows)}")
    if arguments.json:
        machine = {"cores": CORES, "platform": platform.platform(), "agents": arguments.agents}
        record = {"machine": machine, "bar": BAR, "rows": [asdict(row) for row in rows]}
        arguments.json.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    if any(row.verdict.startswith("FAIL") for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
