"""The one way to pay for private steps, before the first of them reads anything."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from quorum_rl.budget import Ledger
from quorum_rl.logs import Demonstrations
from quorum_rl.privacy import Event
from quorum_rl.release import accepted_assumptions, marked_as_trained


def charge_training(
    opened: Ledger,
    event: Event,
    log: Demonstrations,
    *,
    run: str,
    accepted: Sequence[str],
    whole_log: bool,
    facts: dict[str, Any] | None = None,
) -> None:
    """Charge an event of training to the ledger.

    `whole_log` says that no release has kept a pool apart: the log is then closed for releases.

    Raises:
        QuorumError: if the ledger refuses, or an assumption was not accepted.
    """
    identity = log.declared.identity
    held = accepted_assumptions(event, accepted, opened.record.kind, by_making=False)
    said: dict[str, Any] = {"accepted": list(held), **(facts or {})}
    if whole_log:
        said["whole_log"] = identity
    reading_all = marked_as_trained(log.source, identity, opened) if whole_log else nullcontext()
    with reading_all:
        opened.charge(event, run=run, facts=said)
