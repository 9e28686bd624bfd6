"""A dosing world that ships with Quorum: clinicians treat blood sugar, and somebody keeps a log.

    python examples/clinicians.py --out visits.parquet

Nothing here knows of Quorum. A patient is visited at irregular hours, at most VISITS times; at
each visit the clinician orders one of ORDERS. Every clinician has thresholds and habits of their
own. `true_return` says what any policy earns here, which logs alone never say.
"""

import argparse
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet

Array = npt.NDArray[Any]
Act = Callable[[Array], Array]  # observations (patients, 5), NaN where missing, to orders

ORDERS = ("hold", "sugar", "low dose", "high dose")
EFFECT = np.array([0.0, 40.0, -45.0, -100.0])  # on the blood sugar of a patient of sensitivity 1
SEEN = ("glucose", "weight", "hours_since_meal", "last_effect", "potassium")
MISSING = np.array([0.04, 0.1, 0.0, 0.0, 0.4])  # how often nobody wrote a value down
VISITS = 20


class Patients(NamedTuple):
    """Those who are treated side by side; all (patients,)."""

    glucose: Array
    sensitivity: Array  # hidden; heavier patients need more
    hours: Array  # since the last meal
    effect: Array  # of the last order, in part still to come


def admitted(rng: np.random.Generator, count: int) -> Patients:
    glucose, hours = rng.normal(220, 50, count), rng.exponential(3, count)
    return Patients(glucose, rng.lognormal(0, 0.25, count), hours, np.zeros(count))


def observed(rng: np.random.Generator, patients: Patients) -> Array:
    """What stands in the record, NaN where nobody wrote it down. Shape (patients, 5)."""
    weight = 80 / patients.sensitivity + rng.normal(0, 5, len(patients.glucose))
    potassium = rng.normal(4.2, 0.5, len(weight))
    seen = np.stack([patients.glucose, weight, patients.hours, patients.effect, potassium], axis=1)
    return np.where(rng.random(seen.shape) < MISSING, np.nan, seen)


def treated(rng: np.random.Generator, now: Patients, order: Array) -> tuple[Patients, Array, Array]:
    """The patients at the next visit, the rewards, and who had to be moved to intensive care."""
    effect = EFFECT[order] * now.sensitivity
    passed = rng.exponential(3, len(order))
    ate = rng.random(len(order)) < 0.5
    sugar = now.glucose + 0.7 * effect + 0.3 * now.effect + 35 * ate + 0.1 * (170 - now.glucose)
    sugar = np.clip(sugar + rng.normal(0, 12, len(order)), 20, 600)
    hours = np.where(ate, passed, now.hours + passed)
    moved = sugar < 50
    reward = (1.0 * (abs(sugar - 125) < 45)) - 0.5 * (sugar > 250) - 10.0 * moved
    return Patients(sugar, now.sensitivity, hours, effect), reward, moved


class Clinicians(NamedTuple):
    """Who decides, and how; all (clinicians,)."""

    sugar_below: Array
    low_above: Array
    high_above: Array
    slips: Array  # how often an order is any of them


def clinicians(seed: int = 0, count: int = 150) -> Clinicians:
    """Clinicians with thresholds and habits of their own; the first ones do not depend on count."""
    draws = np.random.default_rng(seed).normal(size=(count, 4))
    low = 165 + 15 * draws[:, 1]
    slips = np.clip(0.06 + 0.03 * draws[:, 3], 0.01, 0.2)
    return Clinicians(80 + 6 * draws[:, 0], low, low + 65 + 15 * draws[:, 2], slips)


def orders_of(rng: np.random.Generator, who: Clinicians, patients: Patients) -> Array:
    """What they order, row by row; at the bedside they see what nobody writes down."""
    sugar = patients.glucose + 0.3 * patients.effect  # what was given last is still at work
    order = np.where(sugar < who.sugar_below, 1, 0)
    order = np.where(sugar > who.low_above, np.where(sugar > who.high_above, 3, 2), order)
    slipped = rng.random(len(order)) < who.slips
    return np.where(slipped, rng.integers(len(ORDERS), size=len(order)), order)


