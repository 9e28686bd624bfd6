"""The product's own release, many times, on fresh logs: in several processes, for only a CPU helps.

The audit of a release alone makes all runs as iterations of few releases; that of the pipeline
makes one release for each run, as a fit does.
"""

import math
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

import jax
import numpy as np

from quorum_rl.audit.cases import Case
from quorum_rl.audit.chain import Chain, Integers
from quorum_rl.budget import SeededEntropy
from quorum_rl.pipeline import research_ledger
from quorum_rl.privacy import ReleasePlan
from quorum_rl.release import release
from quorum_rl.types import Released

ITERATIONS_AT_ONCE: Final = 40_000  # in one release, and so in one process
RELEASES_AT_ONCE: Final = 40  # in one process, one after the other
RELEASES_PER_LEDGER: Final = 4  # a ledger reads itself again before every charge

PartT = TypeVar("PartT")
FoundT = TypeVar("FoundT")


def outcomes(case: Case, runs: int, present: bool, seed: int, workers: int = 1) -> Integers:
    """What comes out of each of `runs` independent releases of one iteration.

    Shapes: `(runs, 1)`.
    """
    starts = range(0, runs, ITERATIONS_AT_ONCE)
    parts = [(number, min(ITERATIONS_AT_ONCE, runs - first)) for number, first in enumerate(starts)]
    task = partial(_outcomes_of, case.chain, case.release, present, seed)
    return np.concatenate(spread(task, parts, workers))[:, None]


def _outcomes_of(
    chain: Chain, plan: ReleasePlan, present: bool, seed: int, part: tuple[int, int]
) -> Integers:
    """One release of so many iterations: its trajectories are fresh, so that its iterations are
    independent. Which of them gave nothing is not known, so their order is drawn.
    """
    number, runs = part
    rng = np.random.default_rng([seed, present, number])
    experts = chain.experts(present)
    share = runs / len(experts)  # more are drawn of an expert with probability below 1e-9
    pool_size = math.ceil(share + 7 * math.sqrt(share) + 7)
    whole = replace(plan, event=replace(plan.event, iterations=runs, pool_size=pool_size))
    entropy = SeededEntropy(run_seeds(seed, present, number + 1)[-1])
    log = chain.log(present, pool_size, rng)
    with research_ledger() as ledger:
        made = release(experts, log, whole, ledger, entropy=entropy).released
    each = np.zeros(runs, np.int64)
    each[: len(made)] = chain.outcomes(made)
    drawn: Integers = rng.permutation(each)
    return drawn


def releases(case: Case, seeds: Sequence[int], present: bool, workers: int) -> list[Released]:
    """The release of a fit with each seed."""
    starts = range(0, len(seeds), RELEASES_AT_ONCE)
    parts = [seeds[first : first + RELEASES_AT_ONCE] for first in starts]
    task = partial(_releases_of, case.chain, case.release, present)
    return [released for part in spread(task, parts, workers) for released in part]


def _releases_of(
    chain: Chain, plan: ReleasePlan, present: bool, seeds: Sequence[int]
) -> list[Released]:
    """As a fit calls it, with a fresh log for each."""
    experts, made = chain.experts(present), []
    for start in range(0, len(seeds), RELEASES_PER_LEDGER):
        with research_ledger() as ledger:
            for seed in seeds[start : start + RELEASES_PER_LEDGER]:
                log = chain.log(present, plan.event.pool_size, np.random.default_rng(seed))
                entropy = SeededEntropy(seed)
                made.append(release(experts, log, plan, ledger, entropy=entropy).released)
    return made


def run_seeds(seed: int, present: bool, runs: int) -> range:
    """Seeds for runs, different for every seed of an audit, with the canary and without."""
    first = (2 * seed + present) * 10**9
    return range(first, first + runs)


def spread(
    task: Callable[[PartT], FoundT], parts: Sequence[PartT], workers: int = 1
) -> list[FoundT]:
    """What `task` makes of each part, in their order, whichever process did it.

    With one worker it is this process. Others are started anew (`spawn`), so `task` must be a
    function of a module, and they leave a GPU alone.
    """
    if workers == 1 or len(parts) == 1:
        return list(map(task, parts))
    start = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(parts)), start, initializer=_without_gpu) as pool:
        return list(pool.map(task, parts))


def _without_gpu() -> None:
    """In a process that has just started, before it computes anything."""
    jax.config.update("jax_platforms", "cpu")
