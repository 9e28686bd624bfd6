"""Writes the tables of scale.md from results/scale/*.json and the cost model.

python docs/pictures/make_scale.py
"""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from rendering import RESULTS, Sections, table, write

from quorum_rl.cost import Cost, Size, costs_of

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from fit_scale import rows_of, size_of

PAGE = "scale.md"
GIB = 2**30
MILLION = Size(
    experts=1_000_000,
    trajectories=20,
    horizon=200,
    observation_size=4,
    actions=2,
    iterations=1000,
    batch=170_000,
    agents=1_000_000,
)


def read(name: str) -> dict[str, Any]:
    made: dict[str, Any] = json.loads((RESULTS / "scale" / name).read_text())
    return made


def devices() -> str:
    """What one of several devices holds."""
    rows = read("devices.json")["rows"]
    stages = list(rows[0]["bytes"])
    lines = [
        [stage, *(f"{row['bytes'][stage] / 2**20:.2f} MiB" for row in rows)] for stage in stages
    ]
    return table(["on each of", *(f"{row['devices']}" for row in rows)], lines)


def measured() -> str:
    """Each measurement beside what the model says of it."""
    facts = read("h200.json")
    lines, ratios = [], []
    for row in rows_of(facts):
        predicted = prediction(row)
        ratio = predicted.seconds / row["seconds"]
        ratios.append(max(ratio, 1 / ratio))
        lines.append(
            [
                row["stage"],
                f"{row['size']['experts']:,}",
                _what(row),
                _seconds(row["seconds"]),
                _seconds(predicted.seconds),
                f"{ratio:.2f}",
                _gib(held(row)),
                _gib(predicted.device_bytes),
            ]
        )
    header = ["stage", "experts", "of", "measured", "predicted", "ratio", "GiB", "predicted"]
    versions = ", ".join(f"{name} {number}" for name, number in facts["versions"].items())
    middle = sorted(ratios)[len(ratios) // 2]
    return (
        f"{table(header, lines)}\n\nMeasured on an {facts['device']}, {versions}, commit "
        f"`{facts['commit'][:7]}`. Predictions of time are off by a factor of {max(ratios):.2f} at "
        f"worst and {middle:.2f} in the median."
    )


def prediction(row: dict[str, Any], machine: str = "h200") -> Cost:
    """What the model says of a measurement."""
    costs = {cost.stage: cost for cost in costs_of(size_of(row), machine)}
    return costs[row["stage"]]


def held(row: dict[str, Any]) -> float | None:
    """The most that a stage held on the device, where that can be told from others before it."""
    if row["stage"] in ("experts", "collect"):  # sizes rise, so the peak is this row's
        return float(row["bytes_peak"])
    if row["stage"] == "private steps":
        return float(row["bytes_of_data"])
    return None


def million() -> str:
    rows = []
    for count in (8, 64, 512):
        costs = costs_of(replace(MILLION, devices=count), "h200")
        times = [_seconds(cost.seconds) for cost in costs]
        most = max(cost.device_bytes for cost in costs)
        rows.append([f"{count}", *times, _seconds(sum(c.seconds for c in costs)), _gib(most)])
    names = [cost.stage for cost in costs]
    on_host = {cost.stage: cost.host_bytes / 1e9 for cost in costs}
    told = (
        f"All networks are {on_host['networks']:,.0f} GB, the demonstrations "
        f"{on_host['private steps']:,.0f} GB as private steps read them and "
        f"{on_host['collect']:,.0f} GB while they are put together."
    )
    return f"{table(['H200', *names, 'together', 'most on a device, GiB'], rows)}\n\n{told}"


def _what(row: dict[str, Any]) -> str:
    size, stage = row["size"], row["stage"]
    if stage == "experts":
        waves = row["of_waves"]
        return "an iteration" + (f" in {waves} waves" if waves > 1 else "")
    if stage == "networks":
        return "all to the device"
    if stage == "collect":
        return f"{size['trajectories']} × {size['horizon']} steps"
    if stage == "count":
        return f"{size['iterations']} prefixes of {size['horizon']} steps"
    hidden = "" if size["learner_hidden"] == [256, 256] else f", {tuple(size['learner_hidden'])}"
    each = size["transitions_per_expert"]
    return f"{size['private_steps']} of {size['batch']} × {each}{hidden}"


def _seconds(value: float) -> str:
    if value >= 7200:
        return f"{value / 3600:.1f} h"
    if value >= 120:
        return f"{value / 60:.0f} min"
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.1f} ms"


def _gib(value: float | None) -> str:
    return "" if not value else f"{value / GIB:.2f}"


SECTIONS: Sections = {"devices": devices, "measured": measured, "million": million}


if __name__ == "__main__":
    write(PAGE, SECTIONS)
