"""Every result of docs/reproduction.md, side by side on one GPU, in order of need.

A training of the paper's leaves most of a GPU idle, so many calls of this command run at once.
Each begins as soon as what it reads is there, the most needed first; what could not end in time is
not begun, and what has not ended when time is over is stopped. Experts and demonstrations that are
in the folder are used as they are, so the rest can be run later with `--only`.

    python -m reproduction.queue --folder /tmp/paper --results results/paper.parquet --minutes 60

Start NVIDIA's MPS before (`nvidia-cuda-mps-control -d`), or processes take turns.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Final

from quorum_rl.cli.output import check_makeable
from quorum_rl.errors import QuorumError

WORLDS: Final = ("LunarLander", "CartPole", "Acrobot", "HIV")
LEARNERS: Final = ("cql", "bcq")
CLAIMED: Final = ("10", "7.5", "5")
OPTIMISERS: Final = ("adam", "sgd")
RAW: Final = "1"  # LunarLander's units multiply rewards by 0.1
OTHER_SCALES: Final = ("0.2", "0.3", RAW)
FILES: Final = {"experts": "experts.safetensors", "demonstrations": "demonstrations.arrow"}
# LunarLander's experts have the GPU first: its trainings are the longest.
TRAINED_BEFORE: Final = {"CartPole": "LunarLander", "Acrobot": "CartPole", "HIV": "LunarLander"}

# Seconds that each takes beside ten others, at least: with less time left it is not begun.
EXPERTS_TAKE: Final = {"LunarLander": 350, "HIV": 400, "CartPole": 130, "Acrobot": 130}
TAKES: Final = {
    "demonstrations": 20,
    "ablation": 120,
    "grid": 260,
    "counts": 300,
    "comparison": 320,
}
PUBLISHED_TAKES: Final = {
    ("LunarLander", "cql", "10"): 850,
    ("LunarLander", "cql", "5"): 700,
    ("LunarLander", "bcq", "7.5"): 650,
    ("CartPole", "cql", "10"): 600,
    ("HIV", "bcq", "10"): 500,
    ("HIV", "bcq", "5"): 450,
    ("CartPole", "bcq", "10"): 450,
    ("LunarLander", "bcq", "10"): 400,
    ("HIV", "bcq", "7.5"): 370,
    ("LunarLander", "bcq", "5"): 300,
    ("LunarLander", "cql", "7.5"): 250,
    ("CartPole", "cql", "7.5"): 95,
}
A_LONG_TIME: Final = 450
A_SHORT_TIME: Final = 5
GRACE: Final = 20.0  # seconds in which a process may save what it has


@dataclass(frozen=True, kw_only=True)
class Job:
    """One process: what it is called, what it waits for, how many seconds it takes at least."""

    name: str
    command: tuple[str, ...]
    after: tuple[str, ...] = ()
    at_least: float = 0.0
    urgent: bool = False  # the GPU and the processors serve it first
    behind: str | None = None  # not beside this one: the GPU is for one of them
    makes: Path | None = None  # there only when complete; then nobody has to wait for the job


@dataclass(frozen=True)
class Evaluation:
    """Makes the jobs; `shared` are options of every call."""

    folder: Path
    shared: tuple[str, ...] = ()

    def jobs(self) -> list[Job]:
        """All there is to run, the most needed first."""
        published = [
            self.published(*cell) for cell in product(WORLDS, LEARNERS, CLAIMED, OPTIMISERS)
        ]
        again = [*product(LEARNERS, ("LunarLander",), OPTIMISERS)]
        published += [
            self.rescaled(self.published(world, learner, "10", optimiser), RAW)
            for learner, world, optimiser in again
        ]
        published.sort(key=lambda job: -job.at_least)
        long = [job for job in published if job.at_least >= A_LONG_TIME]
        return [
            *(self.prepared(world, stage) for stage in FILES for world in WORLDS),
            *long,
            *(self.comparison(learner, world) for learner, world in product(LEARNERS, WORLDS)),
            *(job for job in published if job not in long),
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
        before = TRAINED_BEFORE.get(world) if stage == "experts" else None
        return Job(
            name=f"{world} {stage}",
            command=self._command(world, stage),
            after=() if stage == "experts" else (f"{world} experts",),
            at_least=EXPERTS_TAKE[world] if stage == "experts" else TAKES[stage],
            urgent=world == WORLDS[0],
            behind=before and f"{before} experts",
            makes=self.folder / world.lower() / FILES[stage],
        )

    def published(self, world: str, learner: str, epsilon: str, optimiser: str) -> Job:
        usual = A_SHORT_TIME if world == "Acrobot" else 50
        return Job(
            name=f"{world} published {learner} {epsilon} {optimiser}",
            command=(
                *self._command(world, "published", learner),
                *("--epsilons", epsilon, "--paper-optimiser", optimiser),
            ),
            after=(f"{world} demonstrations",),
            at_least=PUBLISHED_TAKES.get((world, learner, epsilon), usual),
            urgent=(world, learner, epsilon) == next(iter(PUBLISHED_TAKES)),
        )

    def comparison(self, learner: str, world: str) -> Job:
        steps = ("--bound-steps", "8000") if world == "HIV" else ()
        return Job(
            name=f"{world} comparison {learner}",
            command=(*self._command(world, "comparison", learner), "--seeds", "5", *steps),
            after=(f"{world} demonstrations",),
            at_least=TAKES["comparison"],
        )

    def counts(self, learner: str) -> Job:
        return Job(
            name=f"Acrobot counts {learner}",
            command=(*self._command("Acrobot", "counts", learner), "--epsilons", "1", "5", "10"),
            after=("Acrobot experts",),
            at_least=TAKES["counts"],
        )

    def ablation(self, learner: str, world: str, optimiser: str) -> Job:
        chosen = ("--paper-optimiser", optimiser)
        return Job(
            name=f"{world} ablation {learner} {optimiser}",
            command=(*self._command(world, "ablation", learner), *chosen),
            after=(f"{world} demonstrations",),
            at_least=TAKES["ablation"],
        )

    def rescaled(self, job: Job, scale: str) -> Job:
        """The same with rewards scaled otherwise: the paper does not say how it scales them."""
        said = "raw rewards" if scale == RAW else f"rewards {scale}"
        command = (*job.command, "--reward-scale", scale)
        return replace(job, name=f"{job.name} {said}", command=command, urgent=False)

    def grid(self, learner: str, world: str) -> Job:
        episodes = () if world == "HIV" else ("--episodes", "20")
        return Job(
            name=f"{world} grid {learner}",
            command=(*self._command(world, "grid", learner), "--steps", "5000", *episodes),
            after=(f"{world} demonstrations",),
            at_least=TAKES["grid"],
        )

    def _command(self, world: str, stage: str, learner: str | None = None) -> tuple[str, ...]:
        learns = ("--learners", learner) if learner else ()
        one_is_all = ("--episodes", "1") if world == "HIV" else ()  # its episodes are alike
        call = (sys.executable, "-u", "-m", "reproduction", world, "--stage", stage)
        return (*call, "--folder", str(self.folder), *self.shared, *learns, *one_is_all)


def asked_for(every: Sequence[Job], words: Sequence[str]) -> list[Job]:
    """Those whose names have one of the words, or all, and what of that they wait for is missing.

    Raises:
        ValueError: for a word that no name has.
    """
    named = {job.name: job for job in every}
    for word in words:
        if not any(word in name for name in named):
            raise ValueError(f"--only has {word!r}, and no job has that in its name: see --list")
    wanted: set[str] = set()

    def want(job: Job) -> None:
        if job.makes is None or not job.makes.exists():
            wanted.add(job.name)
        for before in job.after:
            want(named[before])

    for job in every:
        if not words or any(word in job.name for word in words):
            want(job)
    return [job for job in every if job.name in wanted]


@dataclass(kw_only=True)
class Queue:
    """Runs jobs. States are waiting, running, done, failed, late (not begun) and stopped."""

    jobs: Sequence[Job]
    at_once: int
    limit: float  # seconds for all
    logs: Path
    environment: Mapping[str, str]
    tell: Callable[[str], None] = print
    pause: float = 1.0
    states: dict[str, str] = field(default_factory=dict)
    _running: dict[str, tuple["subprocess.Popen[bytes]", float]] = field(default_factory=dict)
    _begun: float = 0.0

    def run(self) -> dict[str, str]:
        """Whatever happens, no process is left when this ends."""
        self._begun = time.monotonic()
        self.states = dict.fromkeys((job.name for job in self.jobs), "waiting")
        try:
            while self._now() < self.limit:
                self._note_the_ended()
                for job in self.jobs:
                    self._begin_if_it_can(job)
                if not self._running:
                    break
                time.sleep(self.pause)
            self._note_the_ended()
        finally:
            self._stop_the_rest()
        return self.states

    def _now(self) -> float:
        return time.monotonic() - self._begun

    def _change(self, name: str, state: str, note: str = "") -> None:
        self.states[name] = state
        self.tell(f"{self._now():6.0f} s  {state}: {name}{note}")

    def _begin_if_it_can(self, job: Job) -> None:
        ready = all(self._is_there(before) for before in job.after)
        room = len(self._running) < self.at_once and not self._comes(job.behind)
        if self.states[job.name] != "waiting" or not ready or not room:
            return
        if self._now() + job.at_least > self.limit:
            self._change(job.name, "late")
        else:
            self._begin(job)

    def _is_there(self, name: str) -> bool:
        """Whether what that job makes can be read, although it may have more to do."""
        if self.states.get(name, "done") == "done":
            return True
        made = [job.makes for job in self.jobs if job.name == name]
        return any(file is not None and file.exists() for file in made)

    def _comes(self, name: str | None) -> bool:
        """Whether that job runs, or still may."""
        for job in self.jobs:
            if job.name == name and self.states[name] == "waiting":
                here = [name for name in job.after if name in self.states]
                return all(self._is_there(before) or self._comes(before) for before in here)
        return name in self._running

    def _begin(self, job: Job) -> None:
        priority = {"CUDA_MPS_CLIENT_PRIORITY": "0" if job.urgent else "1"}
        with self._log_of(job.name).open("wb") as log:
            process = subprocess.Popen(
                job.command if job.urgent else ("nice", "-n", "10", *job.command),
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**self.environment, **priority},
                start_new_session=True,  # so that its own processes end with it
            )
        self._running[job.name] = process, self._now()
        self._change(job.name, "running")

    def _log_of(self, name: str) -> Path:
        return self.logs / f"{name.replace(' ', '-')}.log"

    def _note_the_ended(self) -> None:
        for name, (process, since) in list(self._running.items()):
            if process.poll() is not None:
                del self._running[name]
                took = f", {self._now() - since:.0f} s"
                failed = process.returncode != 0
                note = f"{took}: see {self._log_of(name)}" if failed else took
                self._change(name, "failed" if failed else "done", note)

    def _stop_the_rest(self) -> None:
        """Ask all to end, which saves what they have, and end those that do not in time."""
        left = dict(self._running)
        for process, _ in left.values():
            _signal(process, signal.SIGINT)
        until = time.monotonic() + GRACE
        for process, _ in left.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))
            _signal(process, signal.SIGKILL)  # and whatever it has begun itself
            process.wait()
        self._running.clear()
        for name in left:
            self._change(name, "stopped")


def _signal(process: "subprocess.Popen[bytes]", which: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # it has ended meanwhile
        os.killpg(process.pid, which)


def arguments() -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("paper"), help="for large files")
    parser.add_argument("--results", default="results/paper.parquet", help="the results' file")
    parser.add_argument("--logs", type=Path, help="what processes print; otherwise in the folder")
    parser.add_argument("--minutes", type=float, default=60.0, help="when to stop")
    parser.add_argument("--at-once", type=int, default=12, help="how many processes")
    parser.add_argument("--only", nargs="+", default=[], help="jobs with one of these in the name")
    parser.add_argument("--commit", help="what to note as the commit, outside of git")
    parser.add_argument("--list", action="store_true", help="say what would be run, and stop")
    given = parser.parse_args()
    if given.at_once < 1:
        parser.error(f"--at-once is {given.at_once}: give at least 1")
    if not given.minutes > 0:
        parser.error(f"--minutes is {given.minutes:g}: give more than 0")
    return parser, given


def main() -> None:
    parser, given = arguments()
    commit = ("--commit", given.commit) if given.commit else ()
    shared = ("--results", given.results, "--expert-seed", "1", *commit)
    logs = given.logs or given.folder / "logs"
    try:
        check_makeable(given.folder, Path(given.results).parent, logs)
        jobs = asked_for(Evaluation(given.folder, shared).jobs(), given.only)
        if not given.list:
            logs.mkdir(parents=True, exist_ok=True)
    except (QuorumError, ValueError, OSError) as error:
        parser.error(str(error))
    if given.list:
        print("\n".join(job.name for job in jobs))
        return
    environment = {
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # they share one GPU
        "JAX_COMPILATION_CACHE_DIR": str((given.folder / "compiled").absolute()),
        **os.environ,
    }
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that jobs are stopped too
    queue = Queue(
        jobs=jobs,
        at_once=given.at_once,
        limit=60 * given.minutes,
        logs=logs,
        environment=environment,
        tell=lambda line: print(line, flush=True),
    )
    try:
        states = queue.run()
    except KeyboardInterrupt:
        sys.exit("interrupted: every job was stopped")
    left = [name for name, state in states.items() if state != "done"]
    print(f"{len(states) - len(left)} of {len(states)} done; not: {', '.join(left) or 'none'}")
    sys.exit(bool(left))


if __name__ == "__main__":
    main()
