"""What a fit is told, and its plan: the same in every process that takes part."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, TypedDict

import jax
import numpy as np

from quorum_rl.distributed import this_machine
from quorum_rl.errors import QuorumError, unknown_name
from quorum_rl.experts import LoggedExperts, UnloggedExperts
from quorum_rl.learners import DenseLearner, Learner, learner_to_json
from quorum_rl.logs import Declared, Demonstrations
from quorum_rl.pipeline.plan import FitPlan, plan_fit
from quorum_rl.pipeline.rule import chosen_learner
from quorum_rl.pipeline.settings import FitSettings
from quorum_rl.privacy import event_to_json
from quorum_rl.release import experts_who_acted

ASKED: Final = 8  # experts whose answers processes compare

ReportLine = Callable[[str], None]
StepProgress = Callable[[int, int], bool | None]


class FitOptions(TypedDict, total=False):
    """What else may be said of a run; see `fit`."""

    minimum_experts: int | None
    learner: str | type[DenseLearner] | Learner
    learner_settings: Mapping[str, Any]
    settings: FitSettings | None
    folder: str | Path
    accepted: Sequence[str]
    seed: int | None
    diagnostics_not_private: bool
    report: ReportLine
    progress: StepProgress | None
    command: str | None


def planned(
    demonstrations: Demonstrations,
    experts: LoggedExperts | UnloggedExperts | None,
    epsilon: float,
    delta: float,
    options: FitOptions,
) -> tuple[FitPlan, Demonstrations, LoggedExperts | None]:
    """The plan of a fit, from what is declared, and what it is of."""
    settings = settings_of(options)
    demonstrations = demonstrations.of_at_least(options.get("minimum_experts"))
    if isinstance(experts, UnloggedExperts):
        experts = experts_who_acted(experts, demonstrations)
    plan = plan_fit(
        demonstrations.declared,
        learner_of(options, demonstrations.declared, (epsilon, delta)),
        epsilon=epsilon,
        delta=delta,
        settings=settings,
        can_query=experts is not None,
    )
    return plan, demonstrations, experts


def settings_of(options: FitOptions) -> FitSettings:
    for unknown in options.keys() - FitOptions.__annotations__.keys():
        raise unknown_name("option of a fit", unknown, FitOptions.__annotations__)
    settings = options.get("settings") or FitSettings()
    check_noisy([settings], options.get("diagnostics_not_private", False))
    return settings


def check_noisy(settings: Iterable[FitSettings], diagnostics_not_private: bool) -> None:
    """Refuse settings without noise, unless somebody says that they are wanted.

    Raises:
        QuorumError: naming what to say.
    """
    if not diagnostics_not_private and any(one.method == "non-private" for one in settings):
        raise QuorumError(
            "the non-private method looks at the logs without noise: for synthetic experts say "
            "diagnostics_not_private=True (--diagnostics-not-private)."
        )


def learner_of(options: FitOptions, declared: Declared, cost: tuple[float, float]) -> Learner:
    learner, settings = options.get("learner", "auto"), options.get("learner_settings", {})
    if isinstance(learner, str | type):
        return chosen_learner(declared, settings_of(options), cost, learner, settings)
    if settings:
        raise QuorumError(
            f"learner_settings are for a learner by name, and the learner is {learner!r}: leave "
            "them out."
        )
    return learner


def said_by_all(
    plan: FitPlan, demonstrations: Demonstrations, experts: LoggedExperts | None, seed: int | None
) -> dict[str, Any]:
    """What every process of a run must say alike: the run, whom it would ask, and where. SENSITIVE.

    Experts whom the log names need no more than their name. That of others may be as new as the
    process, so some of them are asked about a state that they have met.
    """
    facts = configuration(plan, demonstrations, seed)
    if experts is None or plan.release is None:
        return facts
    facts["experts"] = len(experts), experts.observation_size, experts.action_count, experts.p_min
    if demonstrations.declared.experts_identity == experts.identity:
        return facts | {"acted": experts.identity}
    state = demonstrations.columns.observations[:1]
    some = sorted({len(experts) * part // ASKED for part in range(ASKED)})
    try:
        answers = [experts.probabilities_of(slice(one, one + 1), state).ravel() for one in some]
    except QuorumError as error:  # such as of another world: the others are waiting to hear it
        return facts | {"answers": str(error)}
    return facts | {"answers": np.round(answers, 3).tolist()}  # whatever the last bits are


def configuration(
    plan: FitPlan, demonstrations: Demonstrations, seed: int | None
) -> dict[str, Any]:
    """All that decides what a run does, as public facts."""
    return {
        "epsilon": plan.epsilon,
        "delta": plan.delta,
        "settings": plan.settings.to_json(),
        "learner": learner_to_json(plan.learner),
        "declared": asdict(demonstrations.declared),
        "events": [event_to_json(event) for event in plan.events],
        "reproducible": seed is not None,
        # A run that went on where floats round otherwise would add its noise to other sums.
        "rounding": {
            "machine": this_machine(),
            "devices": len(jax.devices()),
            "chunk": None if plan.private is None else plan.private.shape.size,
        },
    }
