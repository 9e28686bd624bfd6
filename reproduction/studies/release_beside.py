r"""What a release beside private steps changes, one thing at a time.

A fit with both stages differs from private steps alone in three things: more noise, since the
release has a part of ε; fewer trajectories, since those of the release's pool are not trained on;
and steps without noise on what was released. Each is left out in turn, on small experts that are
cut to as many as the paper's (a proxy, as in `tuning.py`). Small experts part sooner than the
paper's, so what is released is not drawn by a release of theirs: it is as much of trajectories of
the pool as experts agree on to a given share, without noise, which is chosen so that prefixes are
as long as those of the paper's experts.

    quorum experts train HIV --preset small --seed 1 --out small.safetensors
    python -m reproduction.studies.release_beside small.safetensors --learner bcq --agreement 0.1 \
      --transitions 16 --out results/beside.parquet
"""

import argparse
from dataclasses import replace
from typing import Any, Final, NamedTuple

import jax
import numpy as np

from quorum_rl.budget import SeededEntropy, jax_key_data
from quorum_rl.envs import AnyWorld
from quorum_rl.errors import QuorumError
from quorum_rl.evaluation import returns_of
from quorum_rl.experts import LoggedExperts
from quorum_rl.learners import Learner
from quorum_rl.logs import Demonstrations, split_release_pool
from quorum_rl.logs.agreement import prefix_counts
from quorum_rl.pipeline import (
    FitPlan,
    FitSettings,
    Keys,
    fresh,
    plan_fit,
    runs_of,
    steps_of,
    train_runs,
)
from quorum_rl.training import ExpertData, result_of
from quorum_rl.types import Released, Transition
from reproduction.columns import learner_of
from reproduction.population import TRAJECTORIES, acted
from reproduction.published_settings import EXPERTS
from reproduction.studies.samples import check_counts, cut_to
from reproduction.studies.study import opened, parser_for_a_study, run
from reproduction.studies.tuning import EPISODES_KEY

SCHEDULE_SEED: Final = 0
AT_ONCE: Final = 250
USUAL: Final = FitSettings(method="selective").filled()


class Way(NamedTuple):
    """Both stages, or some of what tells them from private steps alone."""

    name: str
    more_noise: bool = True
    fewer_trajectories: bool = True
    steps_on_prefixes: bool = True


WAYS: Final = (
    Way("both stages"),
    Way("without steps on prefixes", steps_on_prefixes=False),
    Way("with all trajectories", fewer_trajectories=False),
    Way("private steps alone", False, False, False),
)


class Plans(NamedTuple):
    """As if there were as many experts as the paper has."""

    both: FitPlan
    alone: FitPlan

    def of(self, way: Way) -> FitPlan:
        return self.both if way.more_noise else self.alone


def plans_of(log: Demonstrations, learner: Learner, given: argparse.Namespace) -> Plans:
    """
    Raises:
        QuorumError: if no release would be made.
    """
    declared = replace(log.declared, minimum_experts=EXPERTS - 1)
    usual = replace(USUAL, transitions_per_expert=given.transitions, private_steps=given.steps)
    both, alone = (
        plan_fit(declared, learner, epsilon=given.epsilon, delta=1 / EXPERTS, settings=settings)
        for settings in (usual, replace(usual, method="dp-sgd"))
    )
    if both.release is None:
        raise QuorumError(f"at ε = {given.epsilon:g} a fit makes no release: give another.")
    return Plans(both, alone)


