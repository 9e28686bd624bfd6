"""Markers beside a file of demonstrations: a release used their pool, or a training read them all.

A ledger refuses by itself to release twice from one log, or to release from and train on the same
trajectories. The markers catch what it cannot see: a second ledger for the same experts, a run that
makes one of its own, a ledger restored from an older copy. Where the log has no file, this process
remembers releases.
"""

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from quorum_rl.budget import Ledger
from quorum_rl.errors import QuorumError
from quorum_rl.files import write_new

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
    known = _used(source, identity, RELEASED)
    # A ledger that knows of it refuses by itself, and says more.
    if known and record.kind == "production" and record.used_pool(identity) is None:
        raise QuorumError(
            f"a release from {_named(source)} has begun already, and stage 1 runs once: collect "
            "new demonstrations."
        )
    if not known:
        _mark(source, identity, record.identity, RELEASED)
    with _unmarked_if_refused(source, identity, ledger, None if known else RELEASED):
        # After marking: of two who begin at once, at least one sees the other.
        held = identity in record.whole_logs
        if record.kind == "production" and not held and _used(source, identity, TRAINED):
            raise QuorumError(
                f"a training under another ledger has read all trajectories of {_named(source)}, "
                "so none is fresh any more: collect new demonstrations."
            )
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
    known = source is None or _used(source, identity, TRAINED)
    if not known:
        try:
            _mark(source, identity, record.identity, TRAINED)
        except QuorumError:
            known = True  # or cannot be; either way there is nothing of ours to take back
    with _unmarked_if_refused(source, identity, ledger, None if known else TRAINED):
        released = _used(source, identity, RELEASED)
        if record.kind == "production" and released and record.used_pool(identity) is None:
            raise QuorumError(
                f"prefixes of {_named(source)} were released under another ledger, and a training "
                "that reads all of their trajectories is not covered beside that: name that ledger "
                "and train on what the release left."
            )
        yield


@contextmanager
def _unmarked_if_refused(
    source: Path | None, identity: str, ledger: Ledger, mark: str | None
) -> Iterator[None]:
    charged = len(ledger.record.charges)
    try:
        yield
    finally:
        if mark is not None and len(ledger.record.charges) == charged:  # nothing was touched
            _unmark(source, identity, mark)


def _named(source: Path | None) -> str:
    return "these demonstrations" if source is None else repr(str(source))


def _used(source: Path | None, identity: str, mark: str) -> bool:
    """Whether the log was used so; a marker that cannot be read counts."""
    if source is None:
        return mark == RELEASED and identity in _used_without_file
    return _tells_of(_beside(source, mark), identity)


def _tells_of(marker: Path, identity: str) -> bool:
    try:
        found = json.loads(marker.read_text())
        return not (isinstance(found, dict) and found.get("log", identity) != identity)
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True


def _mark(source: Path | None, identity: str, ledger: str, mark: str) -> None:
    if source is None:
        _used_without_file.add(identity)
        return
    marker = _beside(source, mark)
    try:
        _clear_of_other_logs(marker, identity)
        write_new(marker, json.dumps({"log": identity, "ledger": ledger}).encode() + b"\n")
    except FileExistsError as error:
        raise QuorumError(
            f"somebody else is releasing from {str(source)!r}: wait until that ends."
        ) from error
    except OSError as error:
        raise QuorumError(f"{str(marker)!r} cannot be written: {error.strerror}.") from error


def _clear_of_other_logs(marker: Path, identity: str) -> None:
    """Remove a marker of a log that the file held before.

    Somebody who found no marker a moment ago may have written one of this log since. That one must
    stay, so nothing is deleted that was not looked at after it was out of everybody's reach.
    """
    aside = marker.with_name(f".{marker.name}.{secrets.token_hex(4)}")
    try:
        marker.rename(aside)
    except FileNotFoundError:
        return
    if _tells_of(aside, identity):
        aside.rename(marker)
    else:
        aside.unlink()


def _unmark(source: Path | None, identity: str, mark: str) -> None:
    if source is None:
        _used_without_file.discard(identity)
    else:
        _beside(source, mark).unlink(missing_ok=True)


def _beside(source: Path, mark: str) -> Path:
    return source.with_name(source.name + mark)
