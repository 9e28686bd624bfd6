"""The digest that a file of demonstrations carries: whoever changes a digit in it is found out.

It is no signature: whoever can compute SHA-256 can write another file with another digest. It is
shown to nobody, being a function of private data.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from quorum_rl.errors import QuorumError
from quorum_rl.json_files import object_of
from quorum_rl.logs.assemble import CHUNK, as_actions, check_finite, check_truncations
from quorum_rl.logs.demonstrations import Demonstrations

DIGEST_KEY: Final = b"quorum_rl.digest"
FACTS: Final = "facts"  # the digest of what is said, the columns' digests included
CHANGED: Final = "was changed after Quorum wrote it: bring back the file as it was written"


def digests_of(said: Mapping[bytes, bytes], log: Demonstrations | None = None) -> bytes:
    """The digests of a log's columns and of all that its file says, as the metadata of the file."""
    columns = {} if log is None else {name: _digest(a) for name, a in _columns(log).items()}
    return json.dumps(columns | {FACTS: _facts_digest(said, columns)}).encode()


def check_said(said: Mapping[bytes, bytes], digests: bytes | None, path: Path | str) -> None:
    """Compare what a file says with the digests that it carries.

    Raises:
        QuorumError: if it carries none, or what it says is not what was written.
    """
    if digests is None:
        raise QuorumError(f"{str(path)!r} carries no digest, so it {CHANGED}.")
    found = _parsed(digests)
    if found.pop(FACTS) != _facts_digest(said, found):
        raise QuorumError(f"what {str(path)!r} declares {CHANGED}.")


def salted_digest(log: Demonstrations, salt: Sequence[int], beside: str = "") -> str:
    """A hash of all that a log holds and of what is beside it, under a secret salt.

    For the private state of a run alone.
    """
    columns = {name: _digest(array) for name, array in _columns(log.compacted()).items()}
    facts = [list(salt), list(log.expert_names), columns, beside]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _parsed(digests: bytes) -> dict[str, str]:
    """The digests that a file carries, by what they are of.

    Raises:
        QuorumError: if it carries something else under that name.
    """
    try:
        found = object_of(digests)
    except (ValueError, RecursionError):
        found = {}
    if not all(isinstance(digest, str) for digest in found.values()) or FACTS not in found:
        raise QuorumError(f"its digest {CHANGED}.")
    return found


def check_columns(log: Demonstrations, digests: bytes, *, values: bool) -> None:
    """Compare a log's columns with their digests: those of its episodes and, if asked, of `values`.

    The latter is one pass over the file, in which what experts saw and did must be what an import
    would take, too.

    Raises:
        QuorumError: naming the first column that is not as it was written.
    """
    given = log.declared
    where, columns = log.episodes, log.columns
    check_truncations(given, where.length, where.terminated, where.truncated, "episode {}".format)
    expected = _parsed(digests)
    for name, array in _columns(log).items():
        if name in columns._fields and not values:
            continue
        if expected.get(name) != _digest(array):
            raise QuorumError(f"its column {name!r} {CHANGED}.")
    if values:
        check_finite(columns.observations, "the observation", "state {}".format)
        check_finite(columns.rewards, "the reward", "step {}".format)
        as_actions(columns.actions, given, "step {}".format)


def _columns(log: Demonstrations) -> dict[str, npt.NDArray[Any]]:
    where = log.episodes
    return {
        "expert": where.expert.astype(np.int64),
        "length": where.length.astype(np.int64),
        "terminated": where.terminated,
        "truncated": where.truncated,
        **log.columns._asdict(),
    }


def _digest(array: npt.NDArray[Any]) -> str:
    digest = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
    for start in range(0, len(array), CHUNK):
        digest.update(np.ascontiguousarray(array[start : start + CHUNK]))
    return digest.hexdigest()


def _facts_digest(said: Mapping[bytes, bytes], columns: Mapping[str, str]) -> str:
    texts = {name.decode(): text.hex() for name, text in said.items()}
    return hashlib.sha256(json.dumps([texts, dict(columns)], sort_keys=True).encode()).hexdigest()
