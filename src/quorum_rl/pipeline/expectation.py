"""Whether a plan is worth it: what plans like it earned, and what a useless one would need."""

import math
from collections.abc import Iterator, Mapping
from typing import Final

from quorum_rl.learners import DenseLearner
from quorum_rl.pipeline.learner_rule import SIZES
from quorum_rl.pipeline.plan import FitPlan
from quorum_rl.pipeline.private_steps import steps_and_noise
from quorum_rl.pipeline.settings import FitSettings

# The least and the most that the rule's networks earned in the cells of docs/few-experts.md, as
# fractions: 0 is a random policy, 1 the experts' own mean.
EARNED: Final[Mapping[tuple[int, ...], tuple[float, float]]] = {
    (64,): (0.99, 2.52),
    (32,): (0.82, 2.42),
    (): (-0.06, 1.53),
}
MOST_EPSILON: Final = 64.0  # beyond which none is worth naming


def expected(plan: FitPlan) -> str | None:
    """What plans like this one earned, where that was measured.

    Guarantee: a function of declared numbers.
    """
    learner = plan.learner
    if not isinstance(learner, DenseLearner) or learner.name != "bc":
        return None
    if plan.others or learner.action_bounds:
        return None
    most_noise = dict(SIZES).get(learner.hidden_sizes, -math.inf) or plan.most_noise
    if plan.settings != FitSettings().filled() or plan.noise > most_noise:
        return None
    least, most = EARNED[learner.hidden_sizes]
    doubt = "" if learner.hidden_sizes else ", for a linear policy is not enough everywhere"
    return (
        f"such plans earned {least:g} to {most:g} in four worlds, where 0 is a random policy and 1 "
        f"the experts' own mean{doubt} (docs/few-experts.md)"
    )


def refusal_of(plan: FitPlan) -> str | None:
    """Why a fit refuses this plan, and what would help."""
    if plan.mostly_noise is None or plan.settings.allow_noise:
        return None
    return (
        f"{plan.mostly_noise}, and nothing would be learned: give "
        f"{' or '.join(_what_would_help(plan))}, or say allow_noise (--allow-noise); nothing was "
        "charged."
    )


def _what_would_help(plan: FitPlan) -> Iterator[str]:
    """About the least epsilon, and the least number of experts, with which it would be useful."""
    epsilon, step = _least_epsilon(plan), plan.private
    assert step is not None  # without private steps there is no noise
    if epsilon is not None:
        yield f"an epsilon of {epsilon:g}"
    enough = math.ceil(step.expected_batch / step.sampling_rate * plan.noise / plan.most_noise)
    if plan.judging is not None:  # so many are left to learn from
        enough = math.ceil(enough / (1 - plan.judging.judges.share) + 1e-6)
    yield f"{enough:,} experts"
    if plan.judging is not None:
        yield "fewer judges"
    if getattr(plan.learner, "hidden_sizes", ()):
        yield "smaller networks"


def _least_epsilon(plan: FitPlan) -> float | None:
    step, epsilon = plan.private, plan.epsilon
    if step is None or plan.release is not None or plan.settings.noise_multiplier is not None:
        return None
    _, alone = steps_and_noise(plan.settings, (epsilon, plan.delta), [])  # nothing is beside them
    while epsilon <= MOST_EPSILON:
        epsilon = float(f"{1.15 * epsilon:.2g}")
        _, multiplier = steps_and_noise(plan.settings, (epsilon, plan.delta), [])
        if plan.noise * multiplier / alone <= plan.most_noise:
            return epsilon
    return None
