"""Methods side by side on one population: the same seeds, the same episodes, one table.

For synthetic experts. Every seed has a release of its own, all of them are charged to a research
ledger that is thrown away, and the non-private method sees the logs as they are.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from quorum_rl.envs import AnyWorld
from quorum_rl.errors import QuorumError, TooLittleBudgetError
from quorum_rl.evaluation import Interval, Scores, Summary, summarise
from quorum_rl.experts import LoggedExperts
from quorum_rl.learners import DenseLearner, Learner, learner_to_json
from quorum_rl.logs import Demonstrations
from quorum_rl.pipeline import FitPlan, FitSettings
from quorum_rl.pipeline.study import Progress, Study


@dataclass(frozen=True, kw_only=True)
class Method:
    """One way to learn from the logs; without privacy if `epsilon` is None.

    `hidden_sizes` are those of its networks, where they are not the comparison's.
    """

    name: str
    settings: FitSettings
    epsilon: float | None = None
    hidden_sizes: tuple[int, ...] | None = None

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


class Infeasible(NamedTuple):
    """A method that could not be run, and why."""

    method: Method
    reason: str


@dataclass(frozen=True)
class Comparison:
    """What a study found, in the order in which its methods were given."""

    world: AnyWorld
    experts: int
    delta: float
    outcomes: tuple[Outcome, ...]
    infeasible: tuple[Infeasible, ...] = ()

    def __getitem__(self, name: str) -> Outcome:
        return next(outcome for outcome in self.outcomes if outcome.method.name == name)

    def to_json(self) -> dict[str, Any]:
        """As `comparison.json` holds it."""
        facts = self.world.facts
        return {
            "world": self.world.name,
            "experts": self.experts,
            "seeds": len(self.outcomes[0].scores) if self.outcomes else 0,
            "random_return": facts.random_return,
            "reference_return": facts.reference_return,
            "methods": [self._facts_of(outcome) for outcome in self.outcomes],
            "infeasible": [
                {"name": method.name, "epsilon": method.epsilon, "reason": reason}
                for method, reason in self.infeasible
            ],
        }

    def _facts_of(self, outcome: Outcome) -> dict[str, Any]:
        summary, method, plan = outcome.summary, outcome.method, outcome.plan
        private = plan.private
        usual = FitSettings().to_json()
        return {
            "name": method.name,
            "epsilon": method.epsilon,
            "delta": None if method.epsilon is None else self.delta,
            "scores": outcome.scores.tolist(),
            "score": summary.mean,
            "interval": ends(summary.mean_interval),
            "mean_return": float(outcome.returns.mean()),
            "returns": outcome.returns.mean(axis=1).tolist(),
            "release": None if plan.release is None else asdict(plan.release.event),
            "released": list(outcome.released),
            "private_steps": plan.private_steps,
            "plain_steps": plan.plain_steps,
            "noise_multiplier": None if private is None else private.noise_multiplier,
            "private_learning_rate": None if private is None else plan.private_learning_rate,
            "learner": learner_to_json(plan.learner),
            "settings": {
                name: value
                for name, value in method.settings.to_json().items()
                if value != usual.get(name)
            },
            "note": "; ".join(plan.notes),
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
) -> Comparison:
    """Train every method with every seed, and judge all on the same episodes.

    Seed s of every method starts from the same parameters and is judged on the same episodes.
    """
    study = Study(experts, log, world, delta, range(first_seed, first_seed + seeds))
    return compared(study, learner, methods, episodes=episodes, progress=progress)


def compared(
    study: Study,
    learner: Learner,
    methods: Sequence[Method],
    *,
    episodes: int = 100,
    progress: Progress | None = None,
) -> Comparison:
    """As `compare`, in a study that may have made some of the releases before.

    A method for which there is too little budget, or that has a release alone out of which nothing
    comes with one of the seeds, is infeasible; the others go on without it.

    Raises:
        QuorumError: for anything else that is wrong, before anybody is trained.
    """
    plans: dict[Method, FitPlan] = {}
    infeasible: list[Infeasible] = []
    for method in methods:
        try:
            plan = study.planned(_own(learner, method), method.settings, method.epsilon)
            study.check_releases(plan)
            plans[method] = plan
        except TooLittleBudgetError as error:
            infeasible.append(Infeasible(method, str(error)))
    once = {_training_of(plan): plan for plan in plans.values()}
    trained = dict(zip(once, study.trained(list(once.values()), progress), strict=True))
    policies = [trained[_training_of(plan)] for plan in plans.values()]
    learners = [plan.learner for plan in plans.values()]
    outcomes = [
        Outcome(method, plan, returns, scores, study.released_by(plan))
        for (method, plan), (returns, scores) in zip(
            plans.items(), study.judged(learners, policies, episodes), strict=True
        )
    ]
    return Comparison(
        study.world, study.log.expert_count, study.delta, tuple(outcomes), tuple(infeasible)
    )


def _training_of(plan: FitPlan) -> str:
    """Equal for plans that train alike, such as with and without a release that does not pay."""
    chosen = plan.settings
    free = chosen.method == "non-private"
    rates = chosen.learning_rate, plan.private_learning_rate, plan.rates_end(1)
    steps = plan.private, plan.private_steps, plan.plain_steps
    return repr((plan.recipe, chosen.mode, free, rates, steps, plan.release))


def _own(learner: Learner, method: Method) -> Learner:
    """The learner with the method's networks."""
    if method.hidden_sizes is None:
        return learner
    if not isinstance(learner, DenseLearner):
        raise QuorumError(
            f"{method.name!r} has networks of its own, and {learner!r} cannot: leave them out."
        )
    return replace(learner, hidden_sizes=method.hidden_sizes)
