"""Stage 1 of a run: a release of its own, or one that was made before, by itself."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quorum_rl.budget import Budget, Ledger
from quorum_rl.errors import QuorumError
from quorum_rl.experts import LoggedExperts
from quorum_rl.logs import Demonstrations, split_release_pool
from quorum_rl.pipeline.context import RunContext
from quorum_rl.privacy import ReleaseEvent, event_to_json
from quorum_rl.release import (
    event_of,
    read_released,
    read_released_with_facts,
    release,
    save_released,
)
from quorum_rl.types import Released


def released_in_run(
    run: RunContext,
    demonstrations: Demonstrations,
    experts: LoggedExperts | None,
    ledger: Ledger,
) -> tuple[Released | None, Demonstrations]:
    """What the run's release gives, or gave before it was interrupted, and what it leaves."""
    if run.plan.release is None or experts is None:
        return None, demonstrations
    folder, event = run.folder, run.plan.release.event
    if not (folder.remaining.exists() and folder.released.exists()):
        run.check_and_keep_experts(ledger, experts)
        outcome = release(
            experts,
            demonstrations,
            run.plan.release,
            ledger,
            run=run.name,
            accepted=run.options.accepted,
            accepted_by=run.options.accepted_by,
            entropy=run.release_entropy,
            committed=run.committed,
        )
        folder.save_remaining(outcome.remaining.episodes)
        facts = {"ledger": ledger.record.identity, **event_to_json(event)}
        save_released(outcome.released, folder.released, facts)
    released = read_released(folder.released)
    run.report(f"released: {len(released)} prefixes, {int(released.offsets[-1])} transitions")
    return released, replace(demonstrations, episodes=folder.read_remaining())


@dataclass(frozen=True, eq=False)
class PriorRelease:
    """What came out, how, and what stayed in: `remaining` is SENSITIVE."""

    event: ReleaseEvent
    released: Released
    facts: dict[str, Any]
    remaining: Demonstrations

    def keep(self, path: Path) -> None:
        """The run's folder has the released prefixes, whoever made the release."""
        if not path.exists():
            save_released(self.released, path, self.facts)


def prior_release(path: str | Path, demonstrations: Demonstrations, budget: Budget) -> PriorRelease:
    """The release in a file, if the ledger holds it as one from these demonstrations.

    Raises:
        QuorumError: if it does not, or the file does not say what release it is from.
    """
    released, facts = read_released_with_facts(path)
    event = event_of(facts)
    if event is None:
        raise QuorumError(
            f"{str(path)!r} does not say which release it is from: give a file that 'quorum "
            "release' wrote."
        )
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
