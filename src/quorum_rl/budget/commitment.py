"""What fixes a run: hashes of its secrets in each charge, and of its data in its private state."""

import hashlib
from collections.abc import Mapping
from typing import Final

from quorum_rl.budget.record import Json, LedgerRecord, canonical
from quorum_rl.errors import QuorumError

TAG: Final = b"quorum_rl commitment 1\n"


def commitments(secrets: Mapping[str, Json], configuration: Mapping[str, Json]) -> dict[str, str]:
    """Facts for every charge of a run: the hash of its secrets, and that of what it does with them.

    Guarantee: with 256 random bits among the secrets neither tells anything of them, not even to
    whoever can try all keys of 64 bits. Secrets that follow from a seed are as hard to guess as the
    seed: whoever guesses it can check that here, and on the policy too. Such runs are marked.
    """
    both = {"secrets": secrets, "configuration": configuration}
    return {"keys": _hash({"secrets": secrets}), "configuration": _hash(both)}


def check_committed(
    record: LedgerRecord, run: str, committed: Mapping[str, str], *, reproducible: bool
) -> None:
    """Refuse a run that would make two results of one charge, or use one noise for two charges.

    `reproducible` keys are those of every run with that seed.

    Raises:
        QuorumError: if the run's keys or its configuration are not those that it was charged with.
    """
    for charge in record.charges:
        held = {name: charge.facts.get(name) for name in committed}
        if charge.run == run and held != committed:
            raise QuorumError(
                f"run {run!r} was charged with other keys or another configuration than it has "
                "now, and would make a second result of one charge: bring its private folder and "
                "config.json back, or start anew in another folder; nothing was charged."
            )
        again = charge.facts.get("keys") == committed["keys"]
        if charge.run != run and again and not reproducible:
            raise QuorumError(
                f"the keys of this run were charged as run {charge.run!r}, and one noise hides one "
                "result: bring its private/name back, or start anew in another folder; nothing was "
                "charged."
            )


def check_contents(record: LedgerRecord, run: str, before: str | None, now: str) -> None:
    """Refuse a run that has paid and would read other data than before, under the same noise.

    `before` and `now` are salted digests of the data, which the run keeps to itself: no ledger
    holds one, so nothing that is published depends on the data by it.

    Raises:
        QuorumError: if they differ.
    """
    if before != now and any(charge.run == run for charge in record.charges):
        raise QuorumError(
            f"run {run!r} was charged for data with other contents than it is given now, and the "
            "difference of two results with one noise tells what that hides: bring those files "
            "back, or start anew in another folder; nothing was charged."
        )


def _hash(facts: Mapping[str, Json]) -> str:
    return hashlib.sha256(TAG + canonical(facts)).hexdigest()
