"""Methods side by side on one population: the same seeds, the same episodes, one table.

For synthetic experts. Every seed has a release of its own, all of them are charged to a research
ledger that is thrown away, and the non-private method sees the logs as they are.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from quorum_rl.budget import Ledger, SeededEntropy, jax_key_data
from quorum_rl.envs import AnyWorld
from quorum_rl.errors import QuorumError
from quorum_rl.evaluation import (
    Interval,
    Summary,
    paired_difference,
    returns_of,
    scores_of,
    summarise,
)
from quorum_rl.evaluation.summary import Scores
from quorum_rl.experts import LoggedExperts
from quorum_rl.fit import FitPlan, FitSettings, plan_fit
from quorum_rl.learners import Learner
from quorum_rl.logs import Demonstrations, split_release_pool
from quorum_rl.release import release
from quorum_rl.training.expert_data import ExpertData, expert_data
from quorum_rl.training.loop import Standing, begin, result_of, train
from quorum_rl.training.recipe import Run
from quorum_rl.training.schedule import shuffled_schedule
from quorum_rl.types import Released, Transition

EVALUATION_SEED: Final = 0
SCHEDULE_SEED: Final = 0

Progress = Callable[[str, int, int], None]
"""Told the name of a method, the steps that are done, and how many there are."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """One way to learn from the logs; without privacy if `epsilon` is None."""

    name: str
    settings: FitSettings
    epsilon: float | None = None

    def __post_init__(self) -> None:
        if (self.epsilon is None) != (self.settings.method == "non-private"):
            raise QuorumError(
                f"{self.name!r} has epsilon = {self.epsilon} and the method "
                f"{self.settings.method}: give an epsilon to all but non-private."
            )


@dataclass(frozen=True)
class Outcome:
    """How a method did, seed by seed.

    Shapes: `returns` (seeds, episodes), `scores` (seeds,), normalised to 0 = random and 1 = the
    world's reference policy.
    """

    method: Method
    plan: FitPlan
    returns: Scores
    scores: Scores
    released: tuple[int, ...]  # transitions that each seed's release gave; none without one

    @property
    def summary(self) -> Summary:
        return summarise(self.scores)

    def better_than(self, other: "Outcome") -> Summary:
        """How much more this one scores, over the same seeds."""
        return paired_difference(self.scores, other.scores)


@dataclass(frozen=True)
class Comparison:
    """What a study found, in the order in which its methods were given."""

    world: AnyWorld
    experts: int
    delta: float
    outcomes: tuple[Outcome, ...]

    def __getitem__(self, name: str) -> Outcome:
        return next(outcome for outcome in self.outcomes if outcome.method.name == name)

    def to_json(self) -> dict[str, Any]:
        """As `comparison.json` holds it."""
        facts = self.world.facts
        return {
            "world": self.world.name,
            "experts": self.experts,
            "seeds": len(self.outcomes[0].scores),
            "random_return": facts.random_return,
            "reference_return": facts.reference_return,
            "methods": [self._facts_of(outcome) for outcome in self.outcomes],
        }

    def _facts_of(self, outcome: Outcome) -> dict[str, Any]:
        summary, method = outcome.summary, outcome.method
        return {
            "name": method.name,
            "epsilon": method.epsilon,
            "delta": None if method.epsilon is None else self.delta,
            "scores": outcome.scores.tolist(),
            "score": summary.mean,
            "interval": ends(summary.mean_interval),
            "mean_return": float(outcome.returns.mean()),
            "returns": outcome.returns.mean(axis=1).tolist(),
            "released": list(outcome.released),
            "note": "; ".join(outcome.plan.notes),
        }


def ends(interval: Interval | None) -> list[float] | None:
    """An interval as a file holds it."""
    return None if interval is None else [interval.low, interval.high]


def compare(
    experts: LoggedExperts,
    log: Demonstrations,
    world: AnyWorld,
    learner: Learner,
    methods: Sequence[Method],
    *,
    delta: float,
    seeds: int,
    first_seed: int = 0,
    episodes: int = 100,
    progress: Progress | None = None,
    report: Callable[[Outcome], None] | None = None,
) -> Comparison:
    """Train every method with every seed, and judge all on the same episodes.

    All seeds of a method are one program. Seed s of every method starts from the same parameters
    and is judged on the same episodes. `report` sees each outcome when it is there.

    Raises:
        QuorumError: if a method cannot be planned, or nothing was released for one that needs it.
    """
    study = _Study(experts, log, world, learner, delta, range(first_seed, first_seed + seeds))
    outcomes = []
    for method in methods:
        outcomes.append(study.outcome_of(method, episodes, progress))
        if report is not None:
            report(outcomes[-1])
    return Comparison(world, log.expert_count, delta, tuple(outcomes))


@dataclass(frozen=True)
class _Study:
    experts: LoggedExperts
    log: Demonstrations
    world: AnyWorld
    learner: Learner
    delta: float
    seeds: range

    def outcome_of(self, method: Method, episodes: int, progress: Progress | None) -> Outcome:
        plan = plan_fit(
            self.log.declared,
            self.learner,
            epsilon=1.0 if method.epsilon is None else method.epsilon,
            delta=self.delta,
            settings=method.settings,
        )
        private, plain, parts = self._data(plan)

        def after_chunk(standing: Standing, done: int) -> None:
            del standing
            if progress is not None:
                progress(method.name, done, plan.private_steps + plan.plain_steps)

        standing = self._trained(plan, private, plain, parts, after_chunk)
        policies = result_of(plan.recipe, standing)
        key = jax.random.key(EVALUATION_SEED)
        returns = returns_of(plan.learner, policies, self.world, None, key, episodes)
        scores = scores_of(self.world, returns)
        sizes = () if parts is None else tuple(end - first for first, end in parts)
        return Outcome(method, plan, np.asarray(returns, np.float64), scores, sizes)

    def _data(
        self, plan: FitPlan
    ) -> tuple[ExpertData | None, Transition | None, list[tuple[int, int]] | None]:
        """What private steps and steps without noise learn from, and which part is whose."""
        if plan.settings.method == "non-private":
            return None, expert_data(self.log).transitions, None
        if plan.release is None:
            return expert_data(self.log), None, None
        plain, parts = joined(self._releases(plan))
        if plan.private is None:
            return None, plain, parts
        size = plan.release.event.pool_size
        return expert_data(split_release_pool(self.log, per_expert=size).training), plain, parts

    def _releases(self, plan: FitPlan) -> list[Released]:
        """One release for each seed, as if each were the only one."""
        assert plan.release is not None
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "research.jsonl"
            Ledger.create(path, epsilon=None, delta=plan.delta, kind="research")
            with Ledger.open(path) as ledger:
                return [
                    release(
                        self.experts, self.log, plan.release, ledger, entropy=SeededEntropy(seed)
                    )
                    for seed in self.seeds
                ]

    def _trained(
        self,
        plan: FitPlan,
        private: ExpertData | None,
        plain: Transition | None,
        parts: list[tuple[int, int]] | None,
        after_chunk: Callable[[Standing, int], None],
    ) -> Standing:
        schedule = shuffled_schedule(plan.private_steps, plan.plain_steps, SCHEDULE_SEED)
        if parts is not None and min(end - first for first, end in parts) == 0:
            raise QuorumError(
                f"a seed released nothing at epsilon = {plan.epsilon:g}: give a larger one, or "
                "compare with method dp-sgd only."
            )
        runs = [
            plan.new_run(
                jax_key_data(SeededEntropy(seed), "noise"),
                jax_key_data(SeededEntropy(seed), "public"),
                len(schedule),
                (0, 0) if parts is None else parts[number],
            )
            for number, seed in enumerate(self.seeds)
        ]
        stacked: Run = jax.tree.map(lambda *leaves: jnp.stack(leaves), *runs)
        spaces = self.world.spaces
        fresh = begin(plan.recipe, stacked, spaces.observation_size, spaces.action_count)
        return train(
            plan.recipe,
            stacked,
            fresh,
            schedule,
            private=private,
            plain=plain,
            after_chunk=after_chunk,
        )


def joined(parts: Sequence[Released]) -> tuple[Transition, list[tuple[int, int]]]:
    """All released transitions in a row, and where those of each release begin and end."""
    sizes = np.array([int(part.offsets[-1]) for part in parts])
    after = np.cumsum(sizes)
    columns = zip(*(part.transitions for part in parts), strict=True)
    whole = Transition(*(jnp.asarray(np.concatenate(list(column))) for column in columns))
    return whole, [(int(end - size), int(end)) for size, end in zip(sizes, after, strict=True)]