def logs(seed: int = 0, count: int = 150, patients: int = 12) -> pa.Table:
    """What they all did with so many patients each, a row for each visit, as a hospital keeps it.

    Guarantee: deterministic by the seed.
    """
    rng, who = np.random.default_rng([seed, 1]), clinicians(seed, count)
    whose = np.repeat(np.arange(count), patients)
    now, left = admitted(rng, len(whose)), np.ones(len(whose), np.bool_)
    clock = rng.integers(0, 90 * 24 * 3600, len(whose))
    record = observed(rng, now)
    parts: list[dict[str, Any]] = []
    for visit in range(VISITS):
        order = orders_of(rng, Clinicians(*(fact[whose] for fact in who)), now)
        now, reward, moved = treated(rng, now, order)
        after = observed(rng, now)
        row = np.flatnonzero(left)
        seen = {name: record[row, i] for i, name in enumerate(SEEN)}
        seen |= {f"{name}_after": after[row, i] for i, name in enumerate(SEEN)}
        parts.append({"clinician": whose[row], "patient": row, "at": clock[row], **seen,
                      "order": order[row], "reward": reward[row], "moved": moved[row],
                      "ended": np.full(len(row), visit == VISITS - 1)})  # fmt: skip
        clock, left, record = clock + rng.integers(3600, 6 * 3600, len(clock)), left & ~moved, after
    rows = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    mixed = rng.permutation(len(rows["at"]))
    return _as_kept({name: column[mixed] for name, column in rows.items()})


def _as_kept(rows: dict[str, Array]) -> pa.Table:
    """The rows under the types that such a house has, with columns that nobody needs."""
    start, ward = datetime(2025, 3, 1), rows["clinician"] % 2
    named: dict[str, Any] = {
        "clinician_id": np.char.mod("C%03d", rows.pop("clinician")),
        "patient_id": np.char.mod("P%05d", rows.pop("patient")),
        "at": [start + timedelta(seconds=int(second)) for second in rows.pop("at")],
        "ward": np.array(["north", "south"])[ward],
        "order": np.array(ORDERS)[rows.pop("order")],
    }
    numbers = {name: pa.array(column, from_pandas=True) for name, column in rows.items()}
    return pa.table({name: pa.array(column) for name, column in named.items()} | numbers)


def played(rng: np.random.Generator, count: int, decide: Callable[[Patients], Array]) -> Array:
    """What so many patients earn under these orders. Shape (patients,)."""
    now, returns, left = admitted(rng, count), np.zeros(count), np.ones(count, np.bool_)
    for _ in range(VISITS):
        now, reward, moved = treated(rng, now, decide(now))
        returns += np.where(left, reward, 0)
        left &= ~moved
    return returns


def true_return(act: Act, seed: int = 0, episodes: int = 2000) -> tuple[float, float]:
    """The mean return of a policy and its standard error; `act` says numbers or names of orders."""
    rng = np.random.default_rng([seed, 2])

    def decide(now: Patients) -> Array:
        order = np.asarray(act(observed(rng, now)))
        if order.dtype.kind in "US":
            return np.asarray((order[:, None] == np.array(ORDERS)).argmax(axis=1))
        return order

    returns = played(rng, episodes, decide)
    return float(returns.mean()), float(returns.std() / np.sqrt(episodes))


def clinicians_return(seed: int = 0, count: int = 150, patients: int = 200) -> Array:
    """The true mean return of every clinician. Shape (clinicians,)."""
    rng, who = np.random.default_rng([seed, 3]), clinicians(seed, count)
    each = Clinicians(*(np.repeat(fact, patients) for fact in who))
    returns = played(rng, count * patients, lambda now: orders_of(rng, each, now))
    return np.asarray(returns.reshape(count, patients).mean(axis=1))


if __name__ == "__main__":
    words = argparse.ArgumentParser(description="Write the logs of the tutorial.")
    words.add_argument("--out", default="visits.parquet")
    words.add_argument("--seed", type=int, default=0)
    given = words.parse_args()
    table = logs(given.seed)
    pyarrow.parquet.write_table(table, given.out)
    print(f"150 clinicians, {table.num_rows} visits: {given.out}")
