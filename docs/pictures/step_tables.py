"""What tells a private step of the paper's from ours, one thing at a time: results/step/*.json."""

from typing import Any, Final

import numpy as np
from rendering import RESULTS, by_learner, hundredths, provenance, table

FOLDER: Final = RESULTS / "step"


def ways() -> str:
    """What every way earns on the way, and by seed at its end."""
    return "\n\n".join(_of(facts) for facts in by_learner(FOLDER).values())


def _of(facts: dict[str, Any]) -> str:
    steps = [row["steps"] for row in facts["ways"][0]["rows"]]
    lines = []
    for way in facts["ways"]:
        assert [row["steps"] for row in way["rows"]] == steps
        noise = hundredths(way["noise_multiplier"]) if way["noise"] else "none"
        means = [_whole(np.mean(row["returns"])) for row in way["rows"]]
        each = ", ".join(map(_whole, way["rows"][-1]["returns"]))
        lines.append([way["name"], noise, f"{way['learning_rate']:.2g}", *means])
        lines[-1][-1] += f" ({each})"
    learner = facts["configuration"]["learner"].upper()
    named = f"{facts['world']}, {learner}, ε = {facts['configuration']['epsilon']:g}: returns"
    head = [named, "noise", "rate", *(f"{one:,} steps" for one in steps)]
    return f"{table(head, lines)}\n\n{provenance(facts)}."


def _whole(value: float) -> str:
    return f"{value:.0f}".replace("-", "−")
