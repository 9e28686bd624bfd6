"""Tables of studies on few experts that stand for many, of devices, and of one world's time."""

from collections.abc import Callable

import numpy as np

from reproduction.results import Facts, study
from reproduction.tables.formatting import (
    by_seed,
    hundredths,
    in_billions,
    mean,
    provenance,
    table,
    world_and_learner,
)


def _of_each_learner(name: str, shown: Callable[[Facts], str]) -> str:
    """A table of every result of a study, and where it comes from."""
    return "\n\n".join(f"{shown(facts)}\n\n{provenance(facts)}." for facts in study(name).values())


def long_trainings() -> str:
    """What every way earns and how far its weights are from where they began, step by step."""

    def shown(facts: Facts) -> str:
        lines = [
            [
                f"{way['name']}, rate {way['learning_rate']:g}",
                *(
                    f"{np.mean(row['returns']):.0f}; {hundredths(np.mean(row['moved']))}"
                    for row in way["rows"]
                ),
            ]
            for way in facts["ways"]
        ]
        named = f"{world_and_learner(facts)}: return; weights moved"
        return table([named, *_steps(facts)], lines)

    return _of_each_learner("long", shown)


def private_steps() -> str:
    """What tells the paper's private step from ours: what every way earns, by seed at its end."""

    def shown(facts: Facts) -> str:
        lines = []
        for way in facts["ways"]:
            noise = hundredths(way["noise_multiplier"]) if way["noise"] else "none"
            *before, last = [row["returns"] for row in way["rows"]]
            earned = [*map(mean, before), by_seed(last)]
            lines.append([way["name"], noise, f"{way['learning_rate']:.2g}", *earned])
        epsilon = facts["configuration"]["epsilon"]
        named = f"{world_and_learner(facts)}, ε = {epsilon:g}: returns"
        return table([named, "noise", "rate", *_steps(facts)], lines)

    return _of_each_learner("step", shown)


def _steps(facts: Facts) -> list[str]:
    """After how many steps every way was looked at, which is the same for all."""
    (steps,) = {tuple(row["steps"] for row in way["rows"]) for way in facts["ways"]}
    return [f"{count:,} steps" for count in steps]


def beside_a_release() -> str:
    """What every way has of both stages, and what it earns."""

    def shown(facts: Facts) -> str:
        every = facts["trajectories"]
        rows = [
            [
                way["name"],
                hundredths(way["noise"]),
                str(every - facts["pool"] if way["fewer_trajectories"] else every),
                str(facts["plain_steps"] if way["steps_on_prefixes"] else 0),
                in_billions(way["returns"]),
            ]
            for way in facts["ways"]
        ]
        named = f"{world_and_learner(facts)}, ε = {facts['configuration']['epsilon']:g}"
        head = [named, "noise", "trajectories of each", "steps on prefixes", "returns, billions"]
        return table(head, rows)

    return _of_each_learner("beside", shown)


def from_nothing() -> str:
    """When each stage of HIV began and ended, with no other world beside it."""
    rows = [
        [row["job"], f"{row['began']}", f"{row['ended']}"]
        for row in study("alone")["hiv-times"]["rows"]
    ]
    return table(["alone on one H200", "began after, seconds", "ended after, seconds"], rows)


def devices() -> str:
    """What one of several devices holds."""
    rows = study("scale")["devices"]["rows"]
    lines = [
        [stage, *(f"{row['bytes'][stage] / 2**20:.2f} MiB" for row in rows)]
        for stage in rows[0]["bytes"]
    ]
    return table(["on each of", *(f"{row['devices']}" for row in rows)], lines)
