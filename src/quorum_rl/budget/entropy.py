"""Where the random bits of a release come from: the operating system, a secret, or a seed.

Streams give whole bits only: nothing here is a float, so what is drawn from them can be exact.
"""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from quorum_rl.errors import at_least, require

_FIRST_BLOCK: Final = 64  # bytes: what one draw of noise usually needs
_LARGEST_BLOCK: Final = 4096


class BitStream:
    """Independent fair bits, taken in order from blocks of random bytes."""

    def __init__(self, block: Callable[[int, int], bytes]) -> None:
        """`block(number, size)` returns the `size` random bytes of the block of that number."""
        self._block = block
        self._blocks_taken = 0
        self._held = 0  # the bits not used yet, as one integer
        self._held_count = 0

    def bits(self, count: int) -> int:
        """The next `count` bits, as an integer from 0 to 2**count − 1."""
        while self._held_count < count:
            size = min(_FIRST_BLOCK << self._blocks_taken, _LARGEST_BLOCK)
            fresh = int.from_bytes(self._block(self._blocks_taken, size), "little")
            self._held |= fresh << self._held_count
            self._held_count += 8 * size
            self._blocks_taken += 1
        taken = self._held & ((1 << count) - 1)
        self._held >>= count
        self._held_count -= count
        return taken

    def below(self, bound: int) -> int:
        """A uniform integer from 0 to `bound` − 1, exactly: what is too large is drawn anew."""
        if bound < 1:
            raise ValueError(f"nothing lies below {bound}")
        if bound == 1:  # every other number that exact noise asks for
            return 0
        count = (bound - 1).bit_length()
        while (drawn := self.bits(count)) >= bound:
            pass
        return drawn


class Entropy(Protocol):
    """A source of independent streams of bits."""

    @property
    def reproducible(self) -> bool:
        """Whether the same bits can be drawn again, by anybody who knows the seed."""
        ...

    def stream(self, *path: int | str) -> BitStream:
        """The stream for one purpose, such as `("threshold noise", iteration)`."""
        ...


@dataclass(frozen=True)
class OsEntropy:
    """The operating system's generator: every stream is fresh, whatever its path."""

    @property
    def reproducible(self) -> bool:
        return False

    def stream(self, *path: int | str) -> BitStream:  # noqa: ARG002 - every path is fresh
        # A buffer of its own for each stream: bits kept between streams could be shared by a fork.
        return BitStream(lambda _number, size: os.urandom(size))


@dataclass(frozen=True)
class SeededEntropy:
    """Streams that depend on the seed and their path only, in whatever order they are asked for.

    For reproduction: what is released with it is not private against someone who knows the seed.

    Raises:
        QuorumError: if the seed is negative.
    """

    seed: int

    def __post_init__(self) -> None:
        require("the seed of the noise", self.seed, at_least(0))

    @property
    def reproducible(self) -> bool:
        return True

    def stream(self, *path: int | str) -> BitStream:
        return _hashed(["quorum", self.seed], path)


@dataclass(frozen=True)
class KeyedEntropy:
    """Streams that depend on a secret and their path only, so that what died can be done again.

    The secret is 256 bits of the operating system, as words; who keeps it must keep it as he keeps
    the data, and delete it when what was drawn from it is done.
    """

    secret: Sequence[int] = field(repr=False)

    @property
    def reproducible(self) -> bool:
        return False

    def stream(self, *path: int | str) -> BitStream:
        return _hashed(["quorum secret", *self.secret], path)


def _hashed(source: Sequence[int | str], path: Sequence[int | str]) -> BitStream:
    # JSON tells 1 from "1" and ("a", "b") from ("ab",), so no two paths share a stream.
    name = json.dumps([*source, *path]).encode()

    def block(number: int, size: int) -> bytes:
        return hashlib.shake_256(number.to_bytes(8, "little") + name).digest(size)

    return BitStream(block)


SECRET_WORDS: Final = 8


def secret_words(entropy: Entropy, *path: int | str) -> list[int]:
    """256 bits as words, for `KeyedEntropy` or the salt of a hash."""
    stream = entropy.stream(*path)
    return [stream.bits(32) for _ in range(SECRET_WORDS)]


def are_words(kept: Any, count: int = SECRET_WORDS) -> bool:
    """Whether these are so many words of a key, as a file keeps them."""
    return len(kept) == count and all(type(word) is int and 0 <= word < 2**32 for word in kept)


def jax_key_data(entropy: Entropy, *path: int | str) -> npt.NDArray[np.uint32]:
    """The words of a JAX key, for `jax.random.wrap_key_data`: all 64 bits of it are random.

    Shapes: `(2,)`.
    """
    stream = entropy.stream("JAX key", *path)
    return np.array([stream.bits(32), stream.bits(32)], dtype=np.uint32)
