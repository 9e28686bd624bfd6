"""The ledger: every look at private data is written here first, or does not happen.

One ledger belongs to one set of experts, whatever logs of theirs come later, under a random
identity that says nothing about the data.
"""

import fcntl
import math
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from quorum_rl.budget.entropy import Entropy, OsEntropy
from quorum_rl.budget.record import (
    FORMAT,
    RELATION,
    START,
    Json,
    Kind,
    LedgerRecord,
    hash_of,
    line_of,
    no_ledger,
    record_of,
)
from quorum_rl.budget.split import SplitKey, kept_key, key_path, new_key
from quorum_rl.budget.witness import LEDGERS, check_witnessed, held, tell_witnesses
from quorum_rl.errors import FRACTION, POSITIVE, QuorumError, require
from quorum_rl.files import create_file, remove_unfinished
from quorum_rl.privacy import (
    EVERYBODY,
    Event,
    ReleaseEvent,
    event_to_json,
    kind_of,
    total_epsilon,
)

CANNOT_GO_ON: Final = (
    "ends in a line that was cut off, so all of its budget counts as spent: nothing more can be "
    "learned from these experts under it."
)
NO_WITNESS: Final = (
    "some of this was charged where a state folder could not be written: nothing there witnessed "
    "that the ledger is the newest copy, and the only one of these experts"
)


