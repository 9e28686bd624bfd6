"""What a release beside private steps changes, one thing at a time, from results/beside/*.json."""

from typing import Any, Final

from rendering import RESULTS, for_each_learner, hundredths, table

BILLION: Final = 1e9


def ways() -> str:
    """What every way has of both stages, and what it earns."""
    return for_each_learner(RESULTS / "beside", _of)


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
    return table(head, rows)
