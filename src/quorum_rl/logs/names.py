"""What experts are called in logs: names of their own, in every format that logs travel in."""

import json
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from quorum_rl.errors import QuorumError

NAMES_KEY: Final = b"quorum_rl.expert_names"


def numbered(texts: Sequence[str]) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """A number for each of these, and the names of the numbers: all texts, sorted.

    Takes no more memory than the texts do, however long one of them is.
    """
    names = tuple(sorted(set(texts)))
    number = {name: position for position, name in enumerate(names)}
    return np.array([number[text] for text in texts], np.int64), names


def check_names(names: Sequence[str], experts: npt.NDArray[np.integer]) -> None:
    """Refuse names that are not one text for each expert: by them coins are thrown.

    Raises:
        QuorumError: without saying which, for a name is private.
    """
    if not all(isinstance(name, str) and _travels(name) for name in names):
        raise QuorumError("the name of an expert is no text of UTF-8 without NUL: correct it.")
    if len(set(names)) < len(names):
        raise QuorumError("two experts have the same name: give each its own.")
    if len(experts) and not 0 <= experts[0] <= experts[-1] < len(names):
        raise QuorumError("an expert has no name, and others have one: name all or nobody.")


def _travels(name: str) -> bool:
    """Whether every format can hold it."""
    try:
        return b"\0" not in name.encode()
    except UnicodeEncodeError:
        return False


def names_to_json(names: Sequence[str]) -> bytes:
    """Names as the metadata of a file."""
    return json.dumps(list(names)).encode()


def names_from_json(metadata: bytes) -> tuple[str, ...]:
    """What `names_to_json` wrote.

    Raises:
        QuorumError: if it is no list; what is in it is looked at by `check_names`.
    """
    try:
        found = json.loads(metadata)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list):
        raise QuorumError("the names of its experts are unreadable: write it again.")
    return tuple(found)
