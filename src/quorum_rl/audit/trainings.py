"""Audits of the training alone: thousands of real trainings in one program, and one of many
canaries."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import jax.numpy as jnp
import numpy as np

from quorum_rl.audit.adversary import Looking, agreement, watched
from quorum_rl.audit.bounds import (
    Floats,
    gaussian_lower_bound,
    lower_bound,
    one_run_lower_bound,
    oriented,
)
from quorum_rl.audit.chain import CANARY_ACTION, CANARY_REWARD, FAR, Chain
from quorum_rl.audit.finding import (
    ACTIONS,
    APART,
    GAUSSIAN,
    ITERATES,
    REST,
    SPREAD,
    Finding,
    found,
)
from quorum_rl.budget import SeededEntropy, jax_key_data
from quorum_rl.learners import Bcq, Cql, Learner, learner_to_json
from quorum_rl.pipeline import FitPlan, FitSettings, Keys, Steps, in_words, runs_of, steps_of
from quorum_rl.privacy import event_to_json, total_epsilon
from quorum_rl.training import Contribution, ExpertData, Gradient, Local, PrivateStep, expert_data
from quorum_rl.types import Released, Transition

PUBLIC_SEED: Final = 0
OTHERS: Final = 3  # whose contributions are known, so more would add nothing
CHUNK: Final = 8  # for few trainees; it changes the time, not the result
CANARY: Final = "an expert whose contribution is clipped, in a direction of its own"

Scores = dict[str, Floats]
"""Of many trainings, by threat. Shapes: (runs,) each."""


@dataclass(frozen=True, kw_only=True)
class TrainingCase:
    """A training that is accounted, and audited, by itself.

    `threats` are what is looked at, a finding for each. With `plain_steps` the others' one step is
    public, too.
    """

    name: str
    private_steps: int
    plain_steps: int
    sampling_rate: float
    noise_multiplier: float
    delta: float
    contribution: Contribution = Gradient(transitions=1)  # noqa: RUF009  # frozen
    learner: Learner = Cql(hidden_sizes=())  # noqa: RUF009  # frozen
    observation_size: int = 1
    threats: tuple[str, ...] = (ITERATES, ACTIONS)

    @property
    def chain(self) -> Chain:
        """Who takes part."""
        return Chain(
            others=OTHERS,
            actions=2,
            horizon=1,
            p_min=0.1,
            leaves_at=0,
            observation_size=self.observation_size,
        )

    @property
    def plan(self) -> FitPlan:
        """A plan with these numbers: plain gradient descent, at rates that stay as they are."""
        return FitPlan(
            settings=FitSettings(
                method="selective",
                optimiser="sgd",
                learning_rate=1e-3,
                private_learning_rate=1.0,
                falling_rates=False,
                averaging=0.0,
                batch_size=4,
            ),
            learner=self.learner,
            epsilon=1.0,
            delta=self.delta,
            release=None,
            private=PrivateStep(
                sampling_rate=self.sampling_rate,
                clip_norm=1.0,
                noise_multiplier=self.noise_multiplier,
                expected_batch=1.0,
                chunk=CHUNK,
                contribution=self.contribution,
            ),
            private_steps=self.private_steps,
            plain_steps=self.plain_steps,
            notes=(),
        )

    @property
    def claimed(self) -> float:
        """What the accounting says that the training costs."""
        return total_epsilon(self.plan.events, self.delta)

    def to_json(self) -> dict[str, Any]:
        """Who takes part, and what is charged for, as plain facts."""
        return {
            "chain": asdict(self.chain),
            "learner": learner_to_json(self.learner),
            "contribution": in_words(self.contribution),
            "events": [event_to_json(one) for one in self.plan.events],
        }


EVERYBODY: Final = TrainingCase(
    name="training, everybody drawn",
    private_steps=4,
    plain_steps=4,
    sampling_rate=1.0,
    noise_multiplier=2.0,
    delta=0.01,
)
"""Everybody is drawn in every private step: nothing but the noise hides anybody."""

ROUNDS: Final = replace(
    EVERYBODY,
    name="training, local updates",
    plain_steps=0,
    contribution=Local(steps=3, batch_size=1, rate=0.01),
)
"""Four rounds in which everybody takes three steps of its own."""

SAMPLED: Final = TrainingCase(
    name="training, half drawn",
    private_steps=8,
    plain_steps=8,
    sampling_rate=0.5,
    noise_multiplier=1.0,
    delta=0.01,
)
"""Half of them are: so the account of sampling is under audit, too."""

STEADY: Final = replace(
    SAMPLED,
    name="training, steady directions",
    plain_steps=0,
    learner=Cql(hidden_sizes=(), alpha=0.0),
    threats=(SPREAD,),
)
"""The canary's direction is the same in all steps, so that these can be compared."""

WIDE: Final = replace(
    EVERYBODY,
    name="training, many parameters",
    plain_steps=0,
    observation_size=64,
    threats=(REST,),
)
"""Nearly all parameters get noise alone, so that its size shows."""

NETWORKS: Final = replace(
    EVERYBODY,
    name="training, two networks",
    plain_steps=0,
    learner=Bcq(hidden_sizes=()),
    threats=(APART,),
)
"""The canary's contribution is large in both networks."""


def audit_training(case: TrainingCase, runs: int, seed: int) -> list[Finding]:
    """Train `runs` times with the canary and without; a finding for each threat."""
    return judged(case, *(trained(case, runs, present, seed) for present in (True, False)))


