"""The prices of `quorum_rl.cost.MACHINES`, fitted to what `scale.py` measured.

    python benchmarks/fit_scale.py results/scale/h200.json --machine h200

Prices that a stage has for itself are fitted to its own rows; collecting and counting share that of
a query. No price is negative, and relative errors are what is small: a row of a millisecond counts
as much as one of a minute. Two digits of each price are kept.
"""

import argparse
import json
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy.optimize import nnls

from quorum_rl.cost import MACHINES, Size, agents_at_once, work_of

TOGETHER: Final = (("experts",), ("networks",), ("collect", "count"), ("private steps",))
Row = dict[str, Any]


def rows_of(measured: dict[str, Any]) -> list[Row]:
    """What was measured, row by row; putting networks on the device as a stage of its own.

    The first time that is done it starts the device too, and is left out. On a CPU the seconds are
    the processor's: other work beside it takes none of those.
    """
    rows: list[Row] = []
    for row in measured["rows"]:
        if row.get("placing") and row["from_host"] and rows[-1]["stage"] != "experts":
            rows.append(row | {"stage": "networks", "seconds": row["placing"]})
        rows.append(row | {"seconds": row.get("processor_seconds") or row["seconds"]})
    return rows


def size_of(row: Row) -> Size:
    lists = {name: tuple(value) for name, value in row["size"].items() if isinstance(value, list)}
    return Size(**(row["size"] | lists))


def work_in(row: Row, machine: str) -> dict[str, float]:
    size, known = size_of(row), MACHINES[machine]
    amounts = work_of(size, known.block, agents_at_once(size, known.memory))[row["stage"]]
    return {name: float(amount) for name, amount in amounts.items() if amount}


def fitted(rows: list[Row], machine: str) -> dict[str, float]:
    """The prices, of which none is negative."""
    prices: dict[str, float] = {}
    for stages in TOGETHER:
        chosen = [row for row in rows if row["stage"] in stages]
        work = [work_in(row, machine) for row in chosen]
        names = sorted({name for one in work for name in one})
        matrix = np.array(
            [
                [one.get(name, 0.0) / row["seconds"] for name in names]
                for one, row in zip(work, chosen, strict=True)
            ]
        )
        scale = matrix.max(axis=0)
        found, _ = nnls(matrix / scale, np.ones(len(chosen)))
        prices |= {
            name: float(f"{price:.2g}") for name, price in zip(names, found / scale, strict=True)
        }
    return prices


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("measured", type=Path)
    parser.add_argument("--machine", choices=MACHINES, required=True)
    given = parser.parse_args()
    rows = rows_of(json.loads(given.measured.read_text()))
    prices = fitted(rows, given.machine)
    for name, price in prices.items():
        print(f'            "{name}": {price:g},')
    for row in rows:
        work = work_in(row, given.machine)
        parts = {name: amount * prices[name] for name, amount in work.items()}
        ratio = sum(parts.values()) / row["seconds"]
        told = ", ".join(f"{name} {seconds:.3g}" for name, seconds in parts.items())
        print(f"{row['stage']:>14} {row['size']['experts']:>7} {row['seconds']:.3g} s, "
              f"predicted {ratio:.2f} times that ({told})")  # fmt: skip


if __name__ == "__main__":
    main()
