"""Several processes that work as one (`jax.distributed`), each with a part of the experts.

All of them run the same program. What is decided (keys, noise, schedules) is decided by the first:
two processes that each drew noise of their own would be two releases for the price of one. Values
travel as the bytes that they are, because JAX would cut 64 bits to 32.
"""

import io
from typing import Any, TypeVar

import jax
import numpy as np
import numpy.typing as npt
from jax.experimental import multihost_utils

TreeT = TypeVar("TreeT")
Named = dict[str, npt.NDArray[Any]]


def alone() -> bool:
    """Whether there is no other process."""
    return bool(jax.process_count() == 1)


def is_first() -> bool:
    """Whether this is the process that decides."""
    return jax.process_index() == 0


def own_share(count: int) -> slice:
    """This process's part of `count` experts, all parts being consecutive and nearly equal."""
    which, processes = jax.process_index(), jax.process_count()
    return slice(count * which // processes, count * (which + 1) // processes)


def as_the_first_has(tree: TreeT) -> TreeT:
    """`tree` as the first process gave it; the others give one of the same shapes."""
    if alone():
        return tree
    leaves, structure = jax.tree.flatten(tree)
    leaves = [np.asarray(leaf) for leaf in leaves]
    sent = _broadcast(b"".join(leaf.tobytes() for leaf in leaves))
    starts = np.cumsum([0] + [leaf.nbytes for leaf in leaves])
    found = [
        np.frombuffer(sent[start : start + leaf.nbytes], leaf.dtype).reshape(leaf.shape)
        for start, leaf in zip(starts, leaves, strict=False)
    ]
    made: TreeT = jax.tree.unflatten(structure, found)
    return made


def from_the_first(arrays: Named | None = None) -> Named:
    """Arrays that the first process gives and all get; the others need not know of them."""
    file = io.BytesIO()
    if is_first():
        np.savez(file, **(arrays or {}))  # type: ignore[arg-type]
    with np.load(io.BytesIO(_broadcast(file.getvalue())), allow_pickle=False) as found:
        return dict(found)


def joined(tree: TreeT, count: int) -> TreeT:
    """The shares of all processes in a row, `count` experts together.

    Shapes: leaves (own share, …) become (count, …).
    """
    if alone():
        return tree
    most = -(-count // jax.process_count())

    def join(leaf: Any) -> npt.NDArray[Any]:
        own = np.asarray(leaf)
        filled = np.zeros((most, *own.shape[1:]), own.dtype)
        filled[: len(own)] = own
        parts = _gathered(filled)
        cuts = [count * which // len(parts) for which in range(len(parts) + 1)]
        return np.concatenate([part[: cuts[i + 1] - cuts[i]] for i, part in enumerate(parts)])

    made: TreeT = jax.tree.map(join, tree)
    return made


def summed(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The sum of what all processes give, in whole numbers and therefore exactly."""
    return counts if alone() else _gathered(counts).sum(axis=0, dtype=np.int64)


def _gathered(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """What all processes give. Shapes: (…) to (processes, …)."""
    bytes_of_all = multihost_utils.process_allgather(np.frombuffer(array.tobytes(), np.uint8))
    found = np.frombuffer(np.ascontiguousarray(bytes_of_all).tobytes(), array.dtype)
    return found.reshape(-1, *array.shape)


def _broadcast(given: bytes) -> bytes:
    """What the first process gives."""
    length = multihost_utils.broadcast_one_to_all(np.uint32(len(given)))
    room = np.zeros(int(length), np.uint8)
    if is_first():
        room[:] = np.frombuffer(given, np.uint8)
    return bytes(np.asarray(multihost_utils.broadcast_one_to_all(room), np.uint8))
