"""Who judges what the others taught: a coin for every expert, thrown once under a secret key."""

import hashlib
import hmac
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from quorum_rl.budget.entropy import Entropy, secret_words
from quorum_rl.errors import QuorumError
from quorum_rl.files import create_file, remove_unfinished

SUFFIX: Final = ".split-key"
BYTES: Final = 32
COIN_BITS: Final = 64
TAG: Final = b"quorum_rl split 1\n"


@dataclass(frozen=True)
class SplitKey:
    """What decides who judges: `share` of the experts, by a SECRET key.

    Guarantee: an expert's part is a function of the key and of that expert's own name, whoever else
    takes part and whatever anybody did. The key is drawn without the data.
    """

    share: float
    key: bytes = field(repr=False)

    def judges(self, names: Sequence[str]) -> npt.NDArray[np.bool_]:
        """True for who judges. SENSITIVE: it tells who takes part. Shapes: (names,)."""
        heads = math.floor(self.share * 2**COIN_BITS)
        return np.array([self._coin(name) < heads for name in names], bool)

    def _coin(self, name: str) -> int:
        digest = hmac.digest(self.key, name.encode("utf-8", "surrogatepass"), "sha256")
        return int.from_bytes(digest[: COIN_BITS // 8], "big")

    def commitment(self, ledger: str) -> str:
        """The hash that binds the ledger of this identity to the key; it tells nothing of it."""
        return hashlib.sha256(TAG + ledger.encode() + self.key).hexdigest()


def key_path(ledger: Path) -> Path:
    """Where the key of a ledger lies: beside the file itself, whatever links lead to it."""
    ledger = ledger.resolve()
    return ledger.with_name(ledger.name + SUFFIX)


def kept_key(ledger: Path, share: float) -> SplitKey | None:
    """The key beside a ledger, or None if there is none.

    Raises:
        QuorumError: if the file cannot be read, or holds no key.
    """
    path = key_path(ledger)
    remove_unfinished(path)  # whoever died while the key was written left it there too
    try:
        key = bytes.fromhex(path.read_text(encoding="ascii"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        key = b""
    if len(key) != BYTES:
        raise QuorumError(
            f"{str(path)!r} holds no key that says who judges: bring the file back as it was "
            "written; nothing was charged."
        )
    return SplitKey(share, key)


def new_key(ledger: Path, share: float, entropy: Entropy) -> SplitKey:
    """A new key, kept beside a ledger for its owner only.

    Raises:
        QuorumError: if there is one, or it cannot be written.
    """
    words = secret_words(entropy, "key of the split")
    key = b"".join(word.to_bytes(4, "big") for word in words)
    path = key_path(ledger)
    create_file(path, key.hex().encode(), f"there is a key at {str(path)!r} already.")
    return SplitKey(share, key)
