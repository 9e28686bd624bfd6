"""The evaluation: several populations a world, every method with as many settings to choose from.

For each world and each seed of experts: they are trained and act once, and what follows reads that.
`bound` is training without privacy (BC, CQL, BCQ), `ours` the default of `quorum fit`, `steps`
DP-SGD and the paper's step with the settings that `tuning` found best on experts of another seed,
`release` a release beside, in pairs with the same seeds. Every part of every population is a
process, so that small trainings share a GPU. What was trained is in the Parquet file at once, and
the same command goes on where another stopped.

    python -m reproduction.studies.populations CartPole --folder pops --until 540

What to run in half an hour of one H200 is in `reproduction/__init__.py`.
"""

import argparse
import fcntl
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from quorum_rl.distributed import prepare, this_machine
from quorum_rl.envs import AnyWorld
from quorum_rl.errors import QuorumError
from quorum_rl.evaluation import evaluation_params
from quorum_rl.experts import LoggedExperts, Population, default_returns
from quorum_rl.logs import Demonstrations
from quorum_rl.pipeline import FitSettings
from quorum_rl.pipeline.results import source_commit
from reproduction.population import FLOOR, TRAJECTORIES, world_trained_on
from reproduction.queue import Job, run as run_jobs
from reproduction.results import extend, read
from reproduction.studies.few_experts import log_of, population_of
from reproduction.studies.few_ways import Trained, Way, judged, released_beside, some, trained
from reproduction.studies.offered import (
    FREE,
    LEARNERS,
    METHODS,
    PAPERS,
    THEIRS,
    Offer,
    best,
    offered,
    programs,
)

DELTA: Final = 1e-5
EPSILONS: Final = (0.25, 0.5, 1.0, 2.5, 5.0)
COUNTS: Final = (1000, 300, 100, 3000)  # the longest last
REPORTED: Final = (1, 11, 12)  # seeds of experts
TUNED_ON: Final = 2
TUNED_WITH: Final = 1000  # experts
RELEASED: Final = (1000, 300)  # experts with a release beside
LENGTHS: Final = (TRAJECTORIES, 5, 3)  # trajectories of each
OURS: Final = "local"
BEGUN: Final = time.time()
Rows = list[dict[str, Any]]


class Cell(NamedTuple):
    """What is trained and kept at once; its name says in the file that it is done."""

    name: str
    rows: Callable[[], Rows]


def say(text: str) -> None:
    print(f"{time.time() - BEGUN:7.1f} s  {text}", flush=True)


class Setting:
    """One population with its log: made by whoever needs it first, while the others wait."""

    def __init__(self, given: argparse.Namespace, world: str, seed: int) -> None:
        self.given = argparse.Namespace(**vars(given))
        if world == "HIV":
            self.given.episodes = 1
        stem = given.folder / f"{world}-{given.experts}-{seed}"
        given.folder.mkdir(parents=True, exist_ok=True)
        with _alone(stem.with_suffix(".lock")):
            self.population: Population = population_of(
                world, given.experts, seed, stem.with_suffix(".safetensors")
            )
            self.world: AnyWorld = world_trained_on(self.population.origin)
            begun = time.time()
            made = log_of(self.population, self.world, stem.with_suffix(".arrow"))
        self.log: Demonstrations = made[0]
        self.experts: LoggedExperts = made[1]
        say(f"{self.log.expert_count} experts; their log in {time.time() - begun:.1f} s")
        everyone = self.log.expert_count
        self.counts = [count for count in given.counts if count <= everyone]

    def facts(self) -> dict[str, Any]:
        """What is the same for all rows of a result."""
        given = self.given
        return {
            "world": self.world.name,
            "population": dict(self.population.origin),
            "identity": self.log.declared.experts_identity,
            "delta": DELTA,
            "seeds": given.seeds,
            "episodes": given.episodes,
            "steps": given.steps,
            "machine": this_machine(),
            "commit": given.commit or source_commit(),
        }

    def part(self, count: int, trajectories: int = TRAJECTORIES) -> Demonstrations:
        """The log of so many of the experts, the first trajectories of each."""
        log = some(self.log, count)
        if trajectories >= TRAJECTORIES:
            return log
        firsts = log.expert_episode_offsets[:-1]
        place = np.arange(len(log)) - np.repeat(firsts, np.diff(log.expert_episode_offsets))
        fewer = log.select(place < trajectories)
        declared = replace(fewer.declared, minimum_trajectories=trajectories)
        return replace(fewer, declared=declared)

    def learned(self, ways: Sequence[Way], count: int, **more: Any) -> Rows:
        """What some ways earn, a row for each and each ε; and what a plan called noise."""
        made, refused = trained(ways, self.part(count), self.world, self.given.seeds, DELTA)
        return [*self.judged(made, **more), *(row | more | {"returns": None} for row in refused)]

    def cell(self, way: Way, count: int) -> Cell:
        """One way with so many experts."""
        rows = partial(self.learned, [way], count, learns=way.learner)
        return Cell(f"{way.name} {way.learner} {count}", rows)

    def offered(self, method: str, learner: str) -> list[Offer]:
        return offered(method, learner, self.given.steps, self.given.programs)

    def judged(self, made: Sequence[Trained], **more: Any) -> Rows:
        if not made:
            return []
        given = self.given
        rows = judged(made, self.log.declared, self.world, given.seeds, given.episodes)
        return [row | more for row in rows]


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process at a time."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


