"""Every result of docs/reproduction.md from nothing, side by side on one GPU, in order of need.

A training of the paper's leaves most of a GPU idle, so many calls of `quorum paper` run at once.
Each begins as soon as what it reads is there, the most needed first; what could not end in time is
not begun, and what has not ended when time is over is stopped. Run it again with `--only` for the
rest.

    python benchmarks/paper_queue.py --folder /tmp/paper --results results/paper --minutes 60

Start NVIDIA's MPS before (`nvidia-cuda-mps-control -d`), or processes take turns.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Final

WORLDS: Final = ("LunarLander", "CartPole", "Acrobot", "HIV")
LEARNERS: Final = ("cql", "bcq")
CLAIMED: Final = ("10", "7.5", "5")
UNENDED: Final = ("waiting", "running")
PLAIN_STEPS: Final = ("--paper-optimiser", "sgd")
# Seconds that these take beside ten others, at least: with less time left they are not begun.
EXPERTS_TAKE: Final = {"LunarLander": 350, "HIV": 400, "CartPole": 130, "Acrobot": 130}
TRAINED_BEFORE: Final = {"Acrobot": "CartPole", "HIV": "LunarLander"}
LONG_TRAININGS: Final = {
    ("LunarLander", "cql", "10"): 700,
    ("LunarLander", "cql", "5"): 700,
    ("LunarLander", "bcq", "7.5"): 600,
    ("CartPole", "cql", "10"): 600,
    ("HIV", "bcq", "10"): 500,
    ("CartPole", "bcq", "10"): 450,
    ("HIV", "bcq", "5"): 450,
}


@dataclass(frozen=True)
class Job:
    """One process: what it is called, what it waits for, how long it takes at least."""

    name: str
    command: tuple[str, ...]
    after: tuple[str, ...] = ()
    seconds: float = 0.0
    urgent: bool = False  # the GPU serves it first
    behind: str | None = None  # not beside this one, if that is run: memory is for one of them


def jobs(shared: Sequence[str], python: str = sys.executable) -> list[Job]:
    """All there is to run, the most needed first. `shared` are options of every call."""

    def job(
        name: str, options: Sequence[str], after: str | None, seconds: float, urgent: bool = False
    ) -> Job:
        world, stage, *_ = name.split()
        # Of HIV every episode is the same.
        one_episode = ("--episodes", "1") if world == "HIV" and after else ()
        command = (python, "-u", "-m", "quorum_rl", "paper", world, "--stage", stage)
        before = (f"{world} {after}",) if after else ()
        return Job(name, (*command, *one_episode, *options, *shared), before, seconds, urgent)

    def of_learner(name: str, learner: str, seconds: float, *options: str) -> Job:
        marked = f"{name} {learner}{' sgd' if 'sgd' in options else ''}"
        after = "experts" if "counts" in name else "demonstrations"
        return job(marked, ("--learners", learner, *options), after, seconds)

    def published(world: str, learner: str, epsilon: str, *options: str) -> Job:
        name = " ".join((world, "published", learner, epsilon, *options[1:]))
        setting = (world, learner, epsilon)
        only = ("--learners", learner, "--epsilons", epsilon, *options)
        longest = LONG_TRAININGS.get(setting) == max(LONG_TRAININGS.values())
        return job(name, only, "demonstrations", LONG_TRAININGS.get(setting, 150), longest)

    first = [
        replace(
            job(f"{one} experts", (), None, EXPERTS_TAKE[one], one == WORLDS[0]),
            behind=f"{TRAINED_BEFORE[one]} experts" if one in TRAINED_BEFORE else None,
        )
        for one in WORLDS
    ]
    logs = [job(f"{one} demonstrations", (), "experts", 40, one == WORLDS[0]) for one in WORLDS]
    settings = list(product(WORLDS, LEARNERS, CLAIMED))
    theirs = [published(*one, *options) for one in settings for options in ((), PLAIN_STEPS)]
    theirs.sort(key=lambda one: -one.seconds)
    comparisons, others = [], []
    for learner, world in product(LEARNERS, WORLDS):
        steps = ("--bound-steps", "8000") if world == "HIV" else ()
        comparisons.append(of_learner(f"{world} comparison", learner, 350, "--seeds", "5", *steps))
        episodes = () if world == "HIV" else ("--episodes", "20")
        others += [
            of_learner(f"{world} ablation", learner, 200),
            of_learner(f"{world} grid", learner, 270, "--steps", "5000", *episodes),
            of_learner(f"{world} ablation", learner, 200, *PLAIN_STEPS),
        ]
    counts = [of_learner("Acrobot counts", learner, 300) for learner in LEARNERS]
    long = len(LONG_TRAININGS) * 2
    return [*first, *logs, *theirs[:long], *comparisons, *theirs[long:], *counts, *others]


def chosen(every: Sequence[Job], words: Sequence[str]) -> list[Job]:
    """Those whose names have one of the words, and what they wait for."""
    if not words:
        return list(every)
    named = {job.name: job for job in every}
    wanted: set[str] = set()

    def want(name: str) -> None:
        wanted.add(name)
        for before in named[name].after:
            want(before)

    for name in named:
        if any(word in name for word in words):
            want(name)
    return [job for job in every if job.name in wanted]


def run(
    queue: Sequence[Job],
    *,
    at_once: int,
    seconds: float,
    logs: Path,
    environment: Mapping[str, str],
    tell: Callable[[str], None] = print,
    pause: float = 1.0,
) -> dict[str, str]:
    """Run the jobs; by name whether each was done, failed, late, stopped or never begun."""
    begun_at = time.monotonic()
    states = dict.fromkeys((job.name for job in queue), "waiting")
    running: dict[str, tuple[subprocess.Popen[bytes], float]] = {}

    def now() -> float:
        return time.monotonic() - begun_at

    def change(name: str, state: str, note: str = "") -> None:
        states[name] = state
        tell(f"{now():6.0f} s  {state}: {name}{note}")

    def end_those_that_have() -> None:
        for name, (process, since) in list(running.items()):
            if process.poll() is not None:
                del running[name]
                state = "done" if process.returncode == 0 else "failed"
                change(name, state, f", {now() - since:.0f} s")

    def begin(job: Job) -> None:
        priority = {"CUDA_MPS_CLIENT_PRIORITY": "0" if job.urgent else "1"}
        with (logs / f"{job.name.replace(' ', '-')}.log").open("wb") as log:
            process = subprocess.Popen(
                job.command,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**environment, **priority},
                start_new_session=True,
            )
        running[job.name] = process, now()
        change(job.name, "running")

    def begin_those_that_can() -> None:
        for job in queue:
            ready = all(states[before] == "done" for before in job.after)
            room = len(running) < at_once and states.get(job.behind or "") not in UNENDED
            if states[job.name] != "waiting" or not ready or not room:
                continue
            if now() + job.seconds > seconds:
                change(job.name, "late")
            else:
                begin(job)

    while now() < seconds:
        end_those_that_have()
        begin_those_that_can()
        if not running:
            break
        time.sleep(pause)
    end_those_that_have()
    for name, (process, _) in running.items():
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        change(name, "stopped")
    return states


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path("paper"), help="for large files")
    parser.add_argument(
        "--results", type=Path, default=Path("results/paper"), help="for small ones"
    )
    parser.add_argument(
        "--logs", type=Path, default=Path("paper/logs"), help="what processes print"
    )
    parser.add_argument("--minutes", type=float, default=60.0, help="when to stop")
    parser.add_argument("--at-once", type=int, default=12, help="how many processes")
    parser.add_argument(
        "--only", nargs="*", default=[], help="jobs with one of these in their name"
    )
    parser.add_argument(
        "--commit", help="what to note as the commit, where the source is not in git"
    )
    parser.add_argument("--list", action="store_true", help="say what would be run, and stop")
    asked = parser.parse_args()
    shared = ["--folder", str(asked.folder), "--results", str(asked.results), "--expert-seed", "1"]
    queue = chosen(
        jobs([*shared, *(["--commit", asked.commit] if asked.commit else [])]), asked.only
    )
    if asked.list or not queue:
        print("\n".join(job.name for job in queue) or "no job has one of these words in its name")
        return
    asked.logs.mkdir(parents=True, exist_ok=True)
    environment = {
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # they share one GPU
        "JAX_COMPILATION_CACHE_DIR": str((asked.folder / "compiled").absolute()),
        **os.environ,
    }
    states = run(
        queue,
        at_once=asked.at_once,
        seconds=60 * asked.minutes,
        logs=asked.logs,
        environment=environment,
        tell=lambda line: print(line, flush=True),
    )
    left = [name for name, state in states.items() if state != "done"]
    print(f"{len(states) - len(left)} of {len(states)} done; not: {', '.join(left) or 'none'}")
    sys.exit(bool(left))


if __name__ == "__main__":
    main()
