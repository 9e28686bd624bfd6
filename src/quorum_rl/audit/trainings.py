"""Audits of the training alone: thousands of real trainings in one program, and one of many
canaries."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from quorum_rl.audit.bounds import Floats, gaussian_lower_bound, lower_bound, one_run_lower_bound
from quorum_rl.audit.chain import CANARY_ACTION, CANARY_REWARD, FAR, Chain
from quorum_rl.audit.finding import ACTIONS, GAUSSIAN, ITERATES, Finding, found
from quorum_rl.audit.watching import Looking, agreement, watched
from quorum_rl.budget import SeededEntropy, jax_key_data
from quorum_rl.fit import FitPlan, FitSettings
from quorum_rl.learners import Cql
from quorum_rl.privacy import total_epsilon
from quorum_rl.training.contributions import Gradient
from quorum_rl.training.expert_data import ExpertData, expert_data
from quorum_rl.training.mechanism import PrivateStep
from quorum_rl.training.recipe import Run
from quorum_rl.training.schedule import shuffled_schedule
from quorum_rl.types import Transition

PUBLIC_SEED: Final = 0
OTHERS: Final = 3  # whose gradients are known, so more would add nothing
FEW: Final = Chain(others=OTHERS, actions=2, horizon=1, p_min=0.1, leaves_at=0)
CANARY: Final = "an expert whose gradient is clipped, in a direction of its own"


@dataclass(frozen=True, kw_only=True)
class TrainingCase:
    """A selective training that is accounted, and audited, by itself."""

    name: str
    private_steps: int
    plain_steps: int
    sampling_rate: float
    noise_multiplier: float
    delta: float

    @property
    def plan(self) -> FitPlan:
        """A plan with these numbers: plain gradient descent, at rates that stay as they are."""
        return FitPlan(
            settings=FitSettings(
                optimiser="sgd",
                learning_rate=1e-3,
                private_learning_rate=1.0,
                falling_rates=False,
                averaging=0.0,
                batch_size=4,
            ),
            learner=Cql(hidden_sizes=()),
            epsilon=1.0,
            delta=self.delta,
            release=None,
            private=PrivateStep(
                sampling_rate=self.sampling_rate,
                clip_norm=1.0,
                noise_multiplier=self.noise_multiplier,
                expected_batch=1.0,
                chunk=8,
                contribution=Gradient(transitions=1),
            ),
            private_steps=self.private_steps,
            plain_steps=self.plain_steps,
            notes=(),
        )


EVERYBODY: Final = TrainingCase(
    name="training, everybody drawn",
    private_steps=4,
    plain_steps=4,
    sampling_rate=1.0,
    noise_multiplier=2.0,
    delta=0.01,
)
"""Everybody is drawn in every private step: nothing but the noise hides anybody."""

SAMPLED: Final = TrainingCase(
    name="training, half drawn",
    private_steps=8,
    plain_steps=8,
    sampling_rate=0.5,
    noise_multiplier=1.0,
    delta=0.01,
)
"""Half of them are: so the account of sampling is under audit, too."""


def audit_training(case: TrainingCase, runs: int, seed: int) -> list[Finding]:
    """Train `runs` times with the canary and without; both threat models."""
    plan = case.plan
    claimed = total_epsilon(plan.events, case.delta)
    seen = [trained(plan, runs, present, seed) for present in (True, False)]
    (here, acted_here), (away, acted_away) = seen
    facts: dict[str, Any] = {
        "what": case.name,
        "canary": CANARY,
        "claimed": claimed,
        "runs": runs,
    }
    findings = [
        found(lower_bound, here, away, case.delta, threat=ITERATES, **facts),
        found(lower_bound, acted_here, acted_away, case.delta, threat=ACTIONS, **facts),
    ]
    if case.sampling_rate == 1:
        facts["note"] = GAUSSIAN
        findings.append(
            found(gaussian_lower_bound, here, away, case.delta, threat=ITERATES, **facts)
        )
    return findings


def trained(plan: FitPlan, runs: int, present: bool, seed: int) -> tuple[Floats, Floats]:
    """The scores of `runs` trainings of a few experts, by all iterates and by final actions.

    Shapes: `(runs,)` each.
    """
    looking = Looking(plan, *training_transitions(FEW))
    public_seed = int(public_words(PUBLIC_SEED)[0])
    schedule = shuffled_schedule(plan.private_steps, plan.plain_steps, public_seed)
    rng = np.random.default_rng([seed, present])
    keys = rng.integers(2**32, size=(runs, 2), dtype=np.uint32)
    stacked = stacked_runs(plan, keys, len(schedule))
    public = jax.tree.map(lambda leaf: leaf[None], looking.other) if plan.plain_steps else None
    sizes = FEW.observation_size, FEW.actions
    score, params = watched(looking, stacked, schedule, sizes, training_data(FEW, present), public)
    return score, agreement(plan.learner, params, FEW.observation_size)


def training_data(chain: Chain, present: bool) -> ExpertData:
    """What private steps may read: one step of each expert."""
    return expert_data(chain.log(present, 0, np.random.default_rng(0)))


def training_transitions(chain: Chain) -> tuple[Transition, Transition]:
    """The canary's step and that of everybody else."""
    whole = training_data(chain, present=True).transitions
    return Transition(*(leaf[-1] for leaf in whole)), Transition(*(leaf[0] for leaf in whole))


