"""What tells a private step of the paper's from ours, one thing at a time: results/step/*.json."""

from typing import Any

from rendering import RESULTS, for_each_learner, hundredths, steps_looked_at, table
from tuning_tables import by_seed, mean


def ways() -> str:
    """What every way earns on the way, and by seed at its end."""
    return for_each_learner(RESULTS / "step", _of)


def _of(facts: dict[str, Any]) -> str:
    lines = []
    for way in facts["ways"]:
        noise = hundredths(way["noise_multiplier"]) if way["noise"] else "none"
        *before, last = [row["returns"] for row in way["rows"]]
        earned = [*map(mean, before), by_seed(last)]
        lines.append([way["name"], noise, f"{way['learning_rate']:.2g}", *earned])
    learner = facts["configuration"]["learner"].upper()
    named = f"{facts['world']}, {learner}, ε = {facts['configuration']['epsilon']:g}: returns"
    head = [named, "noise", "rate", *(f"{one:,} steps" for one in steps_looked_at(facts))]
    return table(head, lines)
