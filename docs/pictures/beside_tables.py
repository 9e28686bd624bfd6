"""What a release beside private steps changes, one thing at a time, from results/beside/*.json."""

from typing import Any, Final

from rendering import RESULTS, by_learner, hundredths, provenance, table

FOLDER: Final = RESULTS / "beside"
BILLION: Final = 1e9


def ways() -> str:
    """What every way has of both stages, and what it earns."""
    return "\n\n".join(_of(facts) for facts in by_learner(FOLDER).values())


def _of(facts: dict[str, Any]) -> str:
    chosen = facts["configuration"]
    fewer = facts["trajectories"] - facts["pool"]
    rows = [
        [
            way["name"],
            hundredths(way["noise"]),
            str(fewer if way["fewer_trajectories"] else facts["trajectories"]),
            str(facts["plain_steps"] if way["steps_on_prefixes"] else 0),
            " ".join(hundredths(earned / BILLION) for earned in way["returns"]),
        ]
        for way in facts["ways"]
    ]
    named = f"{facts['world']}, {chosen['learner'].upper()}, ε = {chosen['epsilon']:g}"
    head = [named, "noise", "trajectories of each", "steps on prefixes", "returns, billions"]
    return f"{table(head, rows)}\n\n{provenance(facts)}."
