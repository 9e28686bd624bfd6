"""What a ledger's file says: its budget and its charges, in lines that vouch for one another.

Each line is `{"entry": …, "hash": …}`, the hash taken over the previous line's hash and this entry.
Changing, removing or swapping lines inside the file breaks the chain. Cutting whole lines off its
end does not: a certificate therefore names the hash of the last line it was made from.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

from quorum_rl.errors import FRACTION, POSITIVE, QuorumError, Rule
from quorum_rl.files import plain_bytes
from quorum_rl.json_files import bounded_int
from quorum_rl.privacy import EVERYBODY, Event, ReleaseEvent, event_from_json

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
Kind = Literal["production", "research"]

FORMAT: Final = 1
HASH: Final = re.compile(r"[0-9a-f]{64}")
START: Final = "0" * 64  # stands for the hash before the first line
RELATION: Final = (
    "two sets of experts that differ by one expert, added or removed, and both have at least the "
    "declared number of experts"
)


@dataclass(frozen=True)
class Charge:
    """One event that was paid for, before its data was touched."""

    event: Event
    run: str
    facts: Mapping[str, Json]
    at: str

    @property
    def date(self) -> str:
        """When it was charged; earlier versions wrote down the time of day too (`at`)."""
        return self.at.partition("T")[0]

    @property
    def pool(self) -> str | None:
        """The release pool that this charge used up."""
        return str(self.facts["pool"]) if isinstance(self.event, ReleaseEvent) else None


@dataclass(frozen=True)
class Mark:
    """Something every certificate has to mention."""

    text: str
    at: str


@dataclass(frozen=True)
class Split:
    """How the experts are told apart, once for all events of a ledger.

    Each is in the judging part with probability `judges`, else in the training part. `key` is the
    hash that commits to the secret key by which the coins are thrown (`split.py`).
    """

    judges: float
    key: str
    at: str


@dataclass(frozen=True, kw_only=True)
class LedgerRecord:
    """Everything that a ledger's file says.

    `epsilon` and `delta` are the budget; a research ledger may have none. `torn` says that the
    file ends in a line that cannot be read: what it charged is unknown. `hashes` are `START` and
    those of its lines.
    """

    kind: Kind
    identity: str
    relation: str
    epsilon: float | None
    delta: float | None
    charges: tuple[Charge, ...]
    marks: tuple[Mark, ...]
    torn: bool
    hashes: tuple[str, ...]
    split: Split | None = None

    @property
    def head(self) -> str:
        """The hash of the last line, which stands for all of them."""
        return self.hashes[-1]

    @property
    def events(self) -> tuple[Event, ...]:
        return tuple(charge.event for charge in self.charges)

    @property
    def is_parted(self) -> bool:
        """Whether anything was charged to one part of the experts alone."""
        return any(event.part != EVERYBODY for event in self.events)

    @property
    def pools(self) -> tuple[str, ...]:
        """The release pools that were used up, once for each charge."""
        return tuple(charge.pool for charge in self.charges if charge.pool is not None)

    @property
    def whole_logs(self) -> frozenset[str]:
        """The logs of which a training read every trajectory."""
        logs = (charge.facts.get("whole_log") for charge in self.charges)
        return frozenset(log for log in logs if isinstance(log, str))

    def used_pool(self, pool: str) -> Charge | None:
        """The charge that used this release pool up first, if any did."""
        return next((charge for charge in self.charges if charge.pool == pool), None)


def read_ledger(path: Path | str) -> LedgerRecord:
    """The record of a ledger, read without keeping writers out.

    While somebody is writing it may look torn; it never looks cheaper than it is.

    Raises:
        QuorumError: if there is no ledger, or its file was damaged or changed.
    """
    path = Path(path)
    try:
        return record_of(plain_bytes(path), path)
    except FileNotFoundError as error:
        raise no_ledger(path) from error
    except OSError as error:
        raise QuorumError(f"the ledger {str(path)!r} cannot be read: {error.strerror}.") from error


def no_ledger(path: Path) -> QuorumError:
    return QuorumError(
        f"there is no ledger at {str(path)!r}: create it first ('quorum ledger create')."
    )


def record_of(content: bytes, path: Path) -> LedgerRecord:
    """The record that a ledger's file holds.

    Raises:
        QuorumError: if it is no ledger of this version, or was damaged or changed.
    """
    lines = read_lines(content, f"the ledger {str(path)!r}")
    if not lines.entries or lines.entries[0].get("entry") != "header":
        raise QuorumError(f"{str(path)!r} is not a ledger: it has no header.")
    if lines.entries[0].get("format") != FORMAT:
        raise QuorumError(
            f"the ledger {str(path)!r} has format {lines.entries[0].get('format')}, this version "
            f"reads {FORMAT}: update it."
        )
    try:
        return _record(lines, path)
    except (KeyError, TypeError, AttributeError, ArithmeticError) as error:
        reason = f"it lacks {error}" if isinstance(error, KeyError) else error
        raise QuorumError(
            f"the ledger {str(path)!r} has a line that Quorum did not write ({reason}): bring the "
            "file back as it was last written."
        ) from error


def _record(lines: "Lines", path: Path) -> LedgerRecord:
    """The record of these lines, every fact of which has the type that it is written with.

    Raises:
        KeyError, TypeError: if one is missing or of another type.
        QuorumError: if one is of a kind that this version does not know.
    """
    header, *entries = lines.entries
    if header["relation"] != RELATION or header["kind"] not in get_args(Kind):
        raise QuorumError(
            f"the ledger {str(path)!r} is of a kind, or promises something, that this version does "
            "not account for: update it."
        )
    charges: list[Charge] = []
    marks: list[Mark] = []
    split: Split | None = None
    for entry in entries:
        match entry.get("entry"):
            case "charge":
                charges.append(_charge(entry))
                if charges[-1].event.part != EVERYBODY and split is None:
                    raise TypeError("a part of the experts is charged before they are split")
            case "mark":
                marks.append(Mark(_text(entry, "text"), _text(entry, "at")))
            case "split" if split is None:
                split = _split(entry)
            case "split":
                raise TypeError("the experts are split a second time")
            case other:
                raise QuorumError(
                    f"the ledger {str(path)!r} has an entry {other!r} that this version does not "
                    "know: update it."
                )
    optional = header["kind"] == "research"
    return LedgerRecord(
        kind=header["kind"],
        identity=_text(header, "identity"),
        relation=header["relation"],
        epsilon=_budget(header, "epsilon", POSITIVE, optional=optional),
        delta=_budget(header, "delta", FRACTION, optional=optional),
        charges=tuple(charges),
        marks=tuple(marks),
        torn=lines.torn,
        hashes=lines.hashes,
        split=split,
    )


def _split(entry: Mapping[str, Any]) -> Split:
    if not FRACTION.holds(entry["judges"]):
        raise TypeError(f"its share of judges is not {FRACTION.words}")
    if HASH.fullmatch(_text(entry, "key")) is None:
        raise TypeError("its key is no hash")
    return Split(float(entry["judges"]), entry["key"], _text(entry, "at"))


def _charge(entry: dict[str, Any]) -> Charge:
    facts = entry["facts"]
    if not isinstance(facts, dict):
        raise TypeError("the facts of a charge are no object")
    charge = Charge(event_from_json(entry["event"]), _text(entry, "run"), facts, _text(entry, "at"))
    if isinstance(charge.event, ReleaseEvent):
        _text(facts, "pool")
    return charge


def _text(entry: Mapping[str, Any], name: str) -> str:
    if not isinstance(entry[name], str):
        raise TypeError(f"its {name} is no text")
    return str(entry[name])


def _budget(header: Mapping[str, Any], name: str, rule: Rule, *, optional: bool) -> float | None:
    value: float | None = header[name]
    if not (rule.holds(value) or (value is None and optional)):
        raise TypeError(f"its {name} is not {rule.words}")
    return value


@dataclass(frozen=True)
class Lines:
    """The entries of a file, what `START` and they are hashed to, and whether a torn line follows
    them."""

    entries: tuple[dict[str, Any], ...]
    hashes: tuple[str, ...]
    torn: bool

    @property
    def head(self) -> str:
        return self.hashes[-1]


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


def hash_of(entry: Mapping[str, Json], previous: str) -> str:
    """The hash that `line_of` gives the entry."""
    return _hash(previous, canonical(entry))


def read_lines(content: bytes, name: str) -> Lines:
    """The entries in `content`, each checked against the chain.

    A last line that is incomplete or unreadable is what a crash leaves behind: it is reported as
    torn. One that reads well and is not the line that was written is none.

    Raises:
        QuorumError: if any other line is damaged or does not follow from the one before.
    """
    *complete, rest = content.split(b"\n")
    entries: list[dict[str, Any]] = []
    hashes = [START]
    for number, raw in enumerate(complete, start=1):
        entry = _entry_of(raw, hashes[-1])
        if entry is None:
            last = bool(entries) and number == len(complete) and not rest
            if last and _parts(raw) is None:
                return Lines(tuple(entries), tuple(hashes), torn=True)
            raise QuorumError(
                f"line {number} of {name} {_fault(raw, complete)}: bring the file back as it was "
                "last written, or count its whole budget as spent."
            )
        entries.append(entry)
        hashes.append(hash_of(entry, hashes[-1]))
    return Lines(tuple(entries), tuple(hashes), torn=bool(rest))


def _entry_of(raw: bytes, previous: str) -> dict[str, Any] | None:
    """The entry of a line, if it is exactly the line that follows `previous`."""
    parts = _parts(raw)
    return parts[0] if parts is not None and line_of(parts[0], previous) == raw + b"\n" else None


def _parts(raw: bytes) -> tuple[dict[str, Any], str] | None:
    """The entry and the hash of a line, right or wrong; None if it cannot be read as one."""
    try:
        line = json.loads(raw, parse_int=bounded_int)
        entry, own = line["entry"], line["hash"]
        canonical(entry)  # no NaN
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return (entry, own) if isinstance(own, str) else None


def _fault(raw: bytes, lines: Sequence[bytes]) -> str:
    """What was done to a line that does not follow from the one before, one of these `lines`."""
    parts = _parts(raw)
    if parts is None:
        return "is damaged and cannot be read"
    entry, _ = parts
    read = [_parts(line) for line in lines]
    written = {other[1]: number for number, other in enumerate(read, start=1) if other}
    for before, number in ((START, 0), *written.items()):
        if line_of(entry, before) == raw + b"\n":
            where = f"follows line {number}" if number else "is the first of a ledger"
            return f"is out of its place ({where}), so lines were moved, copied or removed"
    after = entry.get("after")
    if isinstance(after, str) and line_of(entry, after) == raw + b"\n":
        return (
            "is whole and follows a line that is not here, so the line before was removed or "
            "written anew, or this one is of another ledger's chain"
        )
    known = after or entry.get("entry") == "header"
    return "was edited" if known else "was edited, or the line before it was removed"


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
