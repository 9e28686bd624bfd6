"""The contents of ledgers of every kind, written line by line without the checks of a charge."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

from quorum_rl.budget import ASSUMPTIONS, Certificate, LedgerRecord, certificate
from quorum_rl.budget.record import (
    FORMAT,
    RELATION,
    START,
    Json,
    Kind,
    line_of,
    read_lines,
    record_of,
)
from quorum_rl.privacy.events import Event, ReleaseEvent, TrainingEvent, event_to_json

DELTA: Final = 3e-4
AT: Final = "2030-01-01"
SOMEWHERE: Final = Path("some.ledger")
ACCEPTED: Final[dict[str, Json]] = {"accepted": list(ASSUMPTIONS)}
PUBLISHED: Final[dict[str, Json]] = {"published": {"epsilon": 2.5, "delta": 1e-4}}

FLOOR: Final = ReleaseEvent(
    mode="tight",
    experts=3000,
    actions=2,
    p_min=0.02,
    stop_probability=0.0,
    horizon=200,
    prefix_cap=100,
    iterations=4,
    theta=229.8167,
    threshold=573.1553,
    threshold_epsilon=0.0553,
    query_epsilon=0.0445,
    pool_size=8,
)
STOPPING: Final = replace(FLOOR, p_min=0.0, stop_probability=0.1)
PAPER: Final = replace(FLOOR, mode="paper", pool_size=0)
TRAINING: Final = TrainingEvent(sampling_rate=0.04, noise_multiplier=2.0, steps=100)


def pool(number: int) -> str:
    return f"{number:032x}"


def charge(event: Event, number: int = 0, **facts: Json) -> dict[str, Json]:
    """The entry of a charge; a release names the pool of that number."""
    named = {"pool": pool(number)} if isinstance(event, ReleaseEvent) else {}
    return {
        "entry": "charge",
        "event": event_to_json(event),
        "run": f"fit-{number:016x}",
        "facts": {**named, **facts},
        "at": AT,
    }


def mark(text: str) -> dict[str, Json]:
    return {"entry": "mark", "text": text, "at": AT}


def ledger_of(
    *entries: Mapping[str, Json],
    kind: Kind = "production",
    epsilon: float | None = 50.0,
    delta: float | None = DELTA,
    identity: str = "ab" * 16,
    torn: bytes = b"",
) -> bytes:
    """A ledger's file with these entries, and perhaps the rest of a line that was cut off."""
    header: dict[str, Json] = {
        "entry": "header",
        "format": FORMAT,
        "kind": kind,
        "identity": identity,
        "relation": RELATION,
        "epsilon": epsilon,
        "delta": delta,
        "at": AT,
    }
    content = b""
    for entry in chain([header], entries):
        content += line_of(entry, read_lines(content, "").head if content else START)
    return content + torn


def answered(name: Json, *assumptions: Json) -> dict[str, Json]:
    """The fact of a charge that names who answered for these."""
    return {"accepted_by": {"name": name, "assumptions": list(assumptions)}}


def record_in(content: bytes) -> LedgerRecord:
    return record_of(content, SOMEWHERE)


def certificate_in(content: bytes, delta: float | None = None) -> Certificate:
    return certificate(record_in(content), delta=delta)


def research(*entries: Mapping[str, Json], **header: Any) -> bytes:
    return ledger_of(*entries, **{"kind": "research", "epsilon": None, "delta": None, **header})


def split(share: float = 0.15, key: str = "cd" * 32) -> dict[str, Json]:
    return {"entry": "split", "judges": share, "key": key, "at": AT}


PARTS: Final[Sequence[Mapping[str, Json]]] = (
    charge(FLOOR, 1, **ACCEPTED, training_minimum=1),
    split(),
    charge(replace(TRAINING, part="training"), 1, **ACCEPTED),
    charge(replace(TRAINING, part="judging", steps=1, sampling_rate=1.0), 1, **ACCEPTED),
)
BOTH: Final[Sequence[Mapping[str, Json]]] = (
    charge(FLOOR, 1, **ACCEPTED, training_minimum=1),
    charge(TRAINING, 1, **ACCEPTED),
)
EXAMPLES: Final = {
    "nothing charged": ledger_of(),
    "a floor": ledger_of(charge(FLOOR, 1, **ACCEPTED)),
    "random stopping": ledger_of(charge(STOPPING, 1)),
    "training only": ledger_of(charge(TRAINING, 1, whole_log=pool(1), **ACCEPTED)),
    "both": ledger_of(*BOTH),
    "two parts": ledger_of(*PARTS),
    "answered for": ledger_of(
        charge(FLOOR, 1, **ACCEPTED, **answered("Ada", *ASSUMPTIONS), training_minimum=1),
        charge(TRAINING, 1, **ACCEPTED, **answered("Bo <b>", "one-expert-each")),
    ),
    "seeded": ledger_of(*BOTH, mark("reproducible noise"), mark("reproducible logs")),
    "mode paper": research(charge(PAPER, 1), charge(TRAINING, 1, **PUBLISHED)),
    "mode paper, unfinished": research(charge(PAPER, 1), charge(TRAINING, 1), delta=DELTA),
    "a pool used twice": research(charge(FLOOR, 1), charge(FLOOR, 1), delta=DELTA, epsilon=1.0),
    "a pool trained on": research(
        charge(FLOOR, 1), charge(TRAINING, 2, whole_log=pool(1)), delta=DELTA
    ),
    "research": research(charge(FLOOR, 1), charge(FLOOR, 2)),
    "torn": ledger_of(*BOTH, torn=b'{"entry":{"ent'),
    "torn research": research(charge(TRAINING), delta=DELTA, torn=b"rubbish\n"),
}
"""Ledgers of every kind, by what is special about them. State ε at `DELTA`."""
