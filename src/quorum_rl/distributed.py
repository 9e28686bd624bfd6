"""All devices and all processes, with the experts spread over them.

Experts never look at one another, so their axis is cut into as many pieces as there are devices,
and each piece runs the same program. The cores of a CPU count as devices too. Devices talk only
where experts are summed, in a private gradient.

Several processes work as one (`jax.distributed`), each with its share of the experts, and all run
the same program. The first process decides keys, noise and schedules: two processes that each drew
their own noise would make two releases for the price of one. Values travel as raw bytes, because
JAX would cut 64 bits to 32. What the processes of a release or a fit say to one another is in
`release.distributed` and `pipeline.distributed`.
"""

import hashlib
import io
import os
import platform
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import jax
import numpy as np
import numpy.typing as npt
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from quorum_rl import __version__
from quorum_rl.errors import QuorumError

AXIS = "experts"
DETERMINISTIC = "xla_gpu_deterministic_ops"
SPLIT, WHOLE = PartitionSpec(AXIS), PartitionSpec()

# How a process is told of the others: where the first one is, how many there are, which this is.
ADDRESS: Final = "JAX_COORDINATOR_ADDRESS"
COUNT, NUMBER = "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"

TreeT = TypeVar("TreeT")
Named = dict[str, npt.NDArray[Any]]


# --- devices ---


def prepare(*, fast: bool = False) -> None:
    """Set up this process's devices; call it before JAX starts, afterwards it does nothing.

    Every core of a CPU becomes a device: XLA runs a population's small matrix products on one core
    of a device. And a GPU uses the same kernels in every run, so that the same seed gives the same
    bits and a policy asked tomorrow is the one that acted today. With `fast` it may choose the
    fastest kernels instead, by racing them at every start: a quarter less time, other rounding.
    """
    with suppress(RuntimeError):  # JAX has started: its devices are what they are
        jax.config.update("jax_num_cpu_devices", usable_cores())
        flags = os.environ.get("XLA_FLAGS", "")
        if not fast and DETERMINISTIC not in flags:
            os.environ["XLA_FLAGS"] = f"{flags} --{DETERMINISTIC}=true".strip()


def usable_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def this_machine() -> str:
    """What decides how this process rounds, in words: processor, JAX version and our own."""
    backend = jax.default_backend()
    kind = _cpu_model() if backend == "cpu" else jax.devices()[0].device_kind
    return f"{backend} {kind}, jax {jax.__version__}, quorum {__version__}"


def _cpu_model() -> str:
    """The processor's own name where the system tells it, else its family."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def mesh() -> Mesh:
    """The devices of this process in a row, along the axis of experts."""
    return Mesh(np.array(_own()), (AXIS,))


def whole_mesh() -> Mesh:
    """The devices of all processes in a row, along the axis of experts."""
    return Mesh(np.array(jax.devices()), (AXIS,))


def _own() -> list[jax.Device]:
    return [device for device in jax.devices() if device.process_index == jax.process_index()]


def over_experts(
    function: Callable[..., Any], *, shared: int = 0, donate: bool = False
) -> Callable[..., Any]:
    """Compile `function` so that each device runs it for its own experts.

    All arguments but the last `shared` are trees whose leaves have a leading axis of experts, a
    multiple of the number of devices (see `padded`); so are all results. With `donate` the first
    argument's memory is reused, and the caller must not touch it again.
    """

    def spread(*arguments: Any) -> Any:
        split = len(arguments) - shared
        mapped = jax.shard_map(
            function,
            mesh=mesh(),
            in_specs=(SPLIT,) * split + (WHOLE,) * shared,
            out_specs=SPLIT,
            check_vma=False,
        )
        return mapped(*arguments)

    return jax.jit(spread, donate_argnums=0 if donate else ())


def on_every_device(
    function: Callable[..., Any], *, split: int, donate: bool = False
) -> Callable[..., Any]:
    """Compile `function` so that every device, of all processes, runs it with its own experts.

    Argument number `split` is a tree of each device's part; all other arguments, and the results,
    are the same on every device. So `function` must sum over `AXIS` whatever it makes of its part.
    With `donate` the first argument's memory is reused.
    """

    def spread(*arguments: Any) -> Any:
        specs = tuple(SPLIT if place == split else WHOLE for place in range(len(arguments)))
        mapped = jax.shard_map(
            function, mesh=whole_mesh(), in_specs=specs, out_specs=WHOLE, check_vma=False
        )
        return mapped(*arguments)

    return jax.jit(spread, donate_argnums=0 if donate else ())


def padded(tree: TreeT, count: int, block: int = 1) -> TreeT:
    """`tree` with its `count` experts followed by copies of the last, a `block` for each device."""
    missing = -count % (block * len(_own()))
    if missing == 0:
        return tree

    def fill(leaf: Any) -> Any:
        return np.concatenate([leaf, np.repeat(leaf[-1:], missing, axis=0)])

    made: TreeT = jax.tree.map(fill, tree)
    return made


def padded_each(tree: TreeT, count: int, block: int) -> TreeT:
    """As `padded` to whole numbers on each device, then each device's part to whole blocks."""
    devices = len(_own())

    def fill(leaf: Any) -> Any:
        parts = leaf.reshape(devices, -1, *leaf.shape[1:])
        missing = -parts.shape[1] % block
        if missing:
            parts = np.concatenate([parts, np.repeat(parts[:, -1:], missing, axis=1)], axis=1)
        return parts.reshape(-1, *leaf.shape[1:])

    made: TreeT = jax.tree.map(fill, padded(tree, count))
    return made


