"""What is audited: a plan, on a chain of experts that makes its worst case likely."""

from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any, Final

from quorum_rl.audit.chain import Chain
from quorum_rl.audit.finding import ACTIONS, APART, BITS, ITERATES, REST, SPREAD
from quorum_rl.learners import Bcq, Cql, Learner, learner_to_json
from quorum_rl.pipeline import FitPlan, FitSettings, in_words, plan_fit
from quorum_rl.privacy import ReleaseEvent, ReleasePlan, event_to_json, total_epsilon
from quorum_rl.training import Contribution, Gradient, Local, PrivateStep

OTHERS: Final = 3  # in training: their contributions are known, so more would add nothing
CHUNK: Final = 8  # for few trainees; it changes the time, not the result
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
DESCENT: Final = FitSettings(  # plain gradient descent, at rates that stay as they are
    method="selective",
    optimiser="sgd",
    learning_rate=1e-3,
    private_learning_rate=1.0,
    falling_rates=False,
    averaging=0.0,
    batch_size=4,
)


@dataclass(frozen=True)
class Case:
    """A plan and the experts that it is audited on.

    `trainees` are the experts that training sees beside the canary, all of them unless given: what
    they add is known to the adversary, so that fewer change nothing but the time it takes.
    `threats` are what an audit of training alone looks at, a finding for each.
    """

    chain: Chain
    plan: FitPlan
    name: str = "pipeline"
    canary: str = "an expert who leaves alone, and whose contribution has a direction of its own"
    trainees: int | None = None
    threats: tuple[str, ...] = (ITERATES, ACTIONS)

    @property
    def claimed(self) -> float:
        """What is under audit: what the accounting says that the plan costs."""
        return total_epsilon(self.plan.events, self.plan.delta)

    @property
    def release(self) -> ReleasePlan:
        """The plan's release, of a case that has one."""
        assert self.plan.release is not None
        return self.plan.release

    @property
    def private(self) -> PrivateStep:
        """The plan's private step, of a case that has one."""
        assert self.plan.private is not None
        return self.plan.private

    @property
    def trained_chain(self) -> Chain:
        """The chain as training sees it."""
        if self.trainees is None:
            return self.chain
        return replace(self.chain, others=min(self.trainees, self.chain.others))

    def to_json(self) -> dict[str, Any]:
        """Who takes part, and what is charged for, as plain facts."""
        plan = self.plan
        return {
            "chain": asdict(self.chain),
            "trainees": self.trainees,
            "claimed": self.claimed,
            "delta": plan.delta,
            "settings": plan.settings.to_json(),
            "learner": learner_to_json(plan.learner),
            "contribution": None if plan.private is None else in_words(plan.private.contribution),
            "events": [event_to_json(event) for event in plan.events],
        }


def _plan(
    delta: float,
    *,
    release: ReleaseEvent | None = None,
    private: PrivateStep | None = None,
    private_steps: int = 0,
    plain_steps: int = 0,
    settings: FitSettings = FEW_STEPS,
    learner: Learner = LINEAR,
) -> FitPlan:
    """A plan with these constants; `plan_fit` would choose its own, for use and not for audits."""
    return FitPlan(
        settings=settings,
        learner=learner,
        epsilon=1.0,  # what the events cost is claimed, and not this
        delta=delta,
        release=None if release is None else ReleasePlan(release, 1.0, delta, agreement=1.0),
        private=private,
        private_steps=private_steps,
        plain_steps=plain_steps,
        notes=(),
    )


