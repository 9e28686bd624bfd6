"""What the published accounting claims for charges of mode `paper`, and why that is not valid."""

import math
from dataclasses import dataclass
from typing import Final

from quorum_rl.budget.record import Charge, LedgerRecord
from quorum_rl.privacy import ReleaseEvent

NOT_VALID: Final = (
    "is shown as published and is not valid: the coin of each training step is treated as hidden "
    "though whoever sees the iterates sees it, training reuses the trajectories that the release "
    "drew from, batches and draws are not those of the proof, constants depend on the data, and "
    "the tuning is not counted"
)


@dataclass(frozen=True)
class Published:
    """The published sum ε1 + ε2, δ1 + δ2. `complete` if no charge's claim is missing."""

    epsilon: float
    delta: float
    complete: bool
    text: str = f"this sum {NOT_VALID}"


def published_claim(record: LedgerRecord) -> Published:
    """The sum of the published claims of all charges.

    A release's follows from its constants; a training's is the fact `published` of its charge,
    `{"epsilon": …, "delta": …}`, because the rate it was published with is not the true one.
    """
    claims = [_claim_of(charge) for charge in record.charges]
    known = [claim for claim in claims if claim is not None]
    return Published(
        epsilon=math.fsum(epsilon for epsilon, _ in known),
        delta=math.fsum(delta for _, delta in known),
        complete=len(known) == len(claims),
    )


def _claim_of(charge: Charge) -> tuple[float, float] | None:
    if isinstance(charge.event, ReleaseEvent):
        return _release_claim(charge.event) if charge.event.mode == "paper" else None
    match charge.facts.get("published"):
        case {"epsilon": float() | int() as epsilon, "delta": float() | int() as delta}:
            return float(epsilon), float(delta)
    return None


def _release_claim(event: ReleaseEvent) -> tuple[float, float] | None:
    """(ε1, δ1), if it claims anything.

    From ε' = ε1/√(32 T ln(2/δ1)), δ' = δ1/(2TL) and the offset (4/ε')·ln(1/δ').
    """
    iteration_epsilon = 4 * event.query_epsilon
    log_delta = -(event.threshold - event.theta) * event.query_epsilon
    delta = 2 * event.iterations * event.horizon * math.exp(log_delta)
    if not delta < 1:
        return None
    return iteration_epsilon * math.sqrt(32 * event.iterations * math.log(2 / delta)), delta
