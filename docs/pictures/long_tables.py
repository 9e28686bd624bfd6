"""What noise does to weights in the paper's long trainings, from results/long/*.json."""

from typing import Any, Final

import numpy as np
from rendering import RESULTS, by_learner, hundredths, provenance, table

FOLDER: Final = RESULTS / "long"


def trainings() -> str:
    """What every way earns and how far its weights are from where they began, step by step."""
    return "\n\n".join(_of(facts) for facts in by_learner(FOLDER).values())


def _of(facts: dict[str, Any]) -> str:
    steps = [row["steps"] for row in facts["ways"][0]["rows"]]
    lines = []
    for way in facts["ways"]:
        assert [row["steps"] for row in way["rows"]] == steps
        cells = [
            f"{np.mean(row['returns']):.0f}; {hundredths(np.mean(row['moved']))}"
            for row in way["rows"]
        ]
        lines.append([f"{way['name']}, rate {way['learning_rate']:g}", *cells])
    learner = facts["configuration"]["learner"].upper()
    named = f"{facts['world']}, {learner}: return; weights moved"
    return f"{table([named, *(f'{one:,} steps' for one in steps)], lines)}\n\n{provenance(facts)}."
