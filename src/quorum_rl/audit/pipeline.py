"""Audits of the whole: plan, release and training as a fit has them, for many runs at once.

The plan is `plan_fit`'s, the release `release_and_keep` with a log of its own for every run, and
the trainings are the one training loop; only the folder and its files are left out. With one run
and a fit's seed, the parameters are that fit's to the bit (a test says so).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import jax.numpy as jnp
import numpy as np

from quorum_rl.audit.bounds import Floats, lower_bound, ratio_scores
from quorum_rl.audit.chain import Chain, Integers
from quorum_rl.audit.finding import ACTIONS, ALL, Finding, found
from quorum_rl.audit.releases import run_seeds
from quorum_rl.audit.trainings import (
    PUBLIC_SEED,
    public_words,
    stacked_runs,
    training_data,
    training_transitions,
)
from quorum_rl.audit.watching import Looking, agreement, watched
from quorum_rl.budget import SeededEntropy
from quorum_rl.errors import QuorumError
from quorum_rl.experiments.study import Progress, joined, research_ledger
from quorum_rl.fit import FitPlan, FitSettings, plan_fit
from quorum_rl.learners import Cql
from quorum_rl.privacy import total_epsilon
from quorum_rl.release import release_and_keep
from quorum_rl.training.schedule import Kind, shuffled_schedule
from quorum_rl.types import Released

RUNS_PER_LEDGER: Final = 4  # a ledger reads itself again before every charge
CANARY: Final = "an expert who leaves alone, and whose gradient has a direction of its own"


@dataclass(frozen=True)
class PipelineCase:
    """A plan and the experts that it is audited on.

    `trainees` are the experts that training sees beside the canary, all of them unless given: what
    they add is known to the adversary, so that fewer change nothing but the time it takes.
    """

    chain: Chain
    plan: FitPlan
    trainees: int | None = None

    @property
    def private(self) -> Chain:
        """The chain as training sees it."""
        if self.trainees is None:
            return self.chain
        return replace(self.chain, others=min(self.trainees, self.chain.others))


def small_case() -> PipelineCase:
    """A fit of 18 experts in few steps, at an ε so large that few runs show something."""
    chain = Chain(others=18, actions=2, horizon=4, p_min=0.05, leaves_at=3)
    settings = FitSettings(
        iterations=2,
        private_steps=4,
        sampling_rate=0.5,
        transitions_per_expert=1,
        batch_size=4,
        least_released=0,
        averaging=0.5,
    )
    learner = Cql(hidden_sizes=())
    return PipelineCase(
        chain, plan_fit(chain.declared, learner, epsilon=8.0, delta=0.01, settings=settings)
    )


class Fits(NamedTuple):
    """What came out of many fits. Shapes: outcomes (runs, iterations); the others (runs, …)."""

    outcomes: Integers
    likelihood: Floats
    params: Any


def audit_pipeline(
    case: PipelineCase, runs: int, seed: int, progress: Progress | None = None
) -> list[Finding]:
    """Fit `runs` times with the canary and without; both threat models.

    Raises:
        QuorumError: for a plan without privacy.
    """
    plan = case.plan
    if not plan.events:
        raise QuorumError("this run is not private, so that there is no claim to audit.")
    seen = [
        fits(case, run_seeds(seed, present, runs), present, progress=progress)
        for present in (True, False)
    ]
    here, away = (one.likelihood for one in seen)
    if plan.release is not None:
        ratios = ratio_scores(seen[0].outcomes, seen[1].outcomes)
        here, away = here + ratios[0], away + ratios[1]
    facts: dict[str, Any] = {
        "what": "pipeline",
        "canary": CANARY,
        "claimed": total_epsilon(plan.events, plan.delta),
        "runs": runs,
        "note": "" if case.trainees is None else f"training sees {case.private.others} others",
    }
    findings = [found(lower_bound, here, away, plan.delta, threat=ALL, **facts)]
    if plan.private is not None:
        acted = [agreement(plan.learner, one.params, case.chain.observation_size) for one in seen]
        findings.append(found(lower_bound, acted[0], acted[1], plan.delta, threat=ACTIONS, **facts))
    return findings


def fits(
    case: PipelineCase,
    seeds: Sequence[int],
    present: bool,
    *,
    public_seed: int = PUBLIC_SEED,
    progress: Progress | None = None,
) -> Fits:
    """One fit for each seed, with a pool of its own, and all trainings together."""
    if case.plan.release is None:
        likelihood, params = _trained(case, seeds, [], present, public_seed, progress)
        return Fits(np.zeros((len(seeds), 0), np.int64), likelihood, params)
    released = _releases(case, seeds, present, progress)
    outcomes = np.zeros((len(seeds), case.plan.release.event.iterations), np.int64)
    for row, one in zip(outcomes, released, strict=True):
        row[: len(one)] = case.chain.outcomes(one)
    if case.plan.private is None:  # what training makes of public data adds nothing
        return Fits(outcomes, np.zeros(len(seeds)), None)
    likelihood, params = _trained(case, seeds, released, present, public_seed, progress)
    return Fits(outcomes, likelihood, params)


def _releases(
    case: PipelineCase, seeds: Sequence[int], present: bool, progress: Progress | None
) -> list[Released]:
    """Stage 1 of every run, as a fit calls it."""
    plan, chain = case.plan.release, case.chain
    assert plan is not None  # asked for only where there is one
    experts = chain.experts(present)
    made: list[Released] = []
    for start in range(0, len(seeds), RUNS_PER_LEDGER):
        with research_ledger() as ledger:
            for seed in seeds[start : start + RUNS_PER_LEDGER]:
                log = chain.log(present, plan.event.pool_size, np.random.default_rng(seed))
                entropy = SeededEntropy(seed)
                made.append(release_and_keep(experts, log, plan, ledger, entropy=entropy).released)
                if progress is not None:
                    progress(len(made), len(seeds))
    return made


def _trained(
    case: PipelineCase,
    seeds: Sequence[int],
    released: Sequence[Released],
    present: bool,
    public_seed: int,
    progress: Progress | None,
) -> tuple[Floats, Any]:
    """Stage 2 of every run. A fit whose release is empty takes the private steps alone."""
    plan, chain = case.plan, case.private
    order = int(public_words(public_seed)[0])
    alone = shuffled_schedule(plan.private_steps, 0, order)
    some = np.array([len(one) > 0 for one in released], bool)
    plain, parts = joined(released) if some.any() else (None, [])
    both = (
        alone if plain is None else shuffled_schedule(plan.private_steps, plan.plain_steps, order)
    )
    runs = stacked_runs(plan, seeds, len(both), parts, public_seed)
    schedule = both
    if some.any() and not some.all():
        rest = np.full(len(both) - len(alone), Kind.NOTHING, np.int8)
        schedule = np.where(some, both[:, None], np.append(alone, rest)[:, None])
        ends = [plan.rates_end(len(both) if one else len(alone)) for one in some]
        runs = replace(runs, rates_end=jnp.asarray(ends, jnp.float32))
    return watched(
        Looking(plan, *training_transitions(chain)),
        runs,
        schedule,
        (chain.observation_size, chain.actions),
        training_data(chain, present),
        plain,
        progress,
    )
