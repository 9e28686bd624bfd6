"""Markers beside a file of demonstrations: a release used their pool, or a training read them all.

A ledger refuses by itself to release twice from one log, or to release from and train on the same
trajectories. The markers catch what it cannot see: a second ledger for the same experts, a run that
makes one of its own, a ledger restored from an older copy. Where the log has no file, this process
remembers releases.

A marker is first an intent, which names the ledger and the line that the charge will follow, then
the charge is written, then the intent loses that line and holds for good. Whoever dies in between
leaves an intent. The ledger that it names tells what came of it: the charge, or nothing, and then
nothing was touched and the intent is void. To every other ledger an intent is a marker.
"""

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from quorum_rl.budget import Ledger, LedgerRecord
from quorum_rl.errors import QuorumError
from quorum_rl.files import replacing, write_new

RELEASED: Final = ".released"
TRAINED: Final = ".trained"

_used_without_file: set[str] = set()


@contextmanager
def marked(source: Path | None, identity: str, ledger: Ledger) -> Iterator[None]:
    """Mark the log of that identity as released, unless the block is refused a charge.

    A research ledger leaves its mark too, and is refused by none. A marker of another log, which
    the file held before, is replaced.

    Raises:
        QuorumError: if the log was released from before, or read whole by a training that this
            ledger does not hold.
    """
    record = ledger.record
    _check_first(source, identity, record)
    known = _used(source, identity, RELEASED, record)
    if not known:
        _intend(source, identity, record, RELEASED)
    with _settled(source, identity, ledger, None if known else RELEASED):
        # After marking: of two who begin at once, at least one sees the other.
        _check_fresh(source, identity, record)
        yield


@contextmanager
def marked_as_trained(source: Path | None, identity: str, ledger: Ledger) -> Iterator[None]:
    """Mark the log as read whole by a training, unless the block is refused a charge.

    Where no marker can be written, none is: a release from there could not be marked either, and
    is refused.

    Raises:
        QuorumError: if prefixes of the log were released by a release that this production ledger
            does not hold: both together are covered by no certificate (Theorem 5).
    """
    record = ledger.record
    known = source is None or _used(source, identity, TRAINED, record)
    if not known:
        try:
            _intend(source, identity, record, TRAINED)
        except QuorumError:
            known = True  # or cannot be; either way there is nothing of ours to take back
    with _settled(source, identity, ledger, None if known else TRAINED):
        _check_unreleased(source, identity, record)
        yield


def check_markers(
    source: Path | None, identity: str, record: LedgerRecord, *, releasing: bool
) -> None:
    """Refuse a release from the log, or else a training that reads it all, where a marker would.

    Raises:
        QuorumError: as `marked` and `marked_as_trained`; nothing is written.
    """
    if releasing:
        _check_first(source, identity, record)
        _check_fresh(source, identity, record)
    else:
        _check_unreleased(source, identity, record)


def _check_first(source: Path | None, identity: str, record: LedgerRecord) -> None:
    # A ledger that knows of it refuses by itself, and says more.
    elsewhere = record.kind == "production" and record.used_pool(identity) is None
    if elsewhere and _used(source, identity, RELEASED, record):
        raise QuorumError(
            f"a release from {_named(source)} has begun already, and stage 1 runs once: collect "
            "new demonstrations, or go on with the run and the ledger that began it."
        )


def _check_fresh(source: Path | None, identity: str, record: LedgerRecord) -> None:
    elsewhere = record.kind == "production" and identity not in record.whole_logs
    if elsewhere and _used(source, identity, TRAINED, record):
        raise QuorumError(
            f"a training under another ledger has read all trajectories of {_named(source)}, "
            "so none is fresh any more: collect new demonstrations."
        )


def _check_unreleased(source: Path | None, identity: str, record: LedgerRecord) -> None:
    elsewhere = record.kind == "production" and record.used_pool(identity) is None
    if elsewhere and _used(source, identity, RELEASED, record):
        raise QuorumError(
            f"prefixes of {_named(source)} were released under another ledger, and a training "
            "that reads all of their trajectories is not covered beside that: name that ledger "
            "and train on what the release left."
        )


