"""Audits of the whole: plan, release and training as a fit has them, for many runs at once.

The plan is `plan_fit`'s, the release `release_and_keep` with a log of its own for every run, and
the trainings are the one training loop; only the folder and its files are left out. With one run
and a fit's seed, the parameters are that fit's to the bit (a test says so).
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain as in_a_row
from typing import Any, Final, NamedTuple

import numpy as np

from quorum_rl.audit.adversary import Looking, Watched, agreement, watched
from quorum_rl.audit.bounds import Floats, lower_bound, ratio_scores
from quorum_rl.audit.chain import Chain, Integers
from quorum_rl.audit.finding import ACTIONS, ALL, Finding, found
from quorum_rl.audit.releases import LEAVER, run_seeds
from quorum_rl.audit.trainings import (
    CHUNK,
    OTHERS,
    PUBLIC_SEED,
    noise_keys,
    public_order,
    same_public,
    training_data,
    training_transitions,
)
from quorum_rl.audit.workers import spread
from quorum_rl.budget import SeededEntropy
from quorum_rl.errors import QuorumError
from quorum_rl.learners import Cql, learner_to_json
from quorum_rl.pipeline import (
    FitPlan,
    FitSettings,
    Progress,
    plan_fit,
    research_ledger,
    runs_of,
    steps_of,
)
from quorum_rl.privacy import ReleasePlan, event_to_json, total_epsilon
from quorum_rl.release import release_and_keep
from quorum_rl.training import Gradient, PrivateStep
from quorum_rl.types import Released

RUNS_AT_ONCE: Final = 40  # of which one process makes the releases, one after the other
RUNS_PER_LEDGER: Final = 4  # a ledger reads itself again before every charge
CANARY: Final = "an expert who leaves alone, and whose contribution has a direction of its own"
LINEAR: Final = Cql(hidden_sizes=())
FEW_STEPS: Final = FitSettings(  # all that decides: defaults may change, a worst case may not
    method="selective",
    private_share=0.5,
    clip_norm=1.0,
    normalised=False,
    private_learning_rate=0.01,
    optimiser="adam",
    iterations=1,
    private_steps=2,
    sampling_rate=1.0,
    transitions_per_expert=1,
    batch_size=4,
    least_released=0,
    averaging=0.5,
)


@dataclass(frozen=True)
class PipelineCase:
    """A plan and the experts that it is audited on.

    `trainees` are the experts that training sees beside the canary, all of them unless given: what
    they add is known to the adversary, so that fewer change nothing but the time it takes.
    `certified` is the ε that a certificate claims for the plan's events, if there is one.
    """

    chain: Chain
    plan: FitPlan
    trainees: int | None = None
    name: str = "pipeline"
    certified: float | None = None

    @property
    def claimed(self) -> float:
        """What is under audit: the certificate's ε, otherwise what the accounting says."""
        if self.certified is not None:
            return self.certified
        return total_epsilon(self.plan.events, self.plan.delta)

    def with_trainees(self, count: int) -> "PipelineCase":
        """The same with so few experts in training."""
        if self.plan.private is None:
            return replace(self, trainees=count)
        step = replace(self.plan.private, chunk=CHUNK)
        return replace(self, trainees=count, plan=replace(self.plan, private=step))

    def to_json(self) -> dict[str, Any]:
        """Who takes part, and what is charged for, as plain facts."""
        return {
            "chain": asdict(self.chain),
            "trainees": self.trainees,
            "certified": self.certified,
            "epsilon": self.plan.epsilon,
            "delta": self.plan.delta,
            "settings": self.plan.settings.to_json(),
            "learner": learner_to_json(self.plan.learner),
            "events": [event_to_json(event) for event in self.plan.events],
        }

    @property
    def private(self) -> Chain:
        """The chain as training sees it."""
        if self.trainees is None:
            return self.chain
        return replace(self.chain, others=min(self.trainees, self.chain.others))


def small_case() -> PipelineCase:
    """A fit of 18 experts that gives half of ε to each stage and draws half of them in a step."""
    chain = Chain(others=18, actions=2, horizon=4, p_min=0.05, leaves_at=3)
    settings = replace(FEW_STEPS, iterations=2, private_steps=4, sampling_rate=0.5)
    plan = plan_fit(chain.declared, LINEAR, epsilon=8.0, delta=0.01, settings=settings)
    return PipelineCase(chain, plan, name="pipeline, half of ε for each stage")


def training_first() -> PipelineCase:
    """A fit that gives nearly all of ε to two private steps, which draw everybody.

    So the account is nearly that of a Gaussian mechanism, which is reached.
    """
    chain = Chain(others=548, actions=2, horizon=2, p_min=0.02, leaves_at=1)
    settings = replace(FEW_STEPS, release_share=0.05, agreement=1.0)
    plan = plan_fit(chain.declared, LINEAR, epsilon=3.0, delta=0.01, settings=settings)
    case = PipelineCase(chain, plan, name="pipeline, nearly all of ε for training")
    return case.with_trainees(OTHERS)


