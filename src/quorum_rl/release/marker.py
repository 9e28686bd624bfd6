"""A marker beside a file of demonstrations: which ledger their release pool was charged to.

A ledger refuses to release twice from one log by itself. The marker catches whoever opens a second
ledger for the same experts, or lets a run make one of its own.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from quorum_rl.budget import Ledger
from quorum_rl.errors import QuorumError
from quorum_rl.files import replacing

SUFFIX: Final = ".released"


@contextmanager
def marked(source: Path | None, identity: str, ledger: Ledger) -> Iterator[None]:
    """Mark the log of that identity as released under this ledger, unless the block is refused.

    For production ledgers and logs that came from a file; otherwise this does nothing. A marker of
    another log, which the file held before, is replaced.

    Raises:
        QuorumError: if it was released under another ledger.
    """
    record = ledger.record
    if source is None or record.kind == "research":
        yield
        return
    marker = source.with_name(source.name + SUFFIX)
    earlier = _read(marker)
    if earlier.get("log") == identity and earlier.get("ledger") != record.identity:
        raise QuorumError(
            f"{str(source)!r} was released from already, under another ledger (see "
            f"{marker.name!r}), and stage 1 runs once: collect new demonstrations."
        )
    with replacing(marker) as temporary:
        temporary.write_text(json.dumps({"log": identity, "ledger": record.identity}) + "\n")
    charged = len(record.charges)
    try:
        yield
    finally:
        if len(ledger.record.charges) == charged and earlier.get("log") != identity:
            marker.unlink(missing_ok=True)  # refused: nothing was touched


def _read(marker: Path) -> dict[str, str]:
    """What a marker says; nothing if there is none, or something else has its name."""
    try:
        found = json.loads(marker.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
