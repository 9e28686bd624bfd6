"""Where private steps read from: one device, all devices, or the log's own file."""

import os
from typing import Any, Final, TypeAlias, TypeVar

import jax
import numpy as np
import numpy.typing as npt
from jax.sharding import NamedSharding

from quorum_rl.distributed import SPLIT, WHOLE, is_single_process, whole_mesh
from quorum_rl.logs import Demonstrations
from quorum_rl.pytree import pytree
from quorum_rl.training.data import ExpertData, check_numbered, expert_data
from quorum_rl.training.mapped import MappedData, mapped_data
from quorum_rl.training.part import SummedElsewhere

MEMORY_SHARE: Final = 0.25  # of the memory, that a log may take: making it takes as much again

TreeT = TypeVar("TreeT")


@pytree
class SpreadData:
    """The transitions of all experts, on all devices, also those of other processes. SENSITIVE.

    Every leaf of `parts` is spread along its first axis: a device's piece of all of them is the
    `ExpertData` of its own experts. Memory on each is that of all experts over the number of
    devices, and at most that of one expert more.
    """

    parts: ExpertData

    def __repr__(self) -> str:
        return "SpreadData(sensitive)"


PrivateData: TypeAlias = ExpertData | SpreadData | MappedData | SummedElsewhere


def private_source(demonstrations: Demonstrations) -> PrivateData:
    """The transitions as private steps read them; wherever that is, they read the same.

    Spread over all devices where there are several processes or accelerators. On one device, a log
    that would take more than a quarter of its memory stays in its file. The cores of a CPU share
    their memory, so nothing is spread over them.

    Raises:
        QuorumError: if there is no expert.
    """
    if not is_single_process() or (jax.default_backend() != "cpu" and len(jax.devices()) > 1):
        return spread_data(demonstrations)
    if demonstrations.source is not None and device_bytes(demonstrations) > MEMORY_SHARE * memory():
        return mapped_data(demonstrations)
    return expert_data(demonstrations)


def device_bytes(demonstrations: Demonstrations) -> int:
    """What all transitions take on a device: both states, action, reward and two flags."""
    declared = demonstrations.declared
    actions = declared.action_count if declared.continuous else 1
    return demonstrations.transition_count * (8 * declared.observation_size + 4 * actions + 6)


def memory() -> int:
    """The bytes of memory that the first device has."""
    known = jax.local_devices()[0].memory_stats()
    if known and "bytes_limit" in known:
        return int(known["bytes_limit"])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def spread_data(demonstrations: Demonstrations) -> SpreadData:
    """The demonstrations on all devices; a process reads only what its own devices hold.

    Raises:
        QuorumError: if there is no expert, or more transitions on a device than it can number.
    """
    everybody = whole_mesh()
    offsets = demonstrations.expert_transition_offsets
    edges = even_cuts(offsets, everybody.size)
    rows = int(np.diff(offsets[edges]).max())
    check_numbered(demonstrations, rows)
    most = int(np.diff(edges).max())

    def part(number: int) -> ExpertData:
        first, end = edges[number], edges[number + 1]
        steps = np.arange(offsets[first], offsets[end])
        own = offsets[first : end + 1] - offsets[first]
        return ExpertData(
            demonstrations.transitions(np.pad(steps, (0, rows - len(steps)))),
            np.pad(own, (0, most + 1 - len(own)), mode="edge").astype(np.int32),  # type: ignore[arg-type]
            np.array([first], np.int32),  # type: ignore[arg-type]
        )

    parts = [
        jax.device_put(part(number), device)
        for number, device in enumerate(everybody.devices)
        if device.process_index == jax.process_index()
    ]

    def joined(*pieces: jax.Array) -> jax.Array:
        shape = (everybody.size * len(pieces[0]), *pieces[0].shape[1:])
        sharding = NamedSharding(everybody, SPLIT)
        return jax.make_array_from_single_device_arrays(shape, sharding, list(pieces))

    return SpreadData(jax.tree.map(joined, *parts))


def everywhere(tree: TreeT) -> TreeT:
    """The same on every device; all processes give the same."""
    made: TreeT = jax.device_put(tree, NamedSharding(whole_mesh(), WHOLE))
    return made


def even_cuts(offsets: npt.NDArray[np.integer[Any]], parts: int) -> npt.NDArray[np.int64]:
    """Where to cut the row of experts so that parts have nearly the same number of transitions.

    Shapes: `offsets` (experts + 1,); (parts + 1,), part i having the experts from i up to i + 1.
    """
    aims = offsets[-1] * np.arange(1, parts) / parts
    inner = np.searchsorted(offsets, aims)
    return np.concatenate([[0], inner, [len(offsets) - 1]]).astype(np.int64)
