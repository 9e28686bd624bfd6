"""What studies share that train one of the paper's learners in several ways, on few experts."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from quorum_rl.distributed import prepare
from quorum_rl.errors import QuorumError
from quorum_rl.pipeline import Result
from reproduction.results import check_place, save
from reproduction.studies.samples import Source, source_of

NO_NOISE: Final = 1e-6  # of a sum of gradients: a private step has to have some


def parser_for_a_study(text: str, *, samples: bool = True) -> argparse.ArgumentParser:
    """What every study asks for; `text` is what its script says of itself.

    `samples` says whether it can do with a sample of logs.
    """
    experts = "experts, as `quorum experts train` has them"
    parser = argparse.ArgumentParser(description=text.splitlines()[0])
    parser.add_argument(
        "population", type=Path, help=experts + ", or a sample of their logs" * samples
    )
    parser.add_argument("--learner", choices=["cql", "bcq"], default="bcq")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--episodes", type=int, default=50)
    parser.add_argument("--out", type=Path, help="the Parquet file to add the result to")
    return parser


def run(
    parser: argparse.ArgumentParser,
    given: argparse.Namespace,
    measured: Callable[[argparse.Namespace], None],
) -> None:
    """Measure, or say in one sentence what is wrong."""
    prepare(fast=True)  # what is asked does not hang on the last bits
    try:
        measured(given)
    except (QuorumError, OSError) as error:
        parser.error(str(error))


class Study(NamedTuple):
    """The experts, and the result with the file for it, if one was given."""

    source: Source
    result: Result
    out: Path | None

    def save(self, facts: dict[str, Any]) -> None:
        """What was found, if it is to be kept."""
        if self.out is not None:
            save(self.result, self.out, facts)


def opened(given: argparse.Namespace, stage: str, *asked: str, **fixed: Any) -> Study:
    """A study, when its result has a place; `asked` are the options that are a part of it.

    Raises:
        QuorumError: if there are neither experts nor a sample, or another result would be lost.
    """
    source = source_of(given.population)
    chosen = {name: getattr(given, name) for name in asked} | source.to_json()
    result = Result(source.world.name, f"{given.learner}-{stage}", chosen | fixed)
    if given.out is not None:
        check_place(result, given.out)
    return Study(source, result, given.out)
