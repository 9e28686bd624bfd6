"""A marker beside a file of demonstrations: that their release pool was used, and by which ledger.

A ledger refuses to release twice from one log by itself. The marker catches what it cannot see: a
second ledger for the same experts, a run that makes one of its own, a ledger restored from an older
copy. Where the log has no file, this process remembers.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from quorum_rl.budget import Ledger
from quorum_rl.errors import QuorumError
from quorum_rl.files import write_new

SUFFIX: Final = ".released"

_used_without_file: set[str] = set()


@contextmanager
def marked(source: Path | None, identity: str, ledger: Ledger) -> Iterator[None]:
    """Mark the log of that identity as released, unless the block is refused a charge.

    A research ledger leaves its mark too, and is refused by none. A marker of another log, which
    the file held before, is replaced.

    Raises:
        QuorumError: if the log was released from before.
    """
    record = ledger.record
    charged = len(record.charges)
    known = _used(source, identity)
    # A ledger that knows of it refuses by itself, and says more.
    if known and record.kind == "production" and record.used_pool(identity) is None:
        raise QuorumError(
            f"a release from {'these demonstrations' if source is None else repr(str(source))} "
            "has begun already, and stage 1 runs once: collect new demonstrations."
        )
    if not known:
        _mark(source, identity, record.identity)
    try:
        yield
    finally:
        if not known and len(ledger.record.charges) == charged:  # refused: nothing was touched
            _unmark(source, identity)


def _used(source: Path | None, identity: str) -> bool:
    """Whether the log was released from; a marker that cannot be read counts."""
    if source is None:
        return identity in _used_without_file
    marker = _beside(source)
    try:
        found = json.loads(marker.read_text())
        return not (isinstance(found, dict) and found.get("log", identity) != identity)
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True


def _mark(source: Path | None, identity: str, ledger: str) -> None:
    if source is None:
        _used_without_file.add(identity)
        return
    marker = _beside(source)
    marker.unlink(missing_ok=True)  # it is of another log
    try:
        write_new(marker, json.dumps({"log": identity, "ledger": ledger}).encode() + b"\n")
    except FileExistsError as error:
        raise QuorumError(
            f"somebody else is releasing from {str(source)!r}: wait until that ends."
        ) from error
    except OSError as error:
        raise QuorumError(f"{str(marker)!r} cannot be written: {error.strerror}.") from error


def _unmark(source: Path | None, identity: str) -> None:
    if source is None:
        _used_without_file.discard(identity)
    else:
        _beside(source).unlink(missing_ok=True)


def _beside(source: Path) -> Path:
    return source.with_name(source.name + SUFFIX)
