"""Where private steps read from: one device, all devices, or the log's own file."""

import os
from typing import Final

import jax

from quorum_rl.distributed import is_single_process
from quorum_rl.logs import Demonstrations
from quorum_rl.training.data import ExpertData, expert_data
from quorum_rl.training.mapped import MappedData, mapped_data
from quorum_rl.training.spread import SpreadData, spread_data

SHARE: Final = 0.25  # of the memory, that a log may take: making it takes as much again


def private_source(demonstrations: Demonstrations) -> ExpertData | SpreadData | MappedData:
    """The transitions as private steps read them; wherever that is, they read the same.

    Spread over all devices where there are several processes or accelerators. On one device, a log
    that would take more than a quarter of its memory stays in its file. The cores of a CPU share
    their memory, so nothing is spread over them.

    Raises:
        QuorumError: if there is no expert.
    """
    if not is_single_process() or (jax.default_backend() != "cpu" and len(jax.devices()) > 1):
        return spread_data(demonstrations)
    if demonstrations.source is not None and device_bytes(demonstrations) > SHARE * memory():
        return mapped_data(demonstrations)
    return expert_data(demonstrations)


def device_bytes(demonstrations: Demonstrations) -> int:
    """What all transitions take on a device: both states, action, reward and two flags."""
    width = demonstrations.declared.observation_size
    return demonstrations.transition_count * (8 * width + 10)


def memory() -> int:
    """The bytes of memory that the first device has."""
    known = jax.local_devices()[0].memory_stats()
    if known and "bytes_limit" in known:
        return int(known["bytes_limit"])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
