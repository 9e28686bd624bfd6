"""What the charges of a ledger cost together."""

import math

from quorum_rl.budget.record import LedgerRecord
from quorum_rl.errors import QuorumError
from quorum_rl.privacy import total_epsilon


def spent_epsilon(record: LedgerRecord, delta: float | None = None) -> float:
    """What all charges cost together at `delta` (the ledger's own if not given), never too little.

    A torn line may have charged all that was left, so all of it counts.

    Raises:
        QuorumError: if neither the ledger nor the caller names a delta.
    """
    at = record.delta if delta is None else delta
    if at is None:
        raise QuorumError("this research ledger has no delta: say at which delta to account it.")
    total = total_epsilon(record.events, at) if record.events else 0.0
    return with_torn_line(record, total, at)


def with_torn_line(record: LedgerRecord, total: float, delta: float) -> float:
    """What counts as spent at `delta` if the charges that can be read cost `total` there."""
    if math.isnan(total):
        return math.inf
    if not record.torn:
        return total
    # The budget bounds a torn charge at the budget's own delta only; at a smaller one nothing does.
    if record.kind == "research" or record.epsilon is None or record.delta is None:
        return math.inf
    return max(total, record.epsilon) if delta >= record.delta else math.inf
