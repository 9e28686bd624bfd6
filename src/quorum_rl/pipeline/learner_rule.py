"""Which learner a fit has: as asked, in the units of the logs' world, the rest by a rule.

One number decides on the size of networks: the noise over the signal, ν = σ·√d / (q·m·√T) for T
private steps with noise multiplier σ, d parameters and at least m experts. It is the usual size of
the noise in the mean of all steps, where an expert's largest contribution is 1; more steps at the
same cost leave it as it is. Where ν is small, a network may be larger; where even a linear policy
has much of it, nothing is learned. docs/few-experts.md has the measurements, on experts that no
result is reported for. All of it is a function of declared numbers.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from quorum_rl.errors import QuorumError
from quorum_rl.learners import DenseLearner, Learner, get_learner, hyper_parameters
from quorum_rl.logs import Declared
from quorum_rl.pipeline.plan import Cost
from quorum_rl.pipeline.planning import check_declared
from quorum_rl.pipeline.private_steps import noise_to_signal, private_step, steps_and_noise
from quorum_rl.pipeline.settings import FitSettings
from quorum_rl.pipeline.units import OBSERVED, units_of_world

# The first network whose noise over signal is at most this; a linear one if none is.
SIZES: Final[tuple[tuple[tuple[int, ...], float], ...]] = (((64,), 0.9), ((32,), 1.0), ((), 0.0))
Named: TypeAlias = str | type[DenseLearner] | Learner
TARGET_RATE: Final = 0.25  # of a private step, in which experts take many


def asked_learner(
    declared: Declared,
    settings: FitSettings,
    cost: Cost,
    learner: str | type[DenseLearner] | Learner,
    learner_settings: Mapping[str, Any] | None,
    candidates: int = 1,
) -> Learner:
    """The learner of a fit: one by name or class with its settings, or one that is made already.
    It may be one of several `candidates`.

    Raises:
        QuorumError: for settings beside a learner that is made, or as `chosen_learner`.
    """
    if isinstance(learner, str | type):
        return chosen_learner(declared, settings, cost, learner, learner_settings, candidates)
    if isinstance(learner, DenseLearner):
        learner.check_actions(declared.action_bounds)
    if learner_settings:
        raise QuorumError(
            f"learner_settings are for a learner by name, and the learner is {learner!r}: leave "
            "them out."
        )
    return learner


def candidates_of(
    declared: Declared,
    settings: FitSettings,
    cost: Cost,
    choose: Sequence[Named],
    asked: Mapping[str, Any] | None,
) -> tuple[Learner, ...]:
    """The learners of which judges `choose` one. Each has what is `asked` for of what it knows.

    Raises:
        QuorumError: for fewer than two, for the same twice, or for what none of them knows.
    """
    known = [hyper_parameters(name) if isinstance(name, str | type) else () for name in choose]
    made: tuple[Learner, ...] = tuple(
        asked_learner(
            declared,
            settings,
            cost,
            name,
            {
                setting: value
                for setting, value in (asked or {}).items()
                if setting in own or not any(setting in one for one in known)
            },
            candidates=len(choose),
        )
        for name, own in zip(choose, known, strict=True)
    )
    if len(set(made)) < max(len(made), 2):
        raise QuorumError(
            f"choose is {', '.join(map(str, choose))!r}: give two learners or more, each once, "
            "such as bc,cql."
        )
    return made


def chosen_learner(
    declared: Declared,
    settings: FitSettings,
    cost: Cost,
    name: str | type[DenseLearner] = "auto",
    asked: Mapping[str, Any] | None = None,
    candidates: int = 1,
) -> DenseLearner:
    """The learner called `name`, or of one's own class, with what is `asked` for, and the rest by
    the rule. It may be one of several `candidates`.

    `auto` imitates, except in the paper's own methods, whose learner is CQL.

    Raises:
        QuorumError: as `learner_for`, or if a needed fact is not declared.
    """
    filled = settings.filled()
    own = filled.is_local or filled.method == "solve"
    if name == "auto":
        name = "bc" if own or declared.continuous else "cql"
    given = dict(asked or {})
    if filled.is_local and "target_rate" in hyper_parameters(name):
        given.setdefault("target_rate", TARGET_RATE)
    if not own or "hidden_sizes" in given:
        return learner_for(declared, name, **given)
    if filled.method == "solve":
        return learner_for(declared, name, hidden_sizes=(), **given)
    check_declared(declared, *cost)
    steps, multiplier = steps_and_noise(filled, cost, [], candidates)
    step = private_step(filled, declared, multiplier)
    for sizes, most in SIZES:
        learner = learner_for(declared, name, hidden_sizes=sizes, **given)
        if noise_to_signal(step, steps, learner, declared) <= most:
            break
    return learner


def learner_for(
    declared: Declared, name: str | type[DenseLearner], /, **asked: Any
) -> DenseLearner:
    """The learner called `name`, or of one's own class, with hyper-parameters as `asked`.

    Where the logs declare a world that Quorum ships, the learner sees its numbers in the world's
    `units`, and where they declare ranges of what is observed, in those of its `dictionary`. Both
    are public: no log had a part in them. What is asked for outranks them, and an empty centre and
    scale leave observations as they are.

    Raises:
        QuorumError: if there is no such learner, or a hyper-parameter does not fit.
    """
    units, known = units_of_world(declared), hyper_parameters(name)
    usual: dict[str, Any] = {}
    if units is not None and "reward_scale" in known:
        usual["reward_scale"] = units.reward_scale
    if not any(observed in asked for observed in OBSERVED):
        named = None if declared.dictionary is None else declared.dictionary.units
        both = named or (None if units is None else (units.centre, units.scale))
        usual |= {} if both is None else dict(zip(OBSERVED, both, strict=True))
    if declared.continuous:
        usual["action_bounds"] = declared.action_bounds
    learner = get_learner(name, **usual | asked)
    learner.check_actions(declared.action_bounds)
    return learner
