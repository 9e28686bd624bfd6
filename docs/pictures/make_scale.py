"""Writes the table of devices in scale.md from results/scale/devices.json.

python docs/pictures/make_scale.py
"""

import json
from typing import Any

from rendering import RESULTS, Sections, table, write

PAGE = "scale.md"


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


SECTIONS: Sections = {"devices": devices}


if __name__ == "__main__":
    write(PAGE, SECTIONS)
