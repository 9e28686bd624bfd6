"""Which ledger a log and its experts belong to: what they remember of the one that was charged.

A ledger refuses by itself to release twice from one log, or to release from and train on the same
trajectories, and adds up what all of it costs. What it cannot see is another ledger: one that a run
makes of its own, one for a second log of the same experts, one restored from an older copy. So
every log remembers, by its identity, beside its file (`FILE.released`, `FILE.trained`) and in the
user's state folders, which ledger was charged for it; of the experts who acted the state folders
remember it. Another ledger is refused, unless its user says that it is for other experts.

What is remembered is written after the charge and before the data is touched. Who dies between the
two has touched nothing, and writes it down when the run goes on.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from quorum_rl.budget import (
    Kind,
    Ledger,
    LedgerRecord,
    Witness,
    held,
    in_state,
    read_ledger,
    read_witness,
    write_witness,
)
from quorum_rl.errors import QuorumError
from quorum_rl.logs import Demonstrations
from quorum_rl.privacy import Event, ReleaseEvent

OTHER_EXPERTS: Final = "other-experts"
RELEASED: Final = ".released"
TRAINED: Final = ".trained"
LOGS: Final = "logs"
EXPERTS: Final = "experts"


@dataclass(frozen=True)
class _Place:
    """A file that remembers what a log, or its experts (no `use`), belong to.

    It is `beside` the log's file, or in a state folder.
    """

    path: Path
    of: str
    use: str | None
    beside: bool = False


@dataclass(frozen=True)
class _Found:
    """What a place remembers: a ledger, and whose it is."""

    place: _Place
    witness: Witness


def charge_log(
    ledger: Ledger,
    event: Event,
    log: Demonstrations,
    *,
    run: str,
    facts: Mapping[str, Any],
    marks: Sequence[str] = (),
) -> None:
    """Charge a ledger for an event on a log, and have the log and its experts remember it.

    `facts` and `marks` are those of `Ledger.charge`.

    Guarantee: only after this returns may the data be touched. For a production ledger, no other
    one that is remembered was charged for this log or these experts, or the certificate says that
    the user takes them for others.

    Raises:
        QuorumError: if log or experts belong to another ledger, or to a newer copy of this one,
            what was done with the log under another ledger rules the event out, or the ledger
            refuses. Research ledgers refuse for the last reason only.
    """
    accepted, kind = facts.get("accepted", ()), ledger.record.kind
    with _held(log, kind):
        production = kind == "production"
        if production and isinstance(event, ReleaseEvent) and not _can_remember(log):
            raise QuorumError(
                f"nothing can be written beside {_named(log)} nor in a state folder, so nobody "
                "would know of this release: copy the file to where you can write."
            )
        said = check_belongs(log, ledger.record, ledger.path, accepted, [(event, facts)])
        ledger.charge(event, run=run, facts=facts, marks=[*marks, *said])
        _remember(log, ledger)


def belong_elsewhere(log: Demonstrations, ledger: Witness, accepted: Sequence[str]) -> None:
    """Have a log and its experts remember the ledger that is charged for them somewhere else.

    For whoever has a log and not the ledger. `ledger` is what the ledger's own place says of it.

    Raises:
        QuorumError: if they belong to another ledger, or to a newer copy of this one.
    """
    with _held(log, ledger.kind):
        known = list(_remembered(log))
        others = [found for found in known if found.witness.ledger != ledger.ledger]
        own = [found.witness.lines for found in known if found not in others]
        if ledger.kind == "production" and max(own, default=0) > ledger.lines:
            raise QuorumError(
                f"{_named(log)} remembers {max(own)} lines of the ledger {ledger.ledger}, which "
                f"has {ledger.lines} now: it is an older copy; bring back the one that was charged "
                "last."
            )
        binding = [found for found in others if found.witness.kind == "production"]
        if ledger.kind == "production" and binding and OTHER_EXPERTS not in accepted:
            raise QuorumError(
                f"{_belongs(log, binding[0])}, and the coordinator has charged {ledger.ledger}: it "
                f"charges that one (--ledger); or, if these are other experts, accept "
                f"'{OTHER_EXPERTS}' here. No sum was sent."
            )
        if any(found.place.use == RELEASED for found in others):
            raise QuorumError(
                f"prefixes of {_named(log)} were released, and a training that reads all of their "
                "trajectories is not covered beside that: collect new demonstrations."
            )
        for place in _places(log):
            if place.use != RELEASED:
                _tell(place, replace(ledger, of=place.of))


def recall(ledger: Ledger, log: Demonstrations, accepted: Sequence[str]) -> None:
    """Have a log remember what this ledger was charged for, whoever died before it could.

    Raises:
        QuorumError: as `charge_log`, if they belong to another ledger.
    """
    with _held(log, ledger.record.kind):
        said = check_belongs(log, ledger.record, ledger.path, accepted)
        if _charged(ledger.record, log, None):
            for text in said:
                ledger.mark(text)
            _remember(log, ledger)


def check_belongs(
    log: Demonstrations,
    record: LedgerRecord | None,
    path: Path,
    accepted: Sequence[str],
    charges: Sequence[tuple[Event, Mapping[str, Any]]] = (),
) -> tuple[str, ...]:
    """Refuse a ledger that log or experts do not belong to; what a certificate must say if not.

    `record` is None for a ledger that is not made yet. `charges` are events and their facts, for
    which the log must be fit.

    Raises:
        QuorumError: as `charge_log`.
    """
    if record is not None and record.kind == "research":
        return ()
    others = []
    for found in _remembered(log):
        if record is None or found.witness.ledger != record.identity:
            others.append(found)
        else:
            found.witness.check(record, path)
    binding = [found for found in others if found.witness.kind == "production"]
    if binding and OTHER_EXPERTS not in accepted:
        raise QuorumError(_refusal(log, binding[0]))
    for event, facts in charges:
        _check_fit(log, event, facts, others)
    identities = dict.fromkeys(found.witness.ledger for found in binding)
    return tuple(
        "the owner says that these are other experts than those of the ledger "
        f"{identity}: what that was charged for is not counted here"
        for identity in identities
    )


def _check_fit(
    log: Demonstrations,
    event: Event,
    facts: Mapping[str, Any],
    others: Sequence[_Found],
) -> None:
    """Refuse what other ledgers did with these trajectories rules out, whoever they belong to."""
    uses = {found.place.use: _where(found.witness) for found in others}
    if RELEASED in uses and isinstance(event, ReleaseEvent):
        raise QuorumError(
            f"a release from {_named(log)} has begun already, under {uses[RELEASED]}, and stage 1 "
            "runs once: collect new demonstrations, or go on with the run and the ledger that "
            "began it."
        )
    if TRAINED in uses and isinstance(event, ReleaseEvent):
        raise QuorumError(
            f"a training under another ledger, {uses[TRAINED]}, has read all trajectories of "
            f"{_named(log)}, so none is fresh any more: collect new demonstrations."
        )
    if RELEASED in uses and "whole_log" in facts:
        raise QuorumError(
            f"prefixes of {_named(log)} were released under another ledger, {uses[RELEASED]}, and "
            "a training that reads all of their trajectories is not covered beside that: name that "
            "ledger and train on what the release left."
        )


def _held(log: Demonstrations, kind: Kind) -> AbstractContextManager[None]:
    """Of two who begin at once, one waits, and then sees the other."""
    if kind == "research":
        return nullcontext()
    return held(LOGS, *([] if log.source is None else [log.source]))


def _remembered(log: Demonstrations) -> Iterator[_Found]:
    for place in _places(log):
        witness = read_witness(place.path, place.of)
        if witness is not None:
            yield _Found(place, witness)


def _places(log: Demonstrations) -> Iterator[_Place]:
    declared = log.declared
    for use in (RELEASED, TRAINED):
        if log.source is not None:
            path = log.source.with_name(log.source.name + use)
            yield _Place(path, declared.identity, use, beside=True)
        for path in in_state(LOGS, declared.identity, use):
            yield _Place(path, declared.identity, use)
    if declared.experts_identity is not None:
        for path in in_state(EXPERTS, declared.experts_identity):
            yield _Place(path, declared.experts_identity, None)


def _can_remember(log: Demonstrations) -> bool:
    """Whether there will be a trace of a release; for logs without a file nobody asks for one."""
    places = [place.path.parent for place in _places(log) if place.use == RELEASED]
    return log.source is None or any(os.access(folder, os.W_OK) for folder in places)


def _charged(record: LedgerRecord, log: Demonstrations, use: str | None) -> bool:
    """Whether the ledger was charged for using the log so; for its experts, for any use of it."""
    identity = log.declared.identity
    released, trained = record.used_pool(identity) is not None, identity in record.whole_logs
    return {RELEASED: released, TRAINED: trained, None: released or trained}[use]


def _remember(log: Demonstrations, ledger: Ledger) -> None:
    """Write down what the ledger was charged for, where nobody remembers another one.

    A research ledger is remembered beside the log only, and where no ledger is yet.
    """
    record = ledger.record
    for place in _places(log):
        if _charged(record, log, place.use):
            _tell(place, Witness.of_ledger(record, ledger.path, place.of))


def _tell(place: _Place, seen: Witness) -> None:
    found = read_witness(place.path, place.of)
    if seen.kind == "research" and not (found is None and place.beside):
        return
    if found is None or found.kind == "research" or found.ledger == seen.ledger:
        write_witness(place.path, seen)


def _belongs(log: Demonstrations, found: _Found) -> str:
    """What belongs to another ledger, and to which."""
    what, belong = f"the experts of {_named(log)}", "belong"
    if found.place.use is not None:
        what, belong = _named(log), "belongs" if log.source is not None else "belong"
    return f"{what} {belong} to {_where(found.witness)}"


def _refusal(log: Demonstrations, found: _Found) -> str:
    """That something belongs to another ledger, and what to do."""
    path, gone = found.witness.path, ""
    fix = "name it with --ledger"
    if path is not None:
        fix = f"charge this to it (--ledger {path})"
        if not _is_there(Path(path), found.witness.ledger):
            gone = ", which is not there any more"
            fix = "bring it back and name it with --ledger, for nothing else says what was spent"
    return (
        f"{_belongs(log, found)}{gone}, and another one would not count what "
        f"that was charged: {fix}; or, if these are other experts, accept '{OTHER_EXPERTS}'. "
        "Nothing was charged."
    )


def _is_there(path: Path, identity: str) -> bool:
    try:
        return read_ledger(path).identity == identity
    except QuorumError:
        return False


def _where(witness: Witness) -> str:
    name = witness.ledger if witness.path is None else repr(witness.path)
    return f"the ledger {name}"


def _named(log: Demonstrations) -> str:
    return "these demonstrations" if log.source is None else repr(str(log.source))
