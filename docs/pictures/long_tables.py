"""What noise does to weights in the paper's long trainings, from results/long/*.json."""

from typing import Any

import numpy as np
from rendering import RESULTS, for_each_learner, hundredths, steps_looked_at, table


def trainings() -> str:
    """What every way earns and how far its weights are from where they began, step by step."""
    return for_each_learner(RESULTS / "long", _of)


def _of(facts: dict[str, Any]) -> str:
    lines = []
    for way in facts["ways"]:
        cells = [
            f"{np.mean(row['returns']):.0f}; {hundredths(np.mean(row['moved']))}"
            for row in way["rows"]
        ]
        lines.append([f"{way['name']}, rate {way['learning_rate']:g}", *cells])
    learner = facts["configuration"]["learner"].upper()
    named = f"{facts['world']}, {learner}: return; weights moved"
    return table([named, *(f"{one:,} steps" for one in steps_looked_at(facts))], lines)