def _release(name: str, canary: str, chain: Chain, delta: float, **constants: float) -> Case:
    """One iteration of a release, whose pool never runs out."""
    event = ReleaseEvent(
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
    return Case(chain, _plan(delta, release=event), name, canary)


DEVIATOR: Final = _release(
    "release, deviator",
    "one of three, who alone does what nobody else would ever do",
    Chain(others=2, actions=2, horizon=1, p_min=0.0, leaves_at=0),
    delta=0.00315,
    stop_probability=0.2,
    theta=1.7826,
    threshold=22.38,
    threshold_epsilon=0.25,
    query_epsilon=2.0,
)
"""Prefixes that only the canary can give: what the offset of the threshold must keep in."""

LEAVER: Final = _release(
    "release, leaver",
    "one of 346, who agrees for eight steps and then leaves alone",
    Chain(others=345, actions=2, horizon=9, p_min=0.003, leaves_at=8),
    delta=0.00105,
    stop_probability=0.0,
    theta=333.34,
    threshold=346.34,
    threshold_epsilon=0.5,
    query_epsilon=1.0,
)
"""Eight queries that only a low threshold passes, then one that fails: both noises are needed."""


def _training(
    name: str,
    *,
    steps: int = 4,
    plain_steps: int = 0,
    sampling_rate: float = 1.0,
    noise_multiplier: float = 2.0,
    contribution: Contribution | None = None,
    learner: Learner = LINEAR,
    observation_size: int = 1,
    threats: tuple[str, ...] = (ITERATES, ACTIONS),
    canary: str = "an expert whose contribution is clipped, in a direction of its own",
) -> Case:
    """A training by itself. With `plain_steps` the others' one transition is public, too."""
    step = PrivateStep(
        sampling_rate=sampling_rate,
        clip_norm=1.0,
        noise_multiplier=noise_multiplier,
        expected_batch=1.0,
        chunk=CHUNK,
        contribution=contribution or Gradient(transitions=1),
    )
    plan = _plan(
        0.01,
        private=step,
        private_steps=steps,
        plain_steps=plain_steps,
        settings=DESCENT,
        learner=learner,
    )
    chain = Chain(
        others=OTHERS,
        actions=2,
        horizon=1,
        p_min=0.1,
        leaves_at=0,
        observation_size=observation_size,
    )
    return Case(chain, plan, f"training, {name}", canary, threats=threats)


EVERYBODY: Final = _training("everybody drawn", plain_steps=4)
"""Everybody is drawn in every private step: nothing but the noise hides anybody."""

ROUNDS: Final = _training("local updates", contribution=Local(steps=3, batch_size=1, rate=0.01))
"""Four rounds in which everybody takes three steps of its own."""

SAMPLED: Final = _training(
    "half drawn", steps=8, plain_steps=8, sampling_rate=0.5, noise_multiplier=1.0
)
"""Half of them are: so the account of sampling is under audit, too."""

STEADY: Final = _training(
    "steady directions",
    steps=8,
    sampling_rate=0.5,
    noise_multiplier=1.0,
    learner=Cql(hidden_sizes=(), alpha=0.0),
    threats=(SPREAD,),
)
"""The canary's direction is the same in all steps, so that these can be compared."""

WIDE: Final = _training("many parameters", observation_size=64, threats=(REST,))
"""Nearly all parameters get noise alone, so that its size shows."""

NETWORKS: Final = _training("two networks", learner=Bcq(hidden_sizes=()), threats=(APART,))
"""The canary's contribution is large in both networks."""

ONE_STEP: Final = _training(
    "one step",
    steps=1,
    observation_size=2048,
    threats=(BITS,),
    canary="an expert who alone contributes to any parameter",
)
"""Many numbers to which nobody but the canary contributes, published after one step."""


@cache
def pipelines() -> tuple[Case, Case, Case]:
    """Whole fits: nearly all of ε for training, nearly all of it for the release, half for each."""
    return _training_first(), _release_first(), _half_each()


def _training_first() -> Case:
    """Two private steps draw everybody: nearly a Gaussian mechanism, whose account is reached."""
    chain = Chain(others=548, actions=2, horizon=2, p_min=0.02, leaves_at=1)
    settings = replace(FEW_STEPS, release_share=0.05, agreement=1.0)
    plan = plan_fit(chain.declared, LINEAR, epsilon=3.0, delta=0.01, settings=settings)
    assert plan.private is not None
    plan = replace(plan, private=replace(plan.private, chunk=CHUNK))
    return Case(chain, plan, "pipeline, nearly all of ε for training", trainees=OTHERS)


def _release_first() -> Case:
    """The release whose worst case is known, `LEAVER`, and two steps with very much noise."""
    chain = LEAVER.chain
    step = PrivateStep(
        sampling_rate=1.0,
        clip_norm=1.0,
        noise_multiplier=140.0,
        expected_batch=float(chain.others),
        chunk=CHUNK,
        contribution=Gradient(transitions=1),
    )
    plan = _plan(
        LEAVER.plan.delta,
        release=LEAVER.release.event,
        private=step,
        private_steps=2,
        plain_steps=2,
    )
    return Case(chain, plan, "pipeline, nearly all of ε for the release", trainees=OTHERS)


def _half_each() -> Case:
    """18 experts, of whom a private step draws half."""
    chain = Chain(others=18, actions=2, horizon=4, p_min=0.05, leaves_at=3)
    settings = replace(FEW_STEPS, iterations=2, private_steps=4, sampling_rate=0.5)
    plan = plan_fit(chain.declared, LINEAR, epsilon=8.0, delta=0.01, settings=settings)
    return Case(chain, plan, "pipeline, half of ε for each stage")
