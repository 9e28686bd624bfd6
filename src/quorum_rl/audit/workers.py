"""Several processes for what only a CPU can do: releases, of which an audit needs very many."""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Final, TypeVar

from quorum_rl.pipeline import Progress

PartT = TypeVar("PartT")
FoundT = TypeVar("FoundT")

PLATFORMS: Final = "JAX_PLATFORMS"


def spread(
    task: Callable[[PartT], FoundT],
    parts: Sequence[PartT],
    workers: int = 1,
    progress: Progress | None = None,
) -> list[FoundT]:
    """What `task` makes of each part, in their order, whichever process did it.

    With one worker it is this process. Others are started anew (`spawn`), so `task` must be a
    function of a module, and they leave a GPU alone. `progress` hears how many parts are done.
    """
    if workers == 1 or len(parts) == 1:
        return _collected(map(task, parts), len(parts), progress)
    start = multiprocessing.get_context("spawn")
    with _without_gpu(), ProcessPoolExecutor(min(workers, len(parts)), start) as pool:
        return _collected(pool.map(task, parts), len(parts), progress)


def _collected(found: Iterator[FoundT], count: int, progress: Progress | None) -> list[FoundT]:
    made = []
    for one in found:
        made.append(one)
        if progress is not None:
            progress(len(made), count)
    return made


@contextmanager
def _without_gpu() -> Iterator[None]:
    """Processes that start meanwhile compute on the CPU; this one has made its choice before."""
    before = os.environ.get(PLATFORMS)
    os.environ[PLATFORMS] = "cpu"
    try:
        yield
    finally:
        if before is None:
            del os.environ[PLATFORMS]
        else:
            os.environ[PLATFORMS] = before
