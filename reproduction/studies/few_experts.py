"""How good a policy is that few experts teach: from 30 experts on, at several ε, in one world.

Trains experts of a seed on which no number was chosen and collects their log (or takes both from
the folder), then lets subsets of them teach: with the product's own defaults, with other steps,
values instead of imitation, and a release beside. Each part is a result of its own, so parts can
run at once. Everything is on synthetic experts; what a plan calls noise is not trained.

    python -m reproduction.studies.few_experts CartPole --experts 3000 --folder pops
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Final

from quorum_rl.cli.main import main as quorum
from quorum_rl.distributed import prepare, this_machine
from quorum_rl.envs import AnyWorld
from quorum_rl.evaluation import evaluation_params
from quorum_rl.experts import LoggedExperts, Population, default_returns, load_population
from quorum_rl.logs import Demonstrations, as_they_acted, open_demonstrations, save_demonstrations
from quorum_rl.pipeline import FitSettings
from quorum_rl.pipeline.results import source_commit
from reproduction.population import FLOOR, acted, world_trained_on
from reproduction.results import add
from reproduction.studies.few_ways import (
    COUNTS,
    DELTA,
    Trained,
    Way,
    bound,
    judged,
    released_beside,
    some,
    timed,
    trained,
    values_after_imitation,
)

LARGE: Final = ("LunarLander", "HIV")  # worlds whose experts need the paper's scale
VALUES_TRIED: Final = tuple(product((100, 300, 1000), (0.5, 1.0)))  # experts and ε
USUAL_EXPERTS: Final = 1000
BEGUN: Final = time.perf_counter()

OURS: Final = Way("local", FitSettings())
CQL: Final = Way(
    "local, CQL near imitation", FitSettings(local_rate=0.025), "cql", (("alpha", 20.0),)
)
STEPS: Final = (
    Way("DP-SGD", FitSettings(method="dp-sgd"), "cql", epsilons=(1.0,)),
    Way(
        "the paper's step",
        FitSettings(method="dp-sgd", transitions_per_expert=1, clip_norm=1.0),
        "cql",
        (("hidden_sizes", (256, 256)),),
        epsilons=(1.0,),
    ),
)
# Who takes part in a private step, and how long each one learns: how cheap may it be?
CHEAPER: Final = tuple(
    Way(
        f"sampling rate {rate:.2g}, {steps} local steps",
        FitSettings(sampling_rate=rate, local_steps=steps),
    )
    for rate, steps in ((1.0, 60), (1 / 3, 60), (1 / 3, 100), (1.0, 100), (0.2, 100))
)
Rows = tuple[list[Trained], list[dict[str, Any]]]
"""What was trained, and what a plan called noise."""


def say(text: str) -> None:
    print(f"{time.perf_counter() - BEGUN:7.1f} s  {text}", flush=True)


class Setting:
    """A world with its experts and their log, from the folder or made first."""

    def __init__(self, given: argparse.Namespace) -> None:
        stem = given.folder / f"{given.world}-{given.experts}-{given.seed}"
        given.folder.mkdir(parents=True, exist_ok=True)
        self.given = given
        self.population = population_of(
            given.world, given.experts, given.seed, stem.with_suffix(".safetensors")
        )
        self.world: AnyWorld = world_trained_on(self.population.origin)
        say(f"{len(self.population)} experts")
        self.log, self.experts = log_of(self.population, self.world, stem.with_suffix(".arrow"))
        say(f"{self.log.transition_count} transitions")
        counts = [count for count in given.counts if count <= len(self.population)]
        self.parts = {count: some(self.log, count) for count in counts}

    def facts(self) -> dict[str, Any]:
        given = self.given
        return {
            "world": given.world,
            "population": dict(self.population.origin),
            "delta": DELTA,
            "seeds": given.seeds,
            "episodes": given.episodes,
            "machine": this_machine(),
            "commit": given.commit or source_commit(),
        }

    def name_of(self, part: str) -> str:
        """What the tables call a part's result."""
        given = self.given
        if part != "local":
            return f"{given.world}-{part}"
        return given.world if given.experts == USUAL_EXPERTS else f"{given.world}-{given.experts}"

    def late(self, what: str) -> bool:
        """Whether it is too late to begin something."""
        if self.given.until and time.perf_counter() - BEGUN > self.given.until:
            say(f"no time for {what}")
            return True
        return False


