"""All devices of this machine, with the experts spread over them.

Experts never look at one another, so their axis can be cut into as many pieces as there are
devices; each piece runs the same program. The cores of a CPU count as devices too.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

AXIS = "experts"
SPLIT, WHOLE = PartitionSpec(AXIS), PartitionSpec()

TreeT = TypeVar("TreeT")


def use_all_cores() -> None:
    """Let every core of a CPU be a device. Does nothing once JAX has started.

    XLA runs a population's small matrix products on one core; a device per core uses them all.
    """
    with suppress(RuntimeError):  # JAX has started: its devices are what they are
        jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))


def mesh() -> Mesh:
    """The devices in a row, along the axis of experts."""
    return Mesh(np.array(jax.devices()), (AXIS,))


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


def padded(tree: TreeT, count: int, block: int = 1) -> TreeT:
    """`tree` with its `count` experts followed by copies of the last, a `block` for each device."""
    missing = -count % (block * len(jax.devices()))
    if missing == 0:
        return tree

    def fill(leaf: Any) -> Any:
        return np.concatenate([leaf, np.repeat(leaf[-1:], missing, axis=0)])

    made: TreeT = jax.tree.map(fill, tree)
    return made


def placed(tree: TreeT) -> TreeT:
    """`tree` on the devices, each holding its own experts."""
    made: TreeT = jax.device_put(tree, NamedSharding(mesh(), SPLIT))
    return made
