"""What studies train on: experts cut so that they stand for many, or a sample of what they did.

Experts of the paper's size are gigabytes, and so are their logs. A sample has some random
transitions of everybody, which is enough to train on, and fits where they do not:

    python -m reproduction.studies.samples lander.safetensors --cut 3 --keep 128 --out lander.npz

`tuning.py` and `private_steps.py` take it in place of the experts. It is as
private as their logs.
"""

import argparse
import json
import zlib
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from zipfile import BadZipFile

import jax.numpy as jnp
import numpy as np

from quorum_rl.distributed import prepare
from quorum_rl.envs import AnyWorld
from quorum_rl.errors import QuorumError
from quorum_rl.experts import Population, load_population
from quorum_rl.files import replacing, require_file
from quorum_rl.logs import Declared, Demonstrations
from quorum_rl.training import ExpertData, at, expert_data
from quorum_rl.types import Transition
from reproduction.population import TRAJECTORIES, acted, world_trained_on

SUFFIX: Final = ".npz"
MADE: Final = ("cut", "keep", "trajectories")  # how a sample was made
CLOSE: Final = 0.01  # 2997 stand for 3000
NO_SAMPLE: Final = (BadZipFile, zlib.error, EOFError, AttributeError, KeyError, ValueError)


@dataclass(frozen=True)
class Source:
    """Experts who can act, or a sample of what they did.

    `origin` says how the experts were trained, and `made` how a sample was.
    """

    world: AnyWorld
    origin: dict[str, Any]
    population: Population | None = None
    sample: ExpertData | None = None
    made: dict[str, int] = field(default_factory=dict)

    @property
    def declared(self) -> Declared:
        """What a learner has to know of the world."""
        spaces = self.world.spaces
        return Declared(
            action_count=spaces.action_count,
            observation_size=spaces.observation_size,
            horizon=self.world.facts.demonstration_time_limit,
            world=self.world.name,
        )

    def to_json(self) -> dict[str, Any]:
        """Whose results are."""
        return {"population": self.origin, "sample": self.made or None}

    def experts(self) -> Population:
        """
        Raises:
            QuorumError: if there is only a sample.
        """
        if self.population is None:
            raise QuorumError("this needs experts who can act, and not a sample: give their file.")
        return self.population

    def log(self, trajectories: int = TRAJECTORIES) -> Demonstrations:
        """What the experts do.

        Raises:
            QuorumError: if there is only a sample.
        """
        return acted(self.experts(), self.world, seed=0, trajectories=trajectories)[0]

    def standing_for(self, count: int) -> ExpertData:
        """The sample, which has about so many experts, or so many cut out of these.

        Raises:
            QuorumError: if they cannot be cut so, or a sample has others.
        """
        if self.sample is None:
            return cut_to(self.log(), count)
        if abs(self.sample.expert_count - count) > count * CLOSE:
            raise QuorumError(
                f"this sample has {self.sample.expert_count} experts, and {count} are needed: make "
                "one with another --cut."
            )
        return self.sample


def source_of(path: Path) -> Source:
    """
    Raises:
        QuorumError: if the file has neither experts nor a sample.
    """
    if path.suffix != SUFFIX:
        population = load_population(path)
        return Source(world_trained_on(population.origin), dict(population.origin), population)
    require_file(path, "sample")
    try:
        with np.load(path) as arrays:
            origin = json.loads(str(arrays["origin"]))
            made = {name: int(arrays[name]) for name in MADE}
            fields = {name: jnp.asarray(arrays[name]) for name in Transition._fields}
            data = ExpertData(Transition(**fields), jnp.asarray(arrays["offsets"]))
            world = world_trained_on(origin)
        if {len(column) for column in fields.values()} != {int(data.offsets[-1])}:
            raise ValueError("arrays of several lengths")
    except NO_SAMPLE as error:
        raise QuorumError(
            f"{path} is no sample: make one with python -m reproduction.studies.samples."
        ) from error
    return Source(world, origin, sample=data, made=made)


