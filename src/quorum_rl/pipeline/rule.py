"""Who learns where nobody chose: a function of declared numbers alone.

One number decides: the noise over the signal, ν = σ·√d / (q·m·√T) for T private steps with noise
multiplier σ, d parameters and at least m experts. It is the usual size of the noise in the mean of
all steps, where an expert's largest contribution is 1; more steps at the same cost leave it as it
is. Where ν is small, a network may be larger; where even a linear policy has much of it, nothing
is learned. docs/few-experts.md has the measurements, on experts that no result is reported for.
"""

from collections.abc import Mapping
from typing import Any, Final

from quorum_rl.errors import QuorumError
from quorum_rl.learners import DenseLearner, hyper_parameters
from quorum_rl.logs import Declared
from quorum_rl.pipeline.learner_choice import learner_for
from quorum_rl.pipeline.settings import FitSettings
from quorum_rl.pipeline.stages import Cost, noise_to_signal, private_step, steps_and_noise

# The first network whose noise over signal is at most this; a linear one if none is.
SIZES: Final[tuple[tuple[tuple[int, ...], float], ...]] = (((64,), 0.9), ((32,), 1.0), ((), 0.0))
TARGET_RATE: Final = 0.25  # of a private step, in which experts take many


def chosen_learner(
    declared: Declared,
    settings: FitSettings,
    cost: Cost,
    name: str | type[DenseLearner] | DenseLearner = "auto",
    asked: Mapping[str, Any] | None = None,
) -> DenseLearner:
    """The learner called `name`, or of one's own class, with what is `asked` for, and the rest by
    the rule; a learner that is made already is as it is.

    `auto` imitates, except in the paper's own methods, whose learner is CQL.

    Raises:
        QuorumError: as `learner_for`, or if a needed fact is not declared.
    """
    if isinstance(name, DenseLearner):
        if asked:
            raise QuorumError(
                f"the learner {type(name).__name__} is made already, and {', '.join(asked)} cannot "
                "be changed: leave that out, or give its class."
            )
        return name
    filled = settings.filled()
    own = filled.is_local or filled.method == "solve"
    if name == "auto":
        name = "bc" if own else "cql"
    given = dict(asked or {})
    if filled.is_local and "target_rate" in hyper_parameters(name):
        given.setdefault("target_rate", TARGET_RATE)
    if not own or "hidden_sizes" in given:
        return learner_for(declared, name, **given)
    if filled.method == "solve":
        return learner_for(declared, name, hidden_sizes=(), **given)
    check_declared(declared, *cost)
    steps, multiplier = steps_and_noise(filled, cost, [])
    step = private_step(filled, declared, multiplier)
    for sizes, most in SIZES:
        learner = learner_for(declared, name, hidden_sizes=sizes, **given)
        if noise_to_signal(step, steps, learner, declared) <= most:
            break
    return learner


def check_declared(declared: Declared, epsilon: float, delta: float) -> None:
    """
    Raises:
        QuorumError: if the numbers do not fit, or nobody says how many experts there are.
    """
    if not 0 < epsilon < float("inf"):
        raise QuorumError(f"epsilon is {epsilon}: give a positive number.")
    if not 0 < delta < 1:
        raise QuorumError(f"delta is {delta}: give a number between 0 and 1.")
    if declared.minimum_experts is None:
        raise QuorumError(
            "the demonstrations do not declare how many experts there are at least, which the "
            "guarantee counts on: declare minimum_experts (--minimum-experts), here or when "
            "collecting."
        )