# --- the parts ---


def experts(setting: Setting) -> Iterator[Cell]:
    """What the experts earn as they act, and what they would earn without straying."""

    def earned() -> Rows:
        params = evaluation_params(setting.world)

        def mean(p_min: float) -> float:
            found = default_returns(
                setting.population, setting.world, params, episodes=10, p_min=p_min, seed=5
            )
            return float(found.mean())

        transitions = setting.log.transition_count
        return [{"mean": mean(FLOOR), "greedy": mean(0.0), "transitions": transitions}]

    yield Cell("experts", earned)


def ours(setting: Setting) -> Iterator[Cell]:
    """The product's default at every ε."""
    way = Way(OURS, FitSettings(), "bc", epsilons=tuple(setting.given.epsilons))
    yield from (setting.cell(way, count) for count in setting.counts)


def values(setting: Setting) -> Iterator[Cell]:
    """Values in place of imitation, by local updates."""
    epsilons, slower = tuple(setting.given.epsilons), FitSettings(local_rate=0.025)
    ways = (
        Way(OURS, slower, "cql", (("alpha", 20.0),), epsilons),
        Way(OURS, slower, "bcq", epsilons=epsilons),
    )
    yield from (setting.cell(way, count) for way, count in product(ways, setting.counts))


def tuning(setting: Setting) -> Iterator[Cell]:
    """Every setting that a method is offered, on experts that nothing is reported of."""
    count = min(TUNED_WITH, setting.log.expert_count)
    for method, learner in product(setting.given.methods, setting.given.learners):
        for number, some_offers in enumerate(programs(setting.offered(method, learner))):
            rows = partial(_tried, setting, some_offers, count)
            yield Cell(f"tuning {method} {learner} {number}", rows)


def _tried(setting: Setting, offers: Sequence[Offer], count: int) -> Rows:
    """What they earn; those that diverge, and so end a training, are found by themselves."""
    ways = [offer.way for offer in offers]
    try:
        rows = setting.learned(ways, count, learns=ways[0].learner)
    except QuorumError:
        if len(offers) > 1:
            return [row for offer in offers for row in _tried(setting, [offer], count)]
        way, worst = ways[0], [-np.inf] * setting.given.seeds
        rows = [{"method": way.name, "learns": way.learner, "returns": worst, "mean": -np.inf}]
    numbered = zip(offers, rows, strict=True)
    return [row | {"number": offer.number} for offer, row in numbered]


def _best(setting: Setting, method: str, learner: str) -> Way:
    """
    Raises:
        QuorumError: if the tuning is not there, or not all of it.
    """
    name = f"{setting.world.name}-{setting.given.tuned_on}-tuning"
    rows = read(setting.given.out).get(name, {}).get("rows", [])
    try:
        return best(rows, setting.offered(method, learner))
    except LookupError as error:
        raise QuorumError(f"{name} lacks {error.args[0]}: run the part tuning first.") from error