def agreed_prefixes(
    experts: LoggedExperts, pool: Demonstrations, count: int, share: float, seed: int
) -> Released:
    """What random trajectories of the pool begin with, while so many of the experts agree."""
    chosen = np.sort(np.random.default_rng(seed).choice(len(pool), count, replace=False))
    some = pool.select(chosen).compacted()
    agreed = prefix_counts(experts, some) >= share * len(experts)
    lengths = agreed.sum(axis=1)[agreed.any(axis=1)]
    if not len(lengths):
        raise QuorumError(f"--agreement is {share}, and nothing is agreed on so far: give less.")
    firsts = some.transition_offsets[:-1][agreed.any(axis=1)]
    ends = np.cumsum(lengths)
    steps = np.arange(ends[-1]) + np.repeat(firsts - (ends - lengths), lengths)
    released = Transition._make(np.array(column) for column in some.transitions(steps))
    released.truncated[ends - 1] = ~released.terminated[ends - 1]
    declared = pool.declared
    return Released(
        released,
        np.append(0, ends),
        declared.observation_size,
        declared.action_count,
        declared.horizon,
    )


def returns(
    way: Way,
    plans: Plans,
    world: AnyWorld,
    data: ExpertData,
    released: list[Released],
    given: argparse.Namespace,
) -> list[float]:
    """What every seed earns in one way."""
    plan = plans.of(way)
    beside = plans.both.plain_steps if way.steps_on_prefixes else 0
    taken = replace(plan, plain_steps=beside)
    steps = steps_of(taken, given.seeds, SCHEDULE_SEED, released if beside else ())
    words = [
        np.stack([jax_key_data(SeededEntropy(seed), name) for seed in range(given.seeds)])
        for name in Keys._fields
    ]
    runs = runs_of([taken], Keys(*words), steps)
    spaces = world.spaces
    start = fresh(taken, runs, (spaces.observation_size, spaces.action_count))
    standing = train_runs(taken, runs, steps, start, data, steps_at_once=AT_ONCE)
    key = jax.random.key(EPISODES_KEY)
    params = result_of(plan.recipe, standing)
    earned = returns_of(plan.learner, params, world, None, key, given.episodes)
    return np.asarray(earned, np.float64).mean(axis=1).tolist()  # type: ignore[no-any-return]


def measured(given: argparse.Namespace) -> None:
    asked = ("learner", "epsilon", "agreement", "transitions", "steps", "seeds", "episodes")
    study = opened(given, "beside", *asked)
    world = study.source.world
    log, experts = acted(study.source.experts(), world, seed=0)
    plans = plans_of(log, learner_of(log.declared, given.learner), given)
    assert plans.both.release is not None  # checked before
    event = plans.both.release.event
    split = split_release_pool(log, per_expert=event.pool_size)
    pool = split.pool.compacted()
    released = [
        agreed_prefixes(experts, pool, event.iterations, given.agreement, seed)
        for seed in range(given.seeds)
    ]
    print([int(prefixes.offsets[-1]) for prefixes in released], "transitions released", flush=True)
    fewer, every = (cut_to(some, EXPERTS) for some in (split.training, log))
    rows: list[dict[str, Any]] = []
    for way in WAYS:
        data = fewer if way.fewer_trajectories else every
        noise = plans.of(way).private
        assert noise is not None  # every way has private steps
        earned = returns(way, plans, world, data, released, given)
        rows.append(way._asdict() | {"noise": noise.noise_multiplier, "returns": earned})
        print(rows[-1], flush=True)
    study.save(
        {
            "released": [int(prefixes.offsets[-1]) for prefixes in released],
            "trajectories": TRAJECTORIES,
            "pool": event.pool_size,
            "iterations": event.iterations,
            "plain_steps": plans.both.plain_steps,
            "ways": rows,
        }
    )


def main() -> None:
    parser = parser_for_a_study(__doc__ or "", samples=False)
    parser.add_argument("--epsilon", type=float, default=5.0)
    parser.add_argument("--agreement", type=float, default=0.5, help="share of the experts")
    parser.add_argument("--transitions", type=int, default=USUAL.transitions_per_expert)
    parser.add_argument("--steps", type=int, default=USUAL.private_steps)
    given = parser.parse_args()
    check_counts(parser, given, "transitions", "steps", "seeds", "episodes")
    if not 0 < given.agreement <= 1:
        parser.error(f"--agreement is {given.agreement}: give a share above 0 and at most 1")
    run(parser, given, measured)


if __name__ == "__main__":
    main()
