"""The plan of a fit as it is asked for, from names and declared numbers alone."""

from collections.abc import Mapping, Sequence
from typing import Any

from quorum_rl.errors import QuorumError
from quorum_rl.judging import Judges
from quorum_rl.learners import DenseLearner, Learner
from quorum_rl.logs import Declared
from quorum_rl.pipeline.learner_rule import Named, asked_learner, candidates_of
from quorum_rl.pipeline.plan import FitPlan
from quorum_rl.pipeline.planning import plan_fit
from quorum_rl.pipeline.settings import FitSettings, UnitsName
from quorum_rl.pipeline.units import Asking, units_to_ask


def plan_asked(
    declared: Declared,
    *,
    epsilon: float,
    delta: float,
    learner: str | type[DenseLearner] | Learner = "auto",
    learner_settings: Mapping[str, Any] | None = None,
    settings: FitSettings | None = None,
    can_query: bool = False,
    judges: Judges | None = None,
    choose: Sequence[Named] = (),
    units: UnitsName = "auto",
) -> FitPlan:
    """What `fit` would do and spend for these words, for experts of whom these facts are declared.

    `can_query` says that there are experts to query.

    Raises:
        QuorumError: as `plan_fit`, or for a learner or units that there cannot be.
    """
    settings, cost = settings or FitSettings(), (epsilon, delta)
    candidates: tuple[Learner, ...]
    if not choose:
        candidates = (asked_learner(declared, settings, cost, learner, learner_settings),)
    elif learner == "auto":
        candidates = candidates_of(declared, settings, cost, choose, learner_settings)
    else:
        raise QuorumError("choose says which learners there are: leave learner (--learner) out.")
    called: Sequence[Any] = choose or (learner,)
    asked = [
        units_to_ask(units, declared, settings, one, called=name, given=learner_settings)
        for one, name in zip(candidates, called, strict=True)
    ]
    made = any(not isinstance(name, str | type) for name in called)
    return plan_fit(
        declared,
        candidates[0],
        epsilon=epsilon,
        delta=delta,
        settings=settings,
        can_query=can_query,
        judges=judges,
        asking=None if made and units == "auto" else _all_of(asked),  # as they were made
        others=candidates[1:],
    )


def _all_of(asked: Sequence[Asking | None]) -> Asking | None:
    """What is asked once for all candidates: they see the same, and some see rewards too."""
    some = [one for one in asked if one is not None]
    return max(some, key=lambda one: len(one.asked), default=None)