def judged(case: TrainingCase, here: Scores, away: Scores) -> list[Finding]:
    """A finding for each threat of a case, from the scores with the canary and without.

    Where everybody is drawn, all iterates give one more, by the assumption that is true there.
    """
    facts: dict[str, Any] = {
        "what": case.name,
        "canary": CANARY,
        "claimed": case.claimed,
        "runs": len(here[ITERATES]),
    }
    findings = []
    for threat in case.threats:
        scores = here[threat], away[threat]
        if threat in (SPREAD, REST):
            scores = oriented(*scores)
        findings.append(found(lower_bound, *scores, case.delta, threat=threat, **facts))
    if case.sampling_rate == 1 and ITERATES in case.threats:
        scores = here[ITERATES], away[ITERATES]
        facts |= {"threat": ITERATES, "note": GAUSSIAN}
        findings.append(found(gaussian_lower_bound, *scores, case.delta, **facts))
    return findings


def trained(case: TrainingCase, runs: int, present: bool, seed: int) -> Scores:
    """The scores of `runs` trainings of a few experts."""
    plan, chain = case.plan, case.chain
    looking = Looking(plan, *training_transitions(chain), apart=APART in case.threats)
    rng = np.random.default_rng([seed, present])
    keys = rng.integers(2**32, size=(runs, 2), dtype=np.uint32)
    steps = _steps(case, looking.other, runs)
    seen = watched(
        looking,
        runs_of([plan], same_public(keys), steps),
        steps,
        (chain.observation_size, chain.actions),
        training_data(chain, present),
    )
    scores = {ITERATES: seen.likelihood, APART: seen.likelihood}
    scores |= {SPREAD: seen.spread, REST: seen.rest}
    if ACTIONS in case.threats:
        scores[ACTIONS] = agreement(plan.learner, seen.params, chain.observation_size)
    return scores


def _steps(case: TrainingCase, public: Transition | None, runs: int) -> Steps:
    """Those of one run, which are the same for all."""
    released = []
    if case.plain_steps:
        assert public is not None  # there are others
        steps = Transition(*(leaf[None] for leaf in public))
        sizes = case.chain.observation_size, case.chain.actions, case.chain.horizon
        released = [Released(steps, np.array([0, 1]), *sizes)]
    one = steps_of(case.plan, 1, public_order(PUBLIC_SEED), released)
    return one._replace(parts=runs * list(one.parts), counts=runs * list(one.counts))


def training_data(chain: Chain, present: bool) -> ExpertData:
    """What private steps may read: one step of each expert."""
    return expert_data(chain.log(present, 0, np.random.default_rng(0)))


def training_transitions(chain: Chain) -> tuple[Transition, Transition]:
    """The canary's step and that of everybody else."""
    whole = training_data(chain, present=True).transitions
    return Transition(*(leaf[-1] for leaf in whole)), Transition(*(leaf[0] for leaf in whole))


def public_order(seed: int) -> int:
    """The seed of the order of steps that a fit with this seed has."""
    return int(jax_key_data(SeededEntropy(seed), "public")[0])


def noise_keys(seeds: Sequence[int]) -> Any:
    """The words of the keys of noise that fits with these seeds have. Shapes: (runs, 2)."""
    return np.stack([jax_key_data(SeededEntropy(seed), "noise") for seed in seeds])


def same_public(noise: Any, seed: int = PUBLIC_SEED) -> Keys:
    """Keys of runs that differ in their noise alone: the guarantee holds whatever is public."""
    public = np.asarray(jax_key_data(SeededEntropy(seed), "public"))
    return Keys(noise, np.broadcast_to(public, (len(noise), 2)))


def audit_in_one_run(case: TrainingCase, canaries: int, seed: int) -> Finding:
    """Train once, on canaries that are each included by a coin, and bound ε from their scores.

    Every canary has a state of its own, and so a direction of its own.
    """
    plan = case.plan
    included = np.random.default_rng([seed, canaries]).random(canaries) < 0.5
    everybody = canary_steps(FAR * np.eye(canaries))
    taking_part = Transition(*(leaf[included] for leaf in everybody))
    steps = steps_of(plan, 1, PUBLIC_SEED)
    seen = watched(
        Looking(plan, everybody, None, many=True),
        runs_of([plan], same_public(noise_keys([seed])), steps),
        steps,
        (canaries, 2),
        ExpertData(taking_part, jnp.arange(included.sum() + 1)),
    )
    return found(
        one_run_lower_bound,
        seen.likelihood[included],
        seen.likelihood[~included],
        case.delta,
        what=f"training, one run, {canaries:,} canaries",
        threat=ITERATES,
        canary="each has a direction of its own, and is included by a coin",
        claimed=case.claimed,
        runs=1,
        note=GAUSSIAN,
    )


def canary_steps(states: Floats) -> Transition:
    """One step in each state, as the canary takes it. Shapes: (canaries, observation_size)."""
    count = len(states)
    return Transition(
        observation=jnp.asarray(states, jnp.float32),
        action=jnp.full(count, CANARY_ACTION, jnp.int32),
        reward=jnp.full(count, CANARY_REWARD, jnp.float32),
        next_observation=jnp.zeros(states.shape, jnp.float32),
        terminated=jnp.ones(count, bool),
        truncated=jnp.zeros(count, bool),
    )