def save(path: Path, data: ExpertData, origin: dict[str, Any], made: dict[str, int]) -> None:
    arrays = {name: np.asarray(column) for name, column in data.transitions._asdict().items()}
    arrays |= {name: np.array(number) for name, number in made.items()}
    arrays |= {"offsets": np.asarray(data.offsets), "origin": np.array(json.dumps(origin))}
    with replacing(path) as written, written.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]  # no name is its own


def cut(data: ExpertData, parts: int) -> ExpertData:
    """Everybody's transitions, in order, as so many experts.

    Raises:
        QuorumError: if somebody has too few.
    """
    offsets = np.asarray(data.offsets)
    counts = np.diff(offsets)
    if counts.min() < parts:
        raise QuorumError(
            f"an expert has {counts.min()} transitions, which cannot be cut into {parts}: cut into "
            "fewer, or give more trajectories."
        )
    firsts = offsets[:-1, None] + counts[:, None] * np.arange(parts) // parts
    return ExpertData(data.transitions, jnp.asarray(np.append(firsts.ravel(), offsets[-1])))


def sampled(source: Source, parts: int, kept: int | None, trajectories: int) -> ExpertData:
    """What experts do, each as so many, and of each so many random transitions or all.

    Raises:
        QuorumError: if there is only a sample, or somebody has too few.
    """
    data = cut(expert_data(source.log(trajectories)), parts)
    return data if kept is None else some_of_each(data, kept)


def cut_to(log: Demonstrations, count: int) -> ExpertData:
    """So many experts cut out of those who made the log.

    Raises:
        QuorumError: if they cannot be cut so.
    """
    if count % log.expert_count:
        raise QuorumError(
            f"there are {log.expert_count} experts, and {count} cannot be cut out of them: give "
            "300, or another number that divides it."
        )
    return cut(expert_data(log), count // log.expert_count)


def some_of_each(data: ExpertData, kept: int) -> ExpertData:
    """So many random transitions of every expert, with replacement: enough to fit elsewhere."""
    generator = np.random.default_rng(0)
    offsets = np.asarray(data.offsets)
    chosen = np.concatenate(
        [np.sort(generator.integers(*ends, kept)) for ends in pairwise(offsets)]
    )
    firsts = jnp.arange(0, len(chosen) + 1, kept)
    return ExpertData(at(data.transitions, jnp.asarray(chosen)), firsts)


def check_counts(parser: argparse.ArgumentParser, given: argparse.Namespace, *names: str) -> None:
    """Stop with one sentence if one of these is given and is below 1."""
    for name in names:
        value = getattr(given, name)
        if value is not None and value < 1:
            parser.error(f"--{name} is {value}: give at least 1")


def check_folder(parser: argparse.ArgumentParser, out: Path) -> None:
    """Stop with one sentence if there is no folder for a file."""
    if not out.parent.is_dir():
        parser.error(f"--out is {out}, and there is no folder {out.parent}: make it first")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("population", type=Path, help="experts, as `quorum experts train` has them")
    parser.add_argument("--cut", type=int, default=1, help="into how many each expert is cut")
    parser.add_argument("--keep", type=int, default=128, help="random transitions of each")
    parser.add_argument("--trajectories", type=int, default=TRAJECTORIES)
    parser.add_argument("--out", type=Path, required=True, help=f"a file *{SUFFIX}")
    given = parser.parse_args()
    if given.out.suffix != SUFFIX:
        parser.error(f"--out is {given.out}: give a name that ends in {SUFFIX}")
    check_counts(parser, given, *MADE)
    check_folder(parser, given.out)
    prepare(fast=True)  # which transitions a sample has does not hang on the last bits
    try:
        source = source_of(given.population)
        data = sampled(source, given.cut, given.keep, given.trajectories)
        save(given.out, data, source.origin, {name: getattr(given, name) for name in MADE})
    except (QuorumError, OSError) as error:
        parser.error(str(error))
    print(f"{data.expert_count} experts, {given.keep} transitions of each: {given.out}")


if __name__ == "__main__":
    main()
