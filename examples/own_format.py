"""A file format of your own: JSON lines, one for every step, become demonstrations.

All that a format needs is a function from a file to `StepArrays`; `from_step_arrays` checks
them, sorts them by expert and refuses what would break the guarantee, naming the row. Steps of an
episode follow one another. Save the result once and work from that file: `quorum fit logs.arrow`.

    python examples/own_format.py logs.jsonl logs.arrow --actions 2 --observations 4 --horizon 200
"""

import argparse
import json
from pathlib import Path

import numpy as np

from quorum_rl.errors import QuorumError
from quorum_rl.logs import (
    Declared,
    Demonstrations,
    StepArrays,
    from_step_arrays,
    save_demonstrations,
)

# What the fields of a line are called, in the order of `StepArrays`.
FIELDS = ("observation", "action", "reward", "terminated", "truncated", "expert")
AFTER = "next_observation"  # may be absent: then the time limit moves forward by one step


def read_json_lines(path: Path, declared: Declared) -> Demonstrations:
    """The demonstrations in a file of JSON lines.

    Raises:
        QuorumError: naming the first line, or row, that is wrong.
    """
    steps = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            step = json.loads(line)
            steps.append([step[name] for name in FIELDS] + [step.get(AFTER)])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise QuorumError(
                f"{str(path)!r}, line {number}: {error!r}: give an object with {', '.join(FIELDS)}."
            ) from error
    if not steps:
        raise QuorumError(f"{str(path)!r} has no line: give at least one episode.")
    *columns, after = zip(*steps, strict=True)
    arrays = StepArrays(*map(np.array, columns))
    if after[0] is not None:
        arrays = arrays._replace(next_observations=np.array(after))
    return from_step_arrays(arrays, declared)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    for name in ("actions", "observations", "horizon", "minimum-experts"):
        parser.add_argument(f"--{name}", type=int, required=name != "minimum-experts")
    told = parser.parse_args()
    public = Declared(
        told.actions, told.observations, told.horizon, minimum_experts=told.minimum_experts
    )
    save_demonstrations(read_json_lines(told.source, public), told.out)
