"""A file of JSON lines in which every line vouches for all before it.

Each line is `{"entry": …, "hash": …}`, the hash taken over the previous line's hash and this entry.
Changing, removing or swapping lines inside the file breaks the chain. Cutting whole lines off its
end does not: a certificate therefore names the hash of the last line it was made from.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from quorum_rl.errors import QuorumError

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

START: Final = "0" * 64  # what stands for the hash before the first line


@dataclass(frozen=True)
class Lines:
    """The entries of a file in order, the hash of the last, and whether a torn line follows it."""

    entries: tuple[dict[str, Any], ...]
    head: str
    torn: bool


def line_of(entry: Mapping[str, Json], previous: str) -> bytes:
    """The entry as the line that follows the line with hash `previous`.

    Raises:
        QuorumError: if the entry is not plain finite data.
    """
    try:
        body = canonical(entry)
    except (TypeError, ValueError) as error:
        raise QuorumError(
            f"the ledger takes plain finite numbers and texts only: {error}."
        ) from error
    return canonical({"entry": entry, "hash": _hash(previous, body)}) + b"\n"


def read_lines(content: bytes, name: str) -> Lines:
    """The entries in `content`, each checked against the chain.

    A last line that is incomplete or damaged is what a crash leaves behind: it is reported as torn.

    Raises:
        QuorumError: if any other line is damaged or does not follow from the one before.
    """
    *complete, rest = content.split(b"\n")
    entries: list[dict[str, Any]] = []
    head = START
    for number, raw in enumerate(complete, start=1):
        entry = _entry_of(raw, head)
        if entry is None:
            if entries and number == len(complete) and not rest:
                return Lines(tuple(entries), head, torn=True)
            raise QuorumError(
                f"line {number} of {name} is damaged or was changed: bring the file back as it was "
                "last written, or count its whole budget as spent."
            )
        entries.append(entry)
        head = _hash(head, canonical(entry))
    return Lines(tuple(entries), head, torn=bool(rest))


def _entry_of(raw: bytes, previous: str) -> dict[str, Any] | None:
    """The entry of a line, if it is exactly the line that follows `previous`."""
    try:
        entry = json.loads(raw)["entry"]
        return entry if line_of(entry, previous) == raw + b"\n" else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def canonical(data: Mapping[str, Json]) -> bytes:
    """The one way to write a JSON object: names sorted, no spaces, ASCII.

    Raises:
        TypeError, ValueError: if it is not plain finite data.
    """
    if not isinstance(data, Mapping):
        raise TypeError(f"{data!r} is not a mapping")
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _hash(previous: str, body: bytes) -> str:
    return hashlib.sha256(previous.encode() + body).hexdigest()
