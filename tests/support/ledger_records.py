"""Records of ledgers that were never written."""

from dataclasses import replace
from typing import Any

from quorum_rl.budget import LedgerRecord
from quorum_rl.budget.record import RELATION, Charge
from quorum_rl.privacy.events import Event

DELTA = 3e-4


def charged(*events: Event, facts: dict[str, Any] | None = None, **changes: Any) -> LedgerRecord:
    """The record of a ledger with these events, each release from a pool of its own."""
    charges = tuple(
        Charge(event, f"run {number}", {"pool": f"pool {number}", **(facts or {})}, "2030-01-01")
        for number, event in enumerate(events)
    )
    empty = LedgerRecord(
        kind="production",
        identity="0" * 32,
        relation=RELATION,
        epsilon=100.0,
        delta=DELTA,
        charges=charges,
        marks=(),
        torn=False,
        hashes=("0" * 64,),
    )
    return replace(empty, **changes)
