"""A release that was made before, by itself: what it gave, and what it left for training."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quorum_rl.budget import Budget
from quorum_rl.errors import QuorumError
from quorum_rl.logs import Demonstrations, split_release_pool
from quorum_rl.privacy import ReleaseEvent, event_from_json
from quorum_rl.release import read_released_with_facts
from quorum_rl.types import Released


@dataclass(frozen=True, eq=False)
class PriorRelease:
    """What came out, how, and what stayed in: `remaining` is SENSITIVE."""

    event: ReleaseEvent
    released: Released
    facts: dict[str, Any]
    remaining: Demonstrations


def prior_release(path: str | Path, demonstrations: Demonstrations, budget: Budget) -> PriorRelease:
    """The release in a file, if the ledger holds it as one from these demonstrations.

    Raises:
        QuorumError: if it does not, or the file does not say what release it is from.
    """
    released, facts = read_released_with_facts(path)
    event = _event(path, facts)
    if event.mode == "paper":
        raise QuorumError(
            f"{str(path)!r} was released in mode paper, which does not say what it left for "
            "training: run both stages with 'quorum fit --mode paper'."
        )
    record, pool = budget.record, demonstrations.declared.identity
    if facts.get("ledger", record.identity) != record.identity:
        raise QuorumError(
            f"{str(path)!r} was charged to another ledger than {str(budget.ledger)!r}: give the "
            "ledger of these experts."
        )
    paid = [charge for charge in record.charges if (charge.event, charge.pool) == (event, pool)]
    if not paid:
        raise QuorumError(
            f"the ledger {str(budget.ledger)!r} holds no release like that of {str(path)!r} from "
            "these demonstrations: give the demonstrations and the ledger of that release."
        )
    minimum = paid[0].facts.get("training_minimum", 1)
    assert isinstance(minimum, int)  # we wrote it
    split = split_release_pool(demonstrations, per_expert=event.pool_size, training_minimum=minimum)
    return PriorRelease(event, released, facts, split.training)


def _event(path: str | Path, facts: dict[str, Any]) -> ReleaseEvent:
    try:
        event = event_from_json({name: fact for name, fact in facts.items() if name != "ledger"})
    except QuorumError:
        event = None
    if not isinstance(event, ReleaseEvent):
        raise QuorumError(
            f"{str(path)!r} does not say which release it is from: give a file that 'quorum "
            "release' wrote."
        )
    return event