def bound(setting: Setting) -> Iterator[Cell]:
    """Training without privacy on all experts, with the best settings."""
    for learner in setting.given.learners:
        yield setting.cell(_best(setting, FREE, learner), setting.log.expert_count)


def steps(setting: Setting) -> Iterator[Cell]:
    """DP-SGD and the paper's step with their best settings, at every ε."""
    epsilons, learners = tuple(setting.given.epsilons), setting.given.learners
    methods = [method for method in setting.given.methods if method != FREE]
    for method, learner, count in product(methods, learners, setting.counts):
        yield setting.cell(replace(_best(setting, method, learner), epsilons=epsilons), count)


def release(setting: Setting) -> Iterator[Cell]:
    """Half of ε for a release beside private steps; with short logs too.

    A single trajectory leaves none to train on when a release has taken its own.
    """
    given = setting.given
    for count, length, epsilon in product(given.released, LENGTHS, given.epsilons):
        if count in setting.counts:
            rows = partial(_released, setting, count, length, epsilon)
            yield Cell(f"release {count} {length} {epsilon:g}", rows)


def _released(setting: Setting, count: int, length: int, epsilon: float) -> Rows:
    part, seeds = setting.part(count, length), setting.given.seeds
    beside = (setting.experts, part, setting.world, epsilon, seeds, say, DELTA)
    made = released_beside(*beside)
    made += released_beside(*beside, single=_best(setting, PAPERS, "cql").settings)
    return setting.judged(made, trajectories=length)


PARTS: Final = {
    part.__name__: part for part in (experts, ours, tuning, bound, release, steps, values)
}
PRIVATE: Final = (THEIRS, PAPERS)
# Part, method, learner: a process each for every population, the most needed first.
STAGES: Final = (
    ("experts", FREE, "bc"),
    ("ours", FREE, "bc"),
    *(("tuning", FREE, learner) for learner in LEARNERS),
    *(("tuning", method, "cql") for method in PRIVATE),
    *(("bound", FREE, learner) for learner in LEARNERS),
    *(("steps", method, "cql") for method in PRIVATE),
    ("release", PAPERS, "cql"),
    ("values", FREE, "bc"),
    *product(("tuning",), PRIVATE, ("bc", "bcq")),
    *product(("steps",), PRIVATE, ("bc", "bcq")),
)
AFTER_TUNING: Final = ("bound", "steps", "release")


def worked(given: argparse.Namespace, world: str, seed: int, part: str) -> None:
    """One part of one population: every cell that is not in the file yet.

    Raises:
        QuorumError: if what is there is of other experts, another commit or other numbers.
    """
    if _late(given, f"{world} {seed} {part}"):  # experts take long
        return
    setting, name = Setting(given, world, seed), f"{world}-{seed}-{part}"
    facts = setting.facts()
    there = read(given.out).get(name)
    if there is not None:
        _check_same(name, there, facts)
    done = [] if there is None else there["done"]

    def do(cell: Cell) -> None:
        if _late(given, cell.name):
            return
        begun = time.time()
        rows = [row | {"cell": cell.name} for row in cell.rows()]
        extend(given.out, name, facts, rows=rows, done=[cell.name])
        for row in rows:
            shown = "noise" if row.get("returns", 0) is None else f"{row['mean']:.4g}"
            say(f"{cell.name:34} ε = {row.get('epsilon')} {shown}")
        say(f"{cell.name}: {time.time() - begun:.1f} s")

    with ThreadPoolExecutor(given.threads) as pool:
        try:
            list(pool.map(do, (cell for cell in PARTS[part](setting) if cell.name not in done)))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _late(given: argparse.Namespace, what: str) -> bool:
    """Whether it is too late to begin something."""
    if given.deadline and time.time() > given.deadline:
        say(f"no time for {what}")
        return True
    return False


def _check_same(name: str, there: dict[str, Any], now: dict[str, Any]) -> None:
    for fact in ("identity", "commit", "seeds", "episodes", "steps", "delta"):
        if there[fact] != now[fact]:
            raise QuorumError(
                f"{name} has rows with {fact} = {there[fact]}, and these would have {now[fact]}: "
                "rows of one comparison are of the same experts and the same commit, so give "
                "another --out."
            )


