"""One population, some seeds: what is released to each, and who is trained together with whom.

Trainings that take the same steps on the same data are one program, whatever their noise: that is
what makes a study of twenty methods affordable. Data is padded to common lengths, so that
programs that differ in nothing else are compiled once.
"""

import tempfile
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from quorum_rl.budget import Entropy, Ledger, SeededEntropy, jax_key_data
from quorum_rl.envs import AnyWorld
from quorum_rl.errors import TooLittleBudgetError
from quorum_rl.evaluation import PROTOCOLS, Protocol, Scores, returns_of, scores_of
from quorum_rl.experts import LoggedExperts
from quorum_rl.learners import Learner
from quorum_rl.logs import Demonstrations, split_release_pool
from quorum_rl.pipeline import FitPlan, FitSettings, plan_fit
from quorum_rl.pipeline.driver import Keys, Steps, fresh, runs_of, steps_of, train_runs
from quorum_rl.privacy import ReleasePlan
from quorum_rl.release import release
from quorum_rl.training import STEPS_AT_ONCE, ExpertData, TrainState, expert_data, result_of
from quorum_rl.types import Released

EVALUATION_SEED: Final = 0
SCHEDULE_SEED: Final = 0
# On a GPU a step of few small runs is over before the host has looked at the chunk before.
LONG_TRAINING: Final = 100_000
LONG_CHUNK: Final = 1000  # as far apart as the paper's evaluations, so that each has its own

Progress = Callable[[int, int], None]
"""Told how much is done, usually steps of all trainings, and how much there is."""

Policies = list[Any]
"""Trained parameters, once for each evaluation; every leaf has a first axis of seeds."""


