"""All devices of this machine, with the experts spread over them.

Experts never look at one another, so their axis can be cut into as many pieces as there are
devices; each piece runs the same program. The cores of a CPU count as devices too. Only where
experts are summed up, in a private gradient, do devices talk, and then also those of other
processes (`processes.py`).
"""

import os
import platform
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from quorum_rl import __version__

AXIS = "experts"
DETERMINISTIC = "xla_gpu_deterministic_ops"
SPLIT, WHOLE = PartitionSpec(AXIS), PartitionSpec()

TreeT = TypeVar("TreeT")


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


def placed(tree: TreeT) -> TreeT:
    """`tree` on the devices, each holding its own experts."""
    made: TreeT = jax.device_put(tree, NamedSharding(mesh(), SPLIT))
    return made
