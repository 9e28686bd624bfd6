"""Several processes that work as one (`jax.distributed`), each with a part of the experts.

All of them run the same program. What is decided (keys, noise, schedules) is decided by the first:
two processes that each drew noise of their own would be two releases for the price of one. Values
travel as the bytes that they are, because JAX would cut 64 bits to 32.
"""

import hashlib
import io
import os
from typing import Any, Final, TypeVar

import jax
import numpy as np
import numpy.typing as npt
from jax.experimental import multihost_utils

from quorum_rl.devices import this_machine
from quorum_rl.errors import QuorumError

# How a process is told of the others: where the first one is, how many there are, which this is.
ADDRESS: Final = "JAX_COORDINATOR_ADDRESS"
COUNT, NUMBER = "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"

TreeT = TypeVar("TreeT")
Named = dict[str, npt.NDArray[Any]]


def join() -> None:
    """Join the processes that the environment names, if it names any; call it before JAX starts.

    On clusters that JAX knows, such as Slurm's, the address is enough.

    Raises:
        QuorumError: if a variable is no number, or the processes round differently: an expert must
            be asked where it acted, or where all is done just as there.
    """
    address = os.environ.get(ADDRESS)
    if not address or jax.distributed.is_initialized():
        return
    numbers = {name: os.environ.get(name) for name in (COUNT, NUMBER)}
    for name, value in numbers.items():
        if value is not None and not value.isdigit():
            raise QuorumError(f"{name} is {value!r}: give a whole number.")
    count, number = (None if value is None else int(value) for value in numbers.values())
    jax.distributed.initialize(address, num_processes=count, process_id=number)
    if not all_say(this_machine()):
        raise QuorumError(
            f"the processes are on different machines, this one on {this_machine()!r}: give them "
            "the same processors and versions, since others round otherwise."
        )


def all_say(what: str) -> bool:
    """Whether all processes give the same; all of them get the same answer."""
    if alone():
        return True
    said = _gathered(np.frombuffer(hashlib.sha256(what.encode()).digest(), np.uint8))
    return bool((said == said[0]).all())


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