def public_words(seed: int) -> Any:
    """The words of a fit's public key."""
    return jax_key_data(SeededEntropy(seed), "public")


def noise_keys(seeds: Sequence[int]) -> Any:
    """The words of the keys of noise that fits with these seeds have. Shapes: (runs, 2)."""
    return np.stack([jax_key_data(SeededEntropy(seed), "noise") for seed in seeds])


def stacked_runs(
    plan: FitPlan,
    keys: Any,
    steps: int,
    parts: Sequence[tuple[int, int]] = (),
    public_seed: int = PUBLIC_SEED,
) -> Run:
    """Runs that differ in their noise, and in their own part of the released transitions if any.

    What is public is the same for all: the guarantee holds whatever it is.

    Shapes: `keys` (runs, 2), the words of the keys of their noise.
    """
    public = public_words(public_seed)
    one = plan.new_run(public, public, steps)
    run: Run = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(keys), *leaf.shape)), one)
    first, end = np.asarray(parts).T if len(parts) else np.zeros((2, len(keys)), np.int64)
    own = jnp.asarray(first), jnp.asarray(end)
    return replace(run, noise_key=jnp.asarray(keys), plain_part=own)


def audit_in_one_run(case: TrainingCase, canaries: int, seed: int) -> Finding:
    """Train once, on canaries that are each included by a coin, and bound ε from their scores.

    Every canary has a state of its own, and so a direction of its own.
    """
    plan = replace(case.plan, plain_steps=0)
    included = np.random.default_rng([seed, canaries]).random(canaries) < 0.5
    everybody = Transition(
        observation=jnp.asarray(FAR * np.eye(canaries), jnp.float32),
        action=jnp.full(canaries, CANARY_ACTION, jnp.int32),
        reward=jnp.full(canaries, CANARY_REWARD, jnp.float32),
        next_observation=jnp.zeros((canaries, canaries), jnp.float32),
        terminated=jnp.ones(canaries, bool),
        truncated=jnp.zeros(canaries, bool),
    )
    taking_part = Transition(*(leaf[included] for leaf in everybody))
    schedule = shuffled_schedule(plan.private_steps, 0, PUBLIC_SEED)
    scores, _ = watched(
        Looking(plan, everybody, None, many=True),
        stacked_runs(plan, noise_keys([seed]), len(schedule)),
        schedule,
        (canaries, 2),
        ExpertData(taking_part, jnp.arange(included.sum() + 1)),
        None,
    )
    return found(
        one_run_lower_bound,
        scores[included],
        scores[~included],
        case.delta,
        what=f"training, one run, {canaries:,} canaries",
        threat=ITERATES,
        canary="each has a direction of its own, and is included by a coin",
        claimed=total_epsilon(plan.events, case.delta),
        runs=1,
        note=GAUSSIAN,
    )