def jobs_of(given: argparse.Namespace, words: Sequence[str]) -> list[Job]:
    """All processes of what is asked for; what needs a tuning waits for it."""
    call = (sys.executable, "-u", "-m", "reproduction.studies.populations")
    made: dict[str, Job] = {}
    for (part, method, learner), world in product(STAGES, given.worlds):
        if part not in given.parts or method not in given.methods:
            continue
        if learner not in given.learners and part in ("tuning", "bound", "steps"):
            continue
        of = f" {method} {learner}" if part in ("tuning", *AFTER_TUNING) else ""
        own = ("--parts", part, "--methods", method, "--learners", learner, "--here")
        for seed in [given.tuned_on] if part == "tuning" else given.populations:
            name = f"{world} {seed} {part}{of}"
            tuned = f"{world} {given.tuned_on} tuning{of}"
            after = tuned if part in AFTER_TUNING and tuned in made else None
            command = (*call, world, *words, "--populations", str(seed), *own)
            made[name] = Job(name, command, after)
    return list(made.values())


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("worlds", nargs="+")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS])
    parser.add_argument("--populations", type=int, nargs="+", default=[*REPORTED], help="seeds")
    parser.add_argument("--tuned-on", type=int, default=TUNED_ON, help="seed of other experts")
    parser.add_argument("--experts", type=int, default=3000)
    parser.add_argument("--counts", type=int, nargs="+", default=[*COUNTS], help="how many teach")
    parser.add_argument("--released", type=int, nargs="+", default=[*RELEASED], help="of those")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[*EPSILONS])
    parser.add_argument("--learners", nargs="+", choices=LEARNERS, default=[*LEARNERS])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=[*METHODS])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--episodes", type=int, default=50, help="on HIV one, for all are alike")
    parser.add_argument("--steps", type=int, help="of methods of single steps; otherwise as usual")
    parser.add_argument("--programs", type=int, help="of twelve, in which settings are tried")
    parser.add_argument("--folder", type=Path, default=Path("pops"), help="for large files")
    parser.add_argument("--out", type=Path, default=Path("results/populations.parquet"))
    parser.add_argument("--at-once", type=int, default=12, help="how many processes")
    parser.add_argument("--threads", type=int, default=3, help="of each: one compiles, one trains")
    parser.add_argument("--until", type=float, help="begin nothing after so many seconds")
    parser.add_argument("--commit", help="of the code, where git is not at hand")
    parser.add_argument("--list", action="store_true", help="say what would be run, and stop")
    parser.add_argument("--here", action="store_true", help="in this process")
    parser.add_argument("--deadline", type=float, default=0.0, help=argparse.SUPPRESS)
    given = parser.parse_args(words)
    if given.until:
        given.deadline = BEGUN + given.until
    return given


def words_of(given: argparse.Namespace) -> list[str]:
    """What every process is told."""
    one = ("tuned_on", "experts", "seeds", "episodes", "steps", "programs", "folder", "out")
    values = {name: getattr(given, name) for name in (*one, "threads", "commit", "deadline")}
    words = [
        f"--{name.replace('_', '-')}={value}" for name, value in values.items() if value is not None
    ]
    for name in ("counts", "released", "epsilons"):
        words += [f"--{name}", *map(str, getattr(given, name))]
    return words


def main() -> None:
    given = arguments()
    if given.here:
        prepare(fast=True)
        try:
            for world, seed, part in product(given.worlds, given.populations, given.parts):
                worked(given, world, seed, part)
        except QuorumError as error:
            sys.exit(f"error: {error}")
        return
    jobs = jobs_of(given, words_of(given))
    if given.list:
        print("\n".join(job.name for job in jobs))
        return
    logs = given.folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    environment = {
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # they share one GPU
        "JAX_COMPILATION_CACHE_DIR": str((given.folder / "compiled").absolute()),
        **os.environ,
    }

    def tell(text: str) -> None:
        print(text, flush=True)

    states = run_jobs(jobs, given.at_once, logs, environment, tell)
    sys.exit(not all(states.values()))


if __name__ == "__main__":
    main()