def release_first() -> PipelineCase:
    """A fit that spends nearly all of ε on the release whose worst case is known, `LEAVER`.

    Its constants are that release's, because a plan chooses its own for use and not for audits.
    """
    chain, event = LEAVER.chain, LEAVER.event
    step = PrivateStep(
        sampling_rate=1.0,
        clip_norm=1.0,
        noise_multiplier=140.0,
        expected_batch=float(chain.others),
        chunk=CHUNK,
        contribution=Gradient(transitions=1),
    )
    plan = FitPlan(
        settings=FEW_STEPS,
        learner=LINEAR,
        epsilon=total_epsilon([event, step.event(2)], LEAVER.delta),
        delta=LEAVER.delta,
        release=ReleasePlan(event, LEAVER.claimed, LEAVER.delta, agreement=1.0),
        private=step,
        private_steps=2,
        plain_steps=2,
        notes=(),
    )
    return PipelineCase(chain, plan, OTHERS, "pipeline, nearly all of ε for the release")


class Fits(NamedTuple):
    """What came out of many fits. Shapes: outcomes (runs, iterations); the others (runs, …)."""

    outcomes: Integers
    likelihood: Floats
    params: Any


def audit_pipeline(
    case: PipelineCase,
    runs: int,
    seed: int,
    progress: Progress | None = None,
    workers: int = 1,
) -> list[Finding]:
    """Fit `runs` times with the canary and without; both threat models.

    Raises:
        QuorumError: for a plan without privacy.
    """
    plan = case.plan
    if not plan.events:
        raise QuorumError("this run is not private, so that there is no claim to audit.")
    seen = [
        fits(case, run_seeds(seed, present, runs), present, progress=progress, workers=workers)
        for present in (True, False)
    ]
    here, away = (one.likelihood for one in seen)
    if plan.release is not None:
        ratios = ratio_scores(seen[0].outcomes, seen[1].outcomes)
        here, away = here + ratios[0], away + ratios[1]
    facts: dict[str, Any] = {
        "what": case.name,
        "canary": CANARY,
        "claimed": case.claimed,
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
    workers: int = 1,
) -> Fits:
    """One fit for each seed, with a pool of its own, and all trainings together."""
    if case.plan.release is None:
        seen = _trained(case, seeds, [], present, public_seed, progress)
        return Fits(np.zeros((len(seeds), 0), np.int64), seen.likelihood, seen.params)
    released = _releases(case, seeds, present, progress, workers)
    outcomes = np.zeros((len(seeds), case.plan.release.event.iterations), np.int64)
    for row, one in zip(outcomes, released, strict=True):
        row[: len(one)] = case.chain.outcomes(one)
    if case.plan.private is None:  # what training makes of public data adds nothing
        return Fits(outcomes, np.zeros(len(seeds)), None)
    seen = _trained(case, seeds, released, present, public_seed, progress)
    return Fits(outcomes, seen.likelihood, seen.params)


class ReleaseBatch(NamedTuple):
    """Some runs' releases, for one process."""

    chain: Chain
    plan: ReleasePlan
    seeds: Sequence[int]
    present: bool


def _releases(
    case: PipelineCase,
    seeds: Sequence[int],
    present: bool,
    progress: Progress | None,
    workers: int,
) -> list[Released]:
    """Stage 1 of every run."""
    assert case.plan.release is not None  # asked for only where there is one
    parts = [
        ReleaseBatch(case.chain, case.plan.release, seeds[first : first + RUNS_AT_ONCE], present)
        for first in range(0, len(seeds), RUNS_AT_ONCE)
    ]
    return list(in_a_row.from_iterable(spread(_releases_of, parts, workers, progress)))


def _releases_of(part: ReleaseBatch) -> list[Released]:
    """As a fit calls it, with a fresh log for each."""
    experts, pool_size = part.chain.experts(part.present), part.plan.event.pool_size
    made: list[Released] = []
    for start in range(0, len(part.seeds), RUNS_PER_LEDGER):
        with research_ledger() as ledger:
            for seed in part.seeds[start : start + RUNS_PER_LEDGER]:
                log = part.chain.log(part.present, pool_size, np.random.default_rng(seed))
                entropy = SeededEntropy(seed)
                outcome = release_and_keep(experts, log, part.plan, ledger, entropy=entropy)
                made.append(outcome.released)
    return made


def _trained(
    case: PipelineCase,
    seeds: Sequence[int],
    released: Sequence[Released],
    present: bool,
    public_seed: int,
    progress: Progress | None,
) -> Watched:
    """Stage 2 of every run. A fit whose release is empty takes the private steps alone."""
    plan, chain = case.plan, case.private
    steps = steps_of(plan, len(seeds), public_order(public_seed), released)
    return watched(
        Looking(plan, *training_transitions(chain)),
        runs_of([plan], same_public(noise_keys(seeds), public_seed), steps),
        steps,
        (chain.observation_size, chain.actions),
        training_data(chain, present),
        progress,
    )