def population_of(world: str, experts: int, seed: int, path: Path) -> Population:
    """Experts of a seed, trained now if there is no such file."""
    if not path.exists():
        sizes = {
            "preset": "paper" if world in LARGE else "small",
            "settings": -(-experts // 3), "candidates": 3, "count": experts, "seed": seed,
        }  # fmt: skip
        words = [f"--{name}={value}" for name, value in sizes.items()]
        quorum(["experts", "train", world, "--out", str(path), "--fast", *words])
    return load_population(path)


def log_of(
    population: Population, world: AnyWorld, path: Path
) -> tuple[Demonstrations, LoggedExperts]:
    if not path.exists():
        log, _ = acted(population, world, seed=0)
        save_demonstrations(log, path)
    log = open_demonstrations(path)
    return log, as_they_acted(population, log)


# --- the parts: each yields what is trained, so that it is judged and kept at once ---


def local(setting: Setting) -> Iterator[Rows]:
    """The product's defaults at every ε, and imitation without privacy."""
    seeds = setting.given.seeds
    yield bound(setting.log, setting.world, seeds), []
    for part in setting.parts.values():
        yield trained([OURS], part, setting.world, seeds)


def steps(setting: Setting) -> Iterator[Rows]:
    """DP-SGD and the paper's step, at ε = 1."""
    for way, part in product(STEPS, setting.parts.values()):
        if not setting.late(f"{way.name}, {part.expert_count}"):
            yield trained([way], part, setting.world, setting.given.seeds)


def values(setting: Setting) -> Iterator[Rows]:
    """CQL near imitation, CQL after imitation, and imitation to compare with."""
    seeds = setting.given.seeds
    for count, epsilon in VALUES_TRIED:
        if count not in setting.parts or setting.late(f"values, {count}, ε = {epsilon}"):
            continue
        part = setting.parts[count]
        found = [
            run
            for way in (OURS, CQL)
            for run in trained([replace(way, epsilons=(epsilon,))], part, setting.world, seeds)[0]
        ]
        found.append(values_after_imitation(part, setting.world, (epsilon, DELTA), seeds))
        yield found, []


def release(setting: Setting) -> Iterator[Rows]:
    """Half of ε for a release, mixed in and first."""
    for epsilon, part in product((1.0, 0.5, 3.0), reversed(setting.parts.values())):
        if part.expert_count == 30 or setting.late(f"release, {part.expert_count}, ε = {epsilon}"):
            continue
        seeds = setting.given.seeds
        yield released_beside(setting.experts, part, setting.world, epsilon, seeds, say), []


def cheaper(setting: Setting) -> Iterator[Rows]:
    """Fewer experts in a private step, and more local steps: for choosing the defaults."""
    for part, way in product(setting.parts.values(), CHEAPER):
        if not setting.late(f"{way.name}, {part.expert_count}"):
            yield trained([way], part, setting.world, setting.given.seeds)


PARTS: Final = {part.__name__: part for part in (local, steps, values, release, cheaper)}


def measured(setting: Setting, part: str) -> None:
    """One part, judged and kept as it is trained."""
    given, facts = setting.given, setting.facts() | {"rows": [], "refused": []}
    if part == "local":
        params = evaluation_params(setting.world)
        own = default_returns(
            setting.population, setting.world, params, episodes=10, p_min=FLOOR, seed=5
        )
        facts["experts_mean"] = float(own.mean())
        say(f"the experts earn {facts['experts_mean']:.4g}")
    for made, refused in PARTS[part](setting):
        declared = setting.log.declared
        rows = judged(made, declared, setting.world, given.seeds, given.episodes) if made else []
        facts["rows"] += rows
        facts["refused"] += refused
        for row in rows:
            say(f"{row['method']:34} m = {row['experts']:5} ε = {row['epsilon']} {row['mean']:.4g}")
        add(given.out, setting.name_of(part), facts)
    if part == "local" and given.timed:
        facts["timed"] = timed(setting.log, setting.world, given.timed, OURS)
        say(f"timed: {facts['timed']}")
        add(given.out, setting.name_of(part), facts)


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("world")
    parser.add_argument(
        "--parts", nargs="*", choices=PARTS, default=[*PARTS][:-1], help="none: experts and log"
    )
    parser.add_argument("--experts", type=int, default=USUAL_EXPERTS)
    parser.add_argument("--seed", type=int, default=21, help="of the experts")
    parser.add_argument("--counts", type=int, nargs="*", default=COUNTS, help="how many teach")
    parser.add_argument("--folder", type=Path, default=Path("few-experts"))
    parser.add_argument("--out", type=Path, default=Path("results/few.parquet"))
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--episodes", type=int, default=50)
    parser.add_argument("--timed", type=int, help="also time so many experts")
    parser.add_argument("--until", type=float, help="begin nothing after so many seconds")
    parser.add_argument("--commit", help="of the code, where git is not at hand")
    return parser.parse_args(words)


def main() -> None:
    given = arguments()
    setting = Setting(given)
    for part in given.parts:
        measured(setting, part)


if __name__ == "__main__":
    prepare(fast=True)
    main()
