"""Every result of docs/reproduction.md, side by side on one GPU, the most needed first.

A training of the paper's leaves most of a GPU idle, so many calls of `python -m reproduction` run
at once, each as soon as what it reads is there. Experts and demonstrations that are in the folder
are used as they are, so the rest can be run later with `--only`.

    timeout 60m python -m reproduction.queue --folder /tmp/paper --results results/paper.parquet

Start NVIDIA's MPS before (`nvidia-cuda-mps-control -d`), or processes take turns.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Final

from quorum_rl.errors import QuorumError, at_least, require
from reproduction.folders import check_makeable

WORLDS: Final = ("LunarLander", "CartPole", "Acrobot", "HIV")  # the longest trainings first
LEARNERS: Final = ("cql", "bcq")
CLAIMED: Final = ("10", "7.5", "5")
OPTIMISERS: Final = ("adam", "sgd")
RAW: Final = "1"  # LunarLander's units multiply rewards by 0.1
OTHER_SCALES: Final = ("0.2", "0.3", RAW)
FILES: Final = {"experts": "experts.safetensors", "demonstrations": "demonstrations.arrow"}


@dataclass(frozen=True)
class Job:
    """One process: what it is called, what it waits for, and the file that it makes, if any."""

    name: str
    command: tuple[str, ...]
    after: str | None = None
    makes: Path | None = None


@dataclass(frozen=True)
class Evaluation:
    """Makes the jobs; `shared` are options of every call."""

    folder: Path
    shared: tuple[str, ...] = ()

    def jobs(self) -> list[Job]:
        """All there is to run: what others read first, then the most needed."""
        again = [*product(LEARNERS, ("LunarLander",), OPTIMISERS)]
        return [
            *(self.prepared(world, stage) for stage, world in product(FILES, WORLDS)),
            *(self.published(*cell) for cell in product(CLAIMED, WORLDS, LEARNERS, OPTIMISERS)),
            *(
                self.rescaled(self.published("10", world, learner, optimiser), RAW)
                for learner, world, optimiser in again
            ),
            *(self.comparison(*cell) for cell in product(LEARNERS, WORLDS)),
            *(self.counts(learner) for learner in LEARNERS),
            *(self.ablation(*cell) for cell in product(LEARNERS, WORLDS, OPTIMISERS)),
            *(self.rescaled(self.ablation(*cell), RAW) for cell in again),
            *(
                self.rescaled(self.comparison(learner, "LunarLander"), scale)
                for scale, learner in product(OTHER_SCALES, LEARNERS)
            ),
            *(self.grid(*cell) for cell in product(LEARNERS, WORLDS)),
        ]

    def prepared(self, world: str, stage: str) -> Job:
        """Experts or demonstrations, which all others read."""
        job = self._job(world, stage, after=None if stage == "experts" else "experts")
        return replace(job, makes=self.folder / world.lower() / FILES[stage])

    def published(self, epsilon: str, world: str, learner: str, optimiser: str) -> Job:
        words = ("--epsilons", epsilon, "--paper-optimiser", optimiser)
        return self._job(world, "published", learner, words, f" {epsilon} {optimiser}")

    def comparison(self, learner: str, world: str) -> Job:
        steps = ("--bound-steps", "8000") if world == "HIV" else ()
        return self._job(world, "comparison", learner, ("--seeds", "5", *steps))

    def counts(self, learner: str) -> Job:
        words = ("--epsilons", "1", "5", "10")
        return self._job("Acrobot", "counts", learner, words, after="experts")

    def ablation(self, learner: str, world: str, optimiser: str) -> Job:
        words = ("--paper-optimiser", optimiser)
        return self._job(world, "ablation", learner, words, f" {optimiser}")

    def grid(self, learner: str, world: str) -> Job:
        episodes = () if world == "HIV" else ("--episodes", "20")
        return self._job(world, "grid", learner, ("--steps", "5000", *episodes))

    def rescaled(self, job: Job, scale: str) -> Job:
        """The same with rewards scaled otherwise: the paper does not say how it scales them."""
        name = "raw rewards" if scale == RAW else f"rewards {scale}"
        command = (*job.command, "--reward-scale", scale)
        return replace(job, name=f"{job.name} {name}", command=command)

    def _job(
        self,
        world: str,
        stage: str,
        learner: str | None = None,
        words: tuple[str, ...] = (),
        mark: str = "",
        after: str | None = "demonstrations",
    ) -> Job:
        call = (sys.executable, "-u", "-m", "reproduction", world, "--stage", stage)
        learns = ("--learners", learner) if learner else ()
        one_is_all = ("--episodes", "1") if world == "HIV" else ()  # its episodes are alike
        command = (*call, "--folder", str(self.folder), *self.shared, *learns, *one_is_all, *words)
        name = f"{world} {stage}" + (f" {learner}" if learner else "") + mark
        return Job(name, command, after and f"{world} {after}")


def asked_for(every: Sequence[Job], words: Sequence[str]) -> list[Job]:
    """Those whose names have one of the words, or all, and what of that they wait for is missing.

    Raises:
        QuorumError: for a word that no name has.
    """
    named = {job.name: job for job in every}
    for word in words:
        if not any(word in name for name in named):
            raise QuorumError(f"--only has {word!r}, and no job has that in its name: see --list")
    wanted: set[str] = set()

    def want(job: Job) -> None:
        if job.makes is None or not job.makes.exists():
            wanted.add(job.name)
        if job.after:
            want(named[job.after])

    for job in every:
        if not words or any(word in job.name for word in words):
            want(job)
    return [job for job in every if job.name in wanted]


def run(
    jobs: Sequence[Job],
    at_once: int,
    logs: Path,
    environment: Mapping[str, str],
    tell: Callable[[str], None] = print,
) -> dict[str, bool]:
    """Run all, so many at once and in this order; says of each whether it succeeded.

    What waits for a job that failed is not begun.
    """
    begun = time.monotonic()
    running: dict[str, Future[bool]] = {}

    def done(job: Job) -> bool:
        before = running.get(job.after or "")  # earlier in the order, so it has a place already
        if before is not None and not before.result():
            tell(f"not begun: {job.name}")
            return False
        tell(f"{time.monotonic() - begun:6.0f} s  running: {job.name}")
        log = logs / f"{job.name.replace(' ', '-')}.log"
        with log.open("wb") as file:
            ended = subprocess.run(job.command, stdout=file, stderr=file, env=dict(environment))
        state = f"failed, see {log}" if ended.returncode else "done"
        tell(f"{time.monotonic() - begun:6.0f} s  {state}: {job.name}")
        return ended.returncode == 0

    with ThreadPoolExecutor(at_once) as pool:
        try:
            for job in jobs:
                running[job.name] = pool.submit(done, job)
            return {name: future.result() for name, future in running.items()}
        except BaseException:  # Ctrl-C, which its processes get too
            pool.shutdown(cancel_futures=True)
            raise


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("paper"), help="for large files")
    parser.add_argument("--results", type=Path, default=Path("results/paper.parquet"))
    parser.add_argument("--at-once", type=int, default=12, help="how many processes")
    parser.add_argument("--only", nargs="+", default=[], help="jobs with one of these in the name")
    parser.add_argument("--commit", help="what to note as the commit, outside of git")
    parser.add_argument("--list", action="store_true", help="say what would be run, and stop")
    given = parser.parse_args()
    commit = ("--commit", given.commit) if given.commit else ()
    shared = ("--results", str(given.results), "--expert-seed", "1", *commit)
    logs = given.folder / "logs"
    try:
        require("--at-once", given.at_once, at_least(1))
        check_makeable(logs, given.results.parent)
        jobs = asked_for(Evaluation(given.folder, shared).jobs(), given.only)
    except QuorumError as error:
        parser.error(str(error))
    if given.list:
        print("\n".join(job.name for job in jobs))
        return
    logs.mkdir(parents=True, exist_ok=True)
    environment = {
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # they share one GPU
        "JAX_COMPILATION_CACHE_DIR": str((given.folder / "compiled").absolute()),
        **os.environ,
    }
    states = run(jobs, given.at_once, logs, environment)
    left = [name for name, succeeded in states.items() if not succeeded]
    print(f"{len(states) - len(left)} of {len(states)} done; not: {', '.join(left) or 'none'}")
    sys.exit(bool(left))


if __name__ == "__main__":
    main()