@dataclass(frozen=True)
class Study:
    """What all methods of a comparison share. Releases are made once, whoever learns from them.

    Seed s of every method has the same keys, unless `entropy_of` says otherwise: it is told the
    number of the plan among those that are trained, and the seed. Without `experts` no plan may
    have a release that was not made before (`use_release`).
    """

    experts: LoggedExperts | None
    log: Demonstrations
    world: AnyWorld
    delta: float
    seeds: range
    entropy_of: Callable[[int, int], Entropy] = lambda _, seed: SeededEntropy(seed)
    _releases: dict[Hashable, list[Released]] = field(default_factory=dict)
    _data: dict[int, ExpertData] = field(default_factory=dict)

    def planned(self, learner: Learner, settings: FitSettings, epsilon: float | None) -> FitPlan:
        """How a method would spend its budget; without privacy if `epsilon` is None."""
        return plan_fit(
            self.log.declared,
            learner,
            epsilon=1.0 if epsilon is None else epsilon,
            delta=self.delta,
            settings=settings,
        )

    def check_releases(self, plan: FitPlan) -> None:
        """Make the releases of a plan.

        Raises:
            TooLittleBudgetError: if nothing comes out of one of them, and no step is private.
        """
        sizes = self.released_by(plan)
        if plan.private is None and 0 in sizes:
            raise TooLittleBudgetError(
                f"{sizes.count(0)} of {len(sizes)} seeds release nothing at epsilon = "
                f"{plan.epsilon:g}: give a larger one, or compare with method dp-sgd only."
            )

    def released_by(self, plan: FitPlan) -> tuple[int, ...]:
        """How many transitions each seed's release gives; nothing for a plan without one."""
        if plan.release is None:
            return ()
        return tuple(
            int(released.offsets[-1]) for released in self._released(plan.release, plan.delta)
        )

    def _released(self, plan: ReleasePlan, delta: float) -> list[Released]:
        """One release for each seed, as if each were the only one."""
        key = repr(plan)
        if key not in self._releases:
            assert self.experts is not None  # or nothing would have been planned to be released
            with research_ledger(delta) as ledger:
                self._releases[key] = [
                    release(
                        self.experts, self.log, plan, ledger, entropy=SeededEntropy(seed)
                    ).released
                    for seed in self.seeds
                ]
        return self._releases[key]

    def use_release(self, plan: ReleasePlan, released: Released) -> None:
        """Let every seed learn from a release that was made, and paid for, before."""
        self._releases[repr(plan)] = [released for _ in self.seeds]

    def trained(self, plans: Sequence[FitPlan], progress: Progress | None = None) -> list[Policies]:
        """Policies of every plan, all that take the same steps on the same data together."""
        groups: dict[Hashable, list[int]] = {}
        for number, plan in enumerate(plans):
            groups.setdefault(togetherness(plan), []).append(number)
        total = sum(
            plans[group[0]].private_steps + plans[group[0]].plain_steps for group in groups.values()
        )
        policies: list[Policies] = [[] for _ in plans]
        before = 0
        for group in groups.values():
            shared = plans[group[0]]

            def tell(done: int, before: int = before) -> None:
                if progress is not None:
                    progress(before + done, total)

            for stacked in self._trained_together(plans, group, tell):
                for place, number in enumerate(group):
                    part = slice(place * len(self.seeds), (place + 1) * len(self.seeds))
                    policies[number].append(
                        jax.tree.map(lambda leaf, part=part: leaf[part], stacked)
                    )
            before += shared.private_steps + shared.plain_steps
        return policies

    def _trained_together(
        self, plans: Sequence[FitPlan], group: list[int], tell: Callable[[int], None]
    ) -> list[Any]:
        """The parameters of all runs of a group, whenever they are to be evaluated."""
        shared = plans[group[0]]
        kept: list[Any] = []
        mine = [plans[number] for number in group for _ in self.seeds]
        steps = self._steps(shared, [plans[number] for number in group])
        wanted = list(_protocol(shared).steps(len(steps.schedule)))

        def after_chunk(state: TrainState, done: int) -> None:
            tell(done)
            while wanted and wanted[0] <= done:  # at the end of the chunk that has the step
                wanted.pop(0)
                kept.append(jax.tree.map(jnp.copy, result_of(shared.recipe, state)))

        entropies = [self.entropy_of(number, seed) for number in group for seed in self.seeds]
        words = (
            np.stack([jax_key_data(entropy, name) for entropy in entropies])
            for name in Keys._fields
        )
        runs = runs_of(mine, Keys(*words), steps)
        spaces = self.world.spaces
        train_runs(
            shared,
            runs,
            steps,
            fresh(shared, runs, (spaces.observation_size, spaces.action_count)),
            self._private(shared),
            after_chunk,
            LONG_CHUNK if len(steps.schedule) >= LONG_TRAINING else STEPS_AT_ONCE,
        )
        return kept

    def _steps(self, shared: FitPlan, plans: list[FitPlan]) -> Steps:
        """The steps of a group."""
        released: list[Released] = []
        for plan in plans:
            if plan.release is not None:
                released += self._released(plan.release, plan.delta)
        free = shared.settings.method == "non-private"
        everything = self._whole(0).transitions if free else None
        runs = len(plans) * len(self.seeds)
        return steps_of(shared, runs, SCHEDULE_SEED, released, everything)

    def _private(self, plan: FitPlan) -> ExpertData | None:
        """What private steps learn from: what no release may touch."""
        if plan.private is None:
            return None
        return self._whole(0 if plan.release is None else plan.release.event.pool_size)

    def _whole(self, pool_size: int) -> ExpertData:
        """Everybody's transitions without the pool, padded to the length of those with it."""
        if pool_size not in self._data:
            log = self.log
            if pool_size:
                log = split_release_pool(log, per_expert=pool_size).training
            self._data[pool_size] = with_room(expert_data(log), self.log.transition_count)
        return self._data[pool_size]

    def judged(
        self, learners: Sequence[Learner], policies: Sequence[Policies], episodes: int
    ) -> list[tuple[Scores, Scores]]:
        """The returns (seeds, all episodes) and scores (seeds,) of each method's policies.

        Seed s of every method, and of every evaluation of it, meets the same episodes.
        """
        found: dict[int, tuple[Scores, Scores]] = {}
        for learner in dict.fromkeys(learners):
            mine = [number for number, other in enumerate(learners) if other == learner]
            together = self._judged_together(learner, [policies[n] for n in mine], episodes)
            found |= dict(zip(mine, together, strict=True))
        return [found[number] for number in range(len(learners))]

    def _judged_together(
        self, learner: Learner, policies: Sequence[Policies], episodes: int
    ) -> Iterator[tuple[Scores, Scores]]:
        """As `judged`, for policies of one learner: one program."""
        everyone = [params for evaluations in policies for params in evaluations]
        stacked = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *everyone)
        numbers = np.tile(np.arange(len(self.seeds), dtype=np.int32), len(everyone))
        key = jax.random.key(EVALUATION_SEED)
        every = returns_of(learner, stacked, self.world, None, key, episodes, numbers)
        each = iter(np.split(np.asarray(every, np.float64), len(everyone)))
        for evaluations in policies:
            returns = np.concatenate([next(each) for _ in evaluations], axis=1)
            yield returns, scores_of(self.world, returns)


def _protocol(plan: FitPlan) -> Protocol:
    """The paper's own for its method, and the last parameters for all others."""
    return PROTOCOLS["paper" if plan.settings.mode == "paper" else "final"]


def togetherness(plan: FitPlan) -> Hashable:
    """Equal for plans that may be trained in one program."""
    pool = None if plan.release is None else plan.release.event.pool_size
    free = plan.settings.method == "non-private"
    return plan.recipe, plan.private_steps, plan.plain_steps, free, pool if plan.private else -1


def with_room(data: ExpertData, count: int) -> ExpertData:
    """The same experts with zeros behind, up to `count` transitions: fewer are the same program."""

    def longer(leaf: jax.Array) -> jax.Array:
        return jnp.pad(leaf, [(0, count - len(leaf))] + [(0, 0)] * (leaf.ndim - 1))

    padded = jax.tree.map(longer, data.transitions)
    return replace(data, transitions=padded)


@contextmanager
def research_ledger(delta: float | None = None) -> Iterator[Ledger]:
    """A ledger for synthetic experts, which is thrown away."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "research.jsonl"
        Ledger.create(path, epsilon=None, delta=delta, kind="research")
        with Ledger.open(path) as ledger:
            yield ledger
