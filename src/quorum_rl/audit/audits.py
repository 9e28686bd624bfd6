"""Run a case many times with the canary and without, and say what that shows.

It is the product's own code: `release`, `plan_fit` and the one driver of trainings; only a run's
folder and its files are left out. A run of the pipeline audit has the parameters of a fit with its
seed, to the bit (a test says so).
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from quorum_rl.audit.adversary import agreement
from quorum_rl.audit.bounds import (
    Floats,
    gaussian_lower_bound,
    lower_bound,
    oriented,
    ratio_scores,
)
from quorum_rl.audit.cases import ONE_STEP, Case
from quorum_rl.audit.chain import Integers
from quorum_rl.audit.finding import (
    ACTIONS,
    ALL,
    BITS,
    CERTAIN,
    GAUSSIAN,
    ITERATES,
    RELEASED,
    REST,
    SPREAD,
    Bounding,
    Finding,
    ceiling,
)
from quorum_rl.audit.releases import outcomes, releases, run_seeds
from quorum_rl.audit.trainings import (
    PUBLIC_SEED,
    Scores,
    noise_keys,
    public_order,
    roundness,
    same_public,
    trained,
    watch,
)
from quorum_rl.errors import QuorumError
from quorum_rl.pipeline import steps_of

BOTH: Final = (True, False)  # with the canary, and without


def found(
    case: Case,
    threat: str,
    here: Floats,
    away: Floats,
    bounding: Bounding = lower_bound,
    **facts: Any,
) -> Finding:
    """A finding from scores with the canary and without, by one of the ways of `bounds`."""
    delta = case.plan.delta
    usual: dict[str, Any] = {"what": case.name, "canary": case.canary, "runs": len(here)}
    return Finding(
        threat=threat,
        claimed=case.claimed,
        bound=bounding(here, away, delta),
        certain=bounding(here, away, delta, CERTAIN).epsilon,
        ceiling=ceiling(bounding, len(here), len(away), delta),
        **usual | facts,
    )


def audit_release(case: Case, runs: int, seed: int, workers: int = 1) -> Finding:
    """Release `runs` times with the canary and without, and bound ε from what came out."""
    here, away = (outcomes(case, runs, present, seed, workers) for present in BOTH)
    return found(case, RELEASED, *ratio_scores(here, away))


def audit_training(case: Case, runs: int, seed: int) -> list[Finding]:
    """Train `runs` times with the canary and without; a finding for each threat."""
    return judged(case, *(trained(case, runs, present, seed) for present in BOTH))


def judged(case: Case, here: Scores, away: Scores) -> list[Finding]:
    """A finding for each threat of a training, from the scores with the canary and without.

    Where everybody is drawn, all iterates give one more, by the assumption that is true there.
    """
    findings = []
    for threat in case.threats:
        scores = here[threat], away[threat]
        if threat in (SPREAD, REST):
            scores = oriented(*scores)
        findings.append(found(case, threat, *scores))
    if case.private.sampling_rate == 1 and ITERATES in case.threats:
        scores = here[ITERATES], away[ITERATES]
        findings.append(found(case, ITERATES, *scores, gaussian_lower_bound, note=GAUSSIAN))
    return findings


def audit_last_bits(runs: int, seed: int) -> Finding:
    """Take one step `runs` times with the canary and without, and look at how round it came out."""
    here, away = (roundness(ONE_STEP, runs, present, seed) for present in BOTH)
    return found(ONE_STEP, BITS, here, away)


class Fits(NamedTuple):
    """What came out of many fits. Shapes: outcomes (runs, iterations); the others (runs, …)."""

    outcomes: Integers
    likelihood: Floats
    params: Any


def audit_pipeline(case: Case, runs: int, seed: int, workers: int = 1) -> list[Finding]:
    """Fit `runs` times with the canary and without; both threat models.

    Raises:
        QuorumError: for a plan without privacy.
    """
    plan = case.plan
    if not plan.events:
        raise QuorumError("this run is not private, so that there is no claim to audit.")
    seen = [
        fits(case, run_seeds(seed, present, runs), present, workers=workers) for present in BOTH
    ]
    here, away = (made.likelihood for made in seen)
    if plan.release is not None:
        ratios = ratio_scores(seen[0].outcomes, seen[1].outcomes)
        here, away = here + ratios[0], away + ratios[1]
    few = case.trainees is not None
    note = f"training sees {case.trained_chain.others} others" if few else ""
    findings = [found(case, ALL, here, away, note=note)]
    if plan.private is not None:
        size = case.chain.observation_size
        here, away = (agreement(plan.learner, made.params, size) for made in seen)
        findings.append(found(case, ACTIONS, here, away, note=note))
    return findings


def fits(
    case: Case,
    seeds: Sequence[int],
    present: bool,
    *,
    public_seed: int = PUBLIC_SEED,
    workers: int = 1,
) -> Fits:
    """One fit for each seed, with a pool of its own, and all trainings together.

    A fit whose release is empty takes the private steps alone.
    """
    plan, released = case.plan, []
    iterations = 0 if plan.release is None else plan.release.event.iterations
    prefixes = np.zeros((len(seeds), iterations), np.int64)
    if plan.release is not None:
        released = releases(case, seeds, present, workers)
        for row, prefix in zip(prefixes, released, strict=True):
            row[: len(prefix)] = case.chain.outcomes(prefix)
        if plan.private is None:  # what training makes of public data adds nothing
            return Fits(prefixes, np.zeros(len(seeds)), None)
    keys = same_public(noise_keys(seeds), public_seed)
    steps = steps_of(plan, len(seeds), public_order(public_seed), released)
    seen = watch(case, keys, steps, present)
    return Fits(prefixes, seen.likelihood, seen.params)