class Ledger:
    """An open ledger, which nobody else can write to. Made by `Ledger.open`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    @staticmethod
    def create(
        path: Path | str,
        *,
        epsilon: float | None,
        delta: float | None,
        kind: Kind = "production",
    ) -> LedgerRecord:
        """Writes a new ledger with this budget, readable by its owner only.

        It appears whole or not at all. A research ledger may have no budget.

        Raises:
            QuorumError: if there is one already, or the budget is not a pair of sensible numbers.
        """
        path = Path(path)
        _check_budget(kind, epsilon, delta)
        header: dict[str, Json] = {
            "entry": "header",
            "format": FORMAT,
            "kind": kind,
            "identity": secrets.token_hex(16),
            "relation": RELATION,
            "epsilon": epsilon,
            "delta": delta,
            "at": _today(),
        }
        line = line_of(header, START)
        exists = (
            f"there is a ledger at {str(path)!r} already: go on with it, or choose another "
            "name for the ledger of other experts."
        )
        create_file(path, line, exists)
        return record_of(line, path)

    @classmethod
    @contextmanager
    def open(cls, path: Path | str) -> Iterator["Ledger"]:
        """A ledger to write to, with everybody else kept out until the block ends.

        Raises:
            QuorumError: if there is none, somebody else has it open, its file was changed, or it is
                a production ledger and not the copy that was charged last.
        """
        path = Path(path)
        remove_unfinished(path)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise no_ledger(path) from error
        except OSError as error:
            raise QuorumError(f"{str(path)!r} cannot be opened: {error.strerror}.") from error
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise QuorumError(
                    f"{_holder(descriptor)} is using the ledger {str(path)!r}: wait until it ends."
                ) from error
            os.fsync(descriptor)  # who wrote last may have died before: what is read here stays
            ledger = cls(path, descriptor)
            # A ledger that is damaged or out of date is refused before anything else happens.
            if ledger.record.kind == "production":
                ledger._catch_up()
            yield ledger
        finally:
            os.close(descriptor)  # and with it the lock

    @property
    def path(self) -> Path:
        return self._path

    @property
    def record(self) -> LedgerRecord:
        """What the ledger says now."""
        size = os.fstat(self._descriptor).st_size
        return record_of(os.pread(self._descriptor, size, 0), self._path)

    def charge(
        self,
        event: Event,
        *,
        run: str,
        facts: Mapping[str, Json] | None = None,
        marks: Sequence[str] = (),
    ) -> None:
        """Pays for an event. Only after this returns may its data be touched.

        Guarantee: once this has returned the charge is on the disk, and whatever happens to the
        process afterwards, it counts. If it raises, nothing was written, or what was counts too.

        `facts` say what the certificate needs beyond the event: `pool`, the random identity of a
        release's trajectories; `whole_log`, that identity where a training reads all trajectories
        of it and not only those which a release leaves; `accepted`, the names of accepted
        assumptions. `marks` are what every certificate must mention from this charge on: they are
        written with it in one piece, so no charge is ever without them.

        Raises:
            QuorumError: if the budget does not suffice, or a release names no pool or one that was
                used before. Research ledgers refuse for neither reason but the missing name.
        """
        facts = dict(facts or {})
        record = self._writable_record()
        self.check_fresh(event, facts)
        if event.part != EVERYBODY and record.split is None:
            raise QuorumError(
                f"this {kind_of(event)} is on one part of the experts, and they were not split: "
                "settle the split first; nothing was charged."
            )
        if record.kind == "production":
            _check_affordable(record, [event])
        charge: dict[str, Json] = {"event": event_to_json(event), "run": run, "facts": facts}
        self._append(record, [*_marks(record, marks), {"entry": "charge", **charge}])

    def check_fresh(self, event: Event, facts: Mapping[str, Json]) -> None:
        """Refuses an event whose data earlier charges have used up; nothing is charged.

        Raises:
            QuorumError: as `charge`, which takes the same `facts`.
        """
        record = self.record
        if isinstance(event, ReleaseEvent):
            _check_pool(record, facts.get("pool"))
        elif record.kind == "production":
            _check_log(record, facts.get("whole_log"))

    def check_affordable(self, events: Sequence[Event]) -> None:
        """Refuses events that together exceed the budget; nothing is charged.

        For a caller that needs several events: once the first is charged, it cannot be taken back.

        Raises:
            QuorumError: if the budget does not suffice. Research ledgers do not refuse.
        """
        record = self._writable_record()
        if record.kind == "production" and events:
            _check_affordable(record, events)

    def split(self, share: float, entropy: Entropy | None = None) -> SplitKey:
        """Who judges, for good: settled at the first call, and the same whenever asked again.

        A new key comes from the operating system unless `entropy` is given, and is kept beside the
        ledger, which commits to it. Nothing is charged: a split by itself tells nothing.

        Raises:
            QuorumError: if the experts were split with another share, or the key is not the one
                that the ledger was given.
        """
        require("the share of judges", share, FRACTION)
        record = self._writable_record()
        key = kept_key(self._path, share)
        if record.split is None:
            key = key or new_key(self._path, share, entropy or OsEntropy())
            settled: dict[str, Json] = {"judges": share, "key": key.commitment(record.identity)}
            self._append(record, [{"entry": "split", **settled}])
            return key
        if record.split.judges != share:
            raise QuorumError(
                f"{record.split.judges:g} of these experts judge, once and for good, not "
                f"{share:g}: give that share; nothing was charged."
            )
        if key is None or key.commitment(record.identity) != record.split.key:
            found = "is missing" if key is None else "is another than the ledger was given"
            raise QuorumError(
                f"the key that says who judges {found}: bring {str(key_path(self._path))!r} back, "
                "or go on without judges; nothing was charged."
            )
        return key

    def mark(self, text: str) -> None:
        """Writes down something that every certificate must mention, once."""
        record = self._writable_record()
        if missing := _marks(record, [text]):
            self._append(record, missing)

    def _writable_record(self) -> LedgerRecord:
        record = self.record
        if record.torn:
            raise QuorumError(f"the ledger {str(self._path)!r} {CANNOT_GO_ON}")
        try:
            same = os.path.samestat(self._path.stat(), os.fstat(self._descriptor))
        except FileNotFoundError:
            same = False
        if not same:
            raise QuorumError(
                f"the ledger {str(self._path)!r} was moved or replaced while it was in use: put it "
                "back and start again."
            )
        return record

    def _append(self, record: LedgerRecord, entries: Sequence[Mapping[str, Json]]) -> None:
        """Write entries behind the record in one piece, and tell the witnesses of the ledger."""
        if record.kind == "research":
            self._write(record, entries)
            return
        with held(LEDGERS):
            check_witnessed(record, self._path)
            told = tell_witnesses(record, self._path)
            self._write(record, entries if told else [*_marks(record, [NO_WITNESS]), *entries])
            tell_witnesses(self.record, self._path)

    def _catch_up(self) -> None:
        """Tell the witnesses what they were not told because its writer died: a run that goes on
        charges nothing, and touches data."""
        with held(LEDGERS):
            record = self.record
            check_witnessed(record, self._path)
            if record.charges and not record.torn:
                tell_witnesses(record, self._path)

    def _write(self, record: LedgerRecord, entries: Sequence[Mapping[str, Json]]) -> None:
        lines, head = b"", record.head
        for entry in entries:
            # `after` tells an edited line from one whose predecessor was removed.
            whole = {**entry, "at": _today(), "after": head}
            lines += line_of(whole, head)
            head = hash_of(whole, head)
        size = os.fstat(self._descriptor).st_size
        try:
            if os.write(self._descriptor, lines) < len(lines):
                raise OSError("the disk is full")
            os.fsync(self._descriptor)
        except OSError as error:
            # The data was not touched, so the charge may be taken back. If that fails too it stays.
            os.ftruncate(self._descriptor, size)
            os.fsync(self._descriptor)
            raise QuorumError(
                f"the ledger {str(self._path)!r} cannot be written ({error}): make room and start "
                "again; nothing was charged."
            ) from error


def _marks(record: LedgerRecord, texts: Sequence[str]) -> list[dict[str, Json]]:
    """Entries for the texts that the ledger does not have yet."""
    known = {mark.text for mark in record.marks}
    return [{"entry": "mark", "text": text} for text in texts if text not in known]


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


def _check_budget(kind: Kind, epsilon: float | None, delta: float | None) -> None:
    if kind not in ("production", "research"):
        raise QuorumError(f"a ledger is production or research, not {kind!r}: choose one.")
    missing = [name for name, value in (("epsilon", epsilon), ("delta", delta)) if value is None]
    if kind == "production" and missing:
        raise QuorumError(
            f"a production ledger needs its {' and '.join(missing)}: give the budget."
        )
    if epsilon is not None:
        require("the ledger's epsilon", epsilon, POSITIVE)
    if delta is not None:
        require("the ledger's delta", delta, FRACTION)


def _check_pool(record: LedgerRecord, pool: Json) -> None:
    if not isinstance(pool, str) or not pool:
        raise QuorumError("a release must name its pool: give the identity of its demonstrations.")
    if record.kind == "production" and pool in record.whole_logs:
        raise QuorumError(
            "a training has read all trajectories of these demonstrations, so none is fresh any "
            "more and nothing can be released from them: collect new ones."
        )
    earlier = record.used_pool(pool)
    if earlier is not None and record.kind == "production":
        raise QuorumError(
            f"the release pool of these demonstrations was used on {earlier.date} by run "
            f"{earlier.run!r}, and stage 1 runs once per pool: collect new demonstrations."
        )


def _check_log(record: LedgerRecord, log: Json) -> None:
    """A training that reads a whole log must not follow a release from it (Theorem 5)."""
    if isinstance(log, str) and record.used_pool(log) is not None:
        raise QuorumError(
            "prefixes of these demonstrations were released, and a training that reads all of "
            "their trajectories is not covered any more: train on those that the release left."
        )


def _check_affordable(record: LedgerRecord, events: Sequence[Event]) -> None:
    assert record.epsilon is not None  # a production ledger has a budget
    assert record.delta is not None
    total = total_epsilon([*record.events, *events], record.delta)
    if total <= record.epsilon:  # false if it is not a number
        return
    spent = spent_epsilon(record)
    what = " and ".join(dict.fromkeys(kind_of(event) for event in events))
    if total == math.inf and spent < record.epsilon:
        raise QuorumError(
            f"this {what} would need more delta than the ledger's {record.delta:.4g} leaves, "
            "whatever epsilon: plan every event for a share of the ledger's delta; nothing was "
            "charged."
        )
    raise QuorumError(
        f"this {what} would bring the spent epsilon from {spent:.4g} to {total:.4g} at delta "
        f"{record.delta:.4g}, over the ledger's budget of {record.epsilon:.4g}: plan it for "
        f"the {max(record.epsilon - spent, 0):.4g} that is left; nothing was charged."
    )


def _holder(descriptor: int) -> str:
    """Who holds the lock on this file, as far as the system tells."""
    inode = os.fstat(descriptor).st_ino
    try:
        locks = Path("/proc/locks").read_text().splitlines()
    except OSError:
        locks = []
    for lock in locks:
        match lock.split():
            case [_, "FLOCK", _, "WRITE", process, file, *_] if file.endswith(f":{inode}"):
                return f"process {process}"
    return "another process"


def _today() -> str:
    """The date in UTC. The time of day would tell how long a stage ran, which depends on data."""
    return datetime.now(UTC).date().isoformat()
