"""Audits of the release alone: the product's own release, run many times on a chain."""

import math
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from quorum_rl.audit.bounds import lower_bound, ratio_scores
from quorum_rl.audit.chain import Chain, Integers
from quorum_rl.audit.finding import RELEASED, Finding, found
from quorum_rl.audit.workers import spread
from quorum_rl.budget import SeededEntropy
from quorum_rl.pipeline import research_ledger
from quorum_rl.privacy import ReleaseEvent, ReleasePlan, total_epsilon
from quorum_rl.release import release

RUNS_AT_ONCE: Final = 40_000  # in one release, and so in one process


@dataclass(frozen=True)
class ReleaseCase:
    """A release, and the experts that it is audited on."""

    name: str
    canary: str
    chain: Chain
    event: ReleaseEvent
    delta: float

    @property
    def claimed(self) -> float:
        """What the accounting says that the release costs."""
        return total_epsilon([self.event], self.delta)


def _event(chain: Chain, **constants: float) -> ReleaseEvent:
    """One iteration of a release, whose pool never runs out."""
    return ReleaseEvent(
        mode="tight",
        experts=chain.others,
        actions=chain.actions,
        p_min=chain.p_min,
        horizon=chain.horizon,
        prefix_cap=chain.horizon,
        iterations=1,
        pool_size=1,
        **constants,  # type: ignore[arg-type]
    )


_TRIO: Final = Chain(others=2, actions=2, horizon=1, p_min=0.0, leaves_at=0)
_CROWD: Final = Chain(others=345, actions=2, horizon=9, p_min=0.003, leaves_at=8)

DEVIATOR: Final = ReleaseCase(
    "release, deviator",
    "one of three, who alone does what nobody else would ever do",
    _TRIO,
    _event(
        _TRIO,
        stop_probability=0.2,
        theta=1.7826,
        threshold=22.38,
        threshold_epsilon=0.25,
        query_epsilon=2.0,
    ),
    delta=0.00315,
)
"""Prefixes that only the canary can give: what the offset of the threshold must keep in."""

LEAVER: Final = ReleaseCase(
    "release, leaver",
    "one of 346, who agrees for eight steps and then leaves alone",
    _CROWD,
    _event(
        _CROWD,
        stop_probability=0.0,
        theta=333.34,
        threshold=346.34,
        threshold_epsilon=0.5,
        query_epsilon=1.0,
    ),
    delta=0.00105,
)
"""Eight queries that only a low threshold passes, then one that fails: both noises are needed."""


def audit_release(case: ReleaseCase, runs: int, seed: int, workers: int = 1) -> Finding:
    """Release `runs` times with the canary and without, and bound ε from what came out."""
    seen = [
        outcomes(case.chain, case.event, runs, present, seed, workers) for present in (True, False)
    ]
    return found(
        lower_bound,
        *ratio_scores(*seen),
        case.delta,
        what=case.name,
        threat=RELEASED,
        canary=case.canary,
        claimed=case.claimed,
        runs=runs,
    )


class OutcomeBatch(NamedTuple):
    """Some of an audit's releases, for one process."""

    chain: Chain
    event: ReleaseEvent
    runs: int
    present: bool
    seed: int
    number: int


def outcomes(
    chain: Chain, event: ReleaseEvent, runs: int, present: bool, seed: int, workers: int = 1
) -> Integers:
    """What comes out of each of `runs` independent releases of one iteration.

    Shapes: `(runs, 1)`.
    """
    parts = [
        OutcomeBatch(chain, event, min(RUNS_AT_ONCE, runs - first), present, seed, number)
        for number, first in enumerate(range(0, runs, RUNS_AT_ONCE))
    ]
    return np.concatenate(spread(_outcomes_of, parts, workers))[:, None]


def _outcomes_of(part: OutcomeBatch) -> Integers:
    """They are made as one release of so many iterations: its trajectories are fresh, so that its
    iterations are independent. Which of them gave nothing is not known, so their order is drawn.
    """
    chain, runs = part.chain, part.runs
    rng = np.random.default_rng([part.seed, part.present, part.number])
    experts = chain.experts(part.present)
    share = runs / len(experts)  # more are drawn of an expert with probability below 1e-9
    pool_size = math.ceil(share + 7 * math.sqrt(share) + 7)
    whole = replace(part.event, iterations=runs, pool_size=pool_size)
    plan = ReleasePlan(whole, epsilon=1.0, delta=0.1, agreement=0.9)  # a research ledger asks none
    entropy = SeededEntropy(run_seeds(part.seed, part.present, part.number + 1)[-1])
    log = chain.log(part.present, pool_size, rng)
    with research_ledger() as ledger:
        made = release(experts, log, plan, ledger, entropy=entropy)
    each = np.zeros(runs, np.int64)
    each[: len(made)] = chain.outcomes(made)
    drawn: Integers = rng.permutation(each)
    return drawn


def run_seeds(seed: int, present: bool, runs: int) -> range:
    """Seeds for runs, different for every seed of an audit, with the canary and without."""
    first = (2 * seed + present) * 10**9
    return range(first, first + runs)