def placed(tree: TreeT) -> TreeT:
    """`tree` on the devices, each holding its own experts."""
    made: TreeT = jax.device_put(tree, NamedSharding(mesh(), SPLIT))
    return made


# --- processes ---


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
    if is_single_process():
        return True
    said = _gathered(np.frombuffer(hashlib.sha256(what.encode()).digest(), np.uint8))
    return bool((said == said[0]).all())


def is_single_process() -> bool:
    """Whether there is no other process."""
    return bool(jax.process_count() == 1)


def is_first() -> bool:
    """Whether this is the process that decides."""
    return jax.process_index() == 0


def own_share(count: int) -> slice:
    """This process's part of `count` experts, all parts being consecutive and nearly equal."""
    which, processes = jax.process_index(), jax.process_count()
    return slice(count * which // processes, count * (which + 1) // processes)


def broadcast(tree: TreeT) -> TreeT:
    """`tree` as the first process gave it; the others give one of the same shapes."""
    if is_single_process():
        return tree
    leaves, structure = jax.tree.flatten(tree)
    leaves = [np.asarray(leaf) for leaf in leaves]
    sent = _broadcast_bytes(b"".join(leaf.tobytes() for leaf in leaves))
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
    with np.load(io.BytesIO(_broadcast_bytes(file.getvalue())), allow_pickle=False) as found:
        return dict(found)


def joined(tree: TreeT, count: int) -> TreeT:
    """The shares of all processes in a row, `count` experts together.

    Shapes: leaves (own share, …) become (count, …).
    """
    if is_single_process():
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


def joined_rows(tree: TreeT) -> TreeT:
    """The rows of all processes in a row, however many each has.

    Shapes: leaves (own rows, …) become (rows of all, …).
    """
    if is_single_process():
        return tree

    def join(leaf: Any) -> npt.NDArray[Any]:
        own = np.asarray(leaf)
        counts = _gathered(np.array(len(own), np.int64))
        filled = np.zeros((counts.max(), *own.shape[1:]), own.dtype)
        filled[: len(own)] = own
        parts = zip(_gathered(filled), counts, strict=True)
        return np.concatenate([part[:count] for part, count in parts])

    made: TreeT = jax.tree.map(join, tree)
    return made


def summed(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The sum of what all processes give, in whole numbers and therefore exactly."""
    return counts if is_single_process() else _gathered(counts).sum(axis=0, dtype=np.int64)


def _gathered(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """What all processes give. Shapes: (…) to (processes, …)."""
    bytes_of_all = multihost_utils.process_allgather(np.frombuffer(array.tobytes(), np.uint8))
    found = np.frombuffer(np.ascontiguousarray(bytes_of_all).tobytes(), array.dtype)
    return found.reshape(-1, *array.shape)


def _broadcast_bytes(given: bytes) -> bytes:
    """What the first process gives."""
    length = multihost_utils.broadcast_one_to_all(np.uint32(len(given)))
    room = np.zeros(int(length), np.uint8)
    if is_first():
        room[:] = np.frombuffer(given, np.uint8)
    return bytes(np.asarray(multihost_utils.broadcast_one_to_all(room), np.uint8))