def mark_as_charged(source: Path | None, identity: str, record: LedgerRecord) -> None:
    """Have the markers of a log say what this ledger was charged for, whoever died before.

    A marker that cannot be written stays away; the ledger holds the charge.
    """
    for mark in (RELEASED, TRAINED):
        if source is None or not _charged(record, identity, mark):
            continue
        if not _holds(_beside(source, mark), identity):
            _hold(source, identity, record.identity, mark)


@contextmanager
def _settled(
    source: Path | None, identity: str, ledger: Ledger, mark: str | None
) -> Iterator[None]:
    """Our intent holds if the block charges, and is taken back if it does not."""
    before = ledger.record
    try:
        yield
    finally:
        if mark is not None:
            record = ledger.record
            if len(record.charges) > len(before.charges):
                _hold(source, identity, record.identity, mark)
            elif before.torn or not record.torn:  # nothing was touched
                _unmark(source, identity, mark)


def _named(source: Path | None) -> str:
    return "these demonstrations" if source is None else repr(str(source))


def _used(source: Path | None, identity: str, mark: str, record: LedgerRecord) -> bool:
    """Whether the log was used so; a marker that cannot be read counts, a void intent does not."""
    if source is None:
        return mark == RELEASED and identity in _used_without_file
    return _counts(source, identity, mark, record)


def _counts(source: Path, identity: str, mark: str, record: LedgerRecord) -> bool:
    try:
        found = _read(_beside(source, mark))
    except FileNotFoundError:
        return False
    if found is None:
        return True
    return found.get("log", identity) == identity and not _is_void(found, identity, mark, record)


def _is_void(found: dict[str, Any], identity: str, mark: str, record: LedgerRecord) -> bool:
    """Whether this is an intent of the ledger of which nothing came.

    The ledger must have the line that the charge was to follow: an older copy of it does not know
    what came later.
    """
    own = found.get("ledger") == record.identity and found.get("after") in record.hashes
    return own and not record.torn and not _charged(record, identity, mark)


def _charged(record: LedgerRecord, identity: str, mark: str) -> bool:
    """Whether the ledger was charged for what the marker tells."""
    if mark == TRAINED:
        return identity in record.whole_logs
    return record.used_pool(identity) is not None


def _holds(marker: Path, identity: str) -> bool:
    """Whether there is a marker of this log that holds for good, or one that cannot be read."""
    try:
        found = _read(marker)
    except FileNotFoundError:
        return False
    return found is None or (found.get("log", identity) == identity and "after" not in found)


def _read(marker: Path) -> dict[str, Any] | None:
    """What a marker says, None if it cannot be read.

    Raises:
        FileNotFoundError: if there is none.
    """
    try:
        found = json.loads(marker.read_text())
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _intend(source: Path | None, identity: str, record: LedgerRecord, mark: str) -> None:
    if source is None:
        _used_without_file.add(identity)
        return
    marker = _beside(source, mark)
    said = {"log": identity, "ledger": record.identity, "after": record.head}
    try:
        if marker.exists():
            # Locked, because two may find what does not count, and one write its own at once.
            with source.open("rb") as log:
                fcntl.flock(log, fcntl.LOCK_EX)
                if not _counts(source, identity, mark, record):
                    marker.unlink(missing_ok=True)
        write_new(marker, _line(said))
    except FileExistsError as error:
        raise QuorumError(
            f"somebody else is releasing from {str(source)!r}: wait until that ends."
        ) from error
    except OSError as error:
        raise QuorumError(f"{str(marker)!r} cannot be written: {error.strerror}.") from error


def _hold(source: Path | None, identity: str, ledger: str, mark: str) -> None:
    """Have the marker hold for good. If it cannot be written the intent stays, and counts."""
    if source is None:
        return
    try:
        with replacing(_beside(source, mark)) as temporary:
            temporary.write_bytes(_line({"log": identity, "ledger": ledger}))
    except QuorumError:
        return


def _unmark(source: Path | None, identity: str, mark: str) -> None:
    if source is None:
        _used_without_file.discard(identity)
    else:
        _beside(source, mark).unlink(missing_ok=True)


def _beside(source: Path, mark: str) -> Path:
    return source.with_name(source.name + mark)


def _line(said: dict[str, str]) -> bytes:
    return json.dumps(said).encode() + b"\n"
