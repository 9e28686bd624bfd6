"""What is known of a ledger outside its file, so that an older copy of it, or a fork, is found out.

A witness says how far a ledger had gone. Each state folder of the user holds one of every
production ledger that was charged there (`ledgers/`), and one of every log and set of experts that
such a charge was for (`logs/`, `experts/`), under names that are hashes of random identities.

A charge is in the ledger before a witness is told of it, and the witness is told before any data is
touched. So a ledger that is ahead of its witness is one whose writer died between the two, or wrote
elsewhere; it is believed. One that does not hold the line that its witness saw last is refused.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, get_args

from quorum_rl.budget.record import Kind, LedgerRecord
from quorum_rl.errors import QuorumError
from quorum_rl.files import flush_folder, replacing

STATE: Final = "QUORUM_STATE"  # names state folders other than the user's own
LEDGERS: Final = "ledgers"  # the room of a state folder for witnesses of ledgers


@dataclass(frozen=True)
class Witness:
    """How far a ledger had gone when it was charged for something: `of` is the identity of that.

    `head` is the hash of its last line then, of `lines`; None where an earlier version wrote no
    more than whose ledger it was. `path` is where the ledger lay.
    """

    of: str
    ledger: str
    kind: Kind
    head: str | None
    lines: int
    path: str | None

    @classmethod
    def of_ledger(cls, record: LedgerRecord, path: Path, of: str | None = None) -> "Witness":
        """What there is to see of a ledger now."""
        return cls(
            of or record.identity,
            record.identity,
            record.kind,
            record.head,
            len(record.hashes) - 1,
            str(path.absolute()),
        )

    def check(self, record: LedgerRecord, path: Path) -> None:
        """Refuse the ledger of this witness if it is not what the witness saw, or that gone on.

        Raises:
            QuorumError: if it was rolled back, or is one of two that went separate ways.
        """
        if self.head is None or self.head in record.hashes or record.torn:
            return
        line = f"line {self.lines}, its last" if self.lines else "the line that was its last"
        where = "" if self.path is None else f" at {self.path!r}"
        raise QuorumError(
            f"the ledger {str(path)!r} is an older copy or a fork, for it lacks {line} when it was "
            f"charged{where}: bring back the copy that was charged last, or, if it is lost, count "
            "its whole budget as spent; nothing was charged."
        )


def state_folders() -> list[Path]:
    """Where this user's witnesses are: what `QUORUM_STATE` names, else one folder of the user's.

    Raises:
        QuorumError: if one that is named is not absolute.
    """
    if named := os.environ.get(STATE):
        folders = [Path(name) for name in named.split(os.pathsep) if name]
        for folder in folders:
            if not folder.is_absolute():
                raise QuorumError(f"{STATE} names {str(folder)!r}: give an absolute path.")
        return folders
    usual = Path(os.environ.get("XDG_STATE_HOME", ""))
    if not usual.is_absolute():
        try:
            usual = Path("~/.local/state").expanduser()
        except RuntimeError:  # whoever has no home
            return []
    return [usual / "quorum"]


def in_state(room: str, identity: str, suffix: str = "") -> list[Path]:
    """The files for witnesses of something, one in each state folder."""
    name = hashlib.sha256(identity.encode()).hexdigest()[:32]
    return [folder / room / f"{name}{suffix}.json" for folder in state_folders()]


def read_witness(path: Path, of: str) -> Witness | None:
    """The witness in a file; None where there is none that can be read, or one of something else.

    Raises:
        QuorumError: if it is damaged.
    """
    try:
        content = path.read_bytes()
    except OSError:
        return None
    try:
        found = _parsed(json.loads(content), of)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise QuorumError(
            f"{str(path)!r} is damaged, and says to which ledger something belongs: bring it back "
            "as it was last written."
        ) from error
    return found if found.of == of else None


def _parsed(facts: Any, of: str) -> Witness:
    if not isinstance(facts, dict):
        raise TypeError("it is no object")
    if "of" in facts:
        found = Witness(**facts)
    else:  # by an earlier version
        log, head = facts.get("log", of), facts.get("after")
        found = Witness(log, facts["ledger"], "production", head, 0, None)
    texts = found.of, found.ledger, found.head or "", found.path or ""
    right = all(isinstance(text, str) for text in texts) and type(found.lines) is int
    if not right or found.kind not in get_args(Kind):
        raise TypeError("a fact of it has a wrong type")
    return found


def write_witness(path: Path, witness: Witness) -> bool:
    """Have a file hold this witness, and none before it; whether it can be written."""
    try:
        if read_witness(path, witness.of) == witness and os.access(path.parent, os.W_OK):
            return True
        _make(path.parent)
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(asdict(witness)) + "\n")
    except (OSError, QuorumError):
        return False
    return True


def _make(folder: Path) -> None:
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for each in missing:
        flush_folder(each.parent)


@contextmanager
def held(room: str, *others: Path) -> Iterator[None]:
    """Keep out whoever else holds this room of a state folder, or one of the other files.

    The room is made. What cannot be opened or locked is left out.
    """
    rooms = [folder / room for folder in state_folders()]
    with ExitStack() as stack:
        for path in (*rooms, *others):
            with suppress(OSError):
                if path in rooms:
                    _make(path)
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                stack.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def check_witnessed(record: LedgerRecord, path: Path) -> None:
    """Refuse a production ledger that lacks what its witnesses saw.

    Raises:
        QuorumError: naming what to bring back.
    """
    if record.kind == "research":
        return
    for file in in_state(LEDGERS, record.identity):
        witness = read_witness(file, record.identity)
        if witness is not None and witness.ledger == record.identity:
            witness.check(record, path)


def tell_witnesses(record: LedgerRecord, path: Path) -> bool:
    """Have every state folder know how far the ledger has gone; whether all do."""
    seen = Witness.of_ledger(record, path)
    told = [write_witness(file, seen) for file in in_state(LEDGERS, record.identity)]
    return bool(told) and all(told)
