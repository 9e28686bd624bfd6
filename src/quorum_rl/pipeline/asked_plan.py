"""The plan of a fit as it is asked for, from names and declared numbers alone."""

from collections.abc import Mapping, Sequence
from typing import Any

from quorum_rl.distributed import is_single_process
from quorum_rl.errors import QuorumError
from quorum_rl.judging import Judges
from quorum_rl.learners import DenseLearner, Learner
from quorum_rl.logs import Declared
from quorum_rl.pipeline.asked import check_kinds
from quorum_rl.pipeline.learner_rule import Named, asked_learner, candidates_of
from quorum_rl.pipeline.plan import FitPlan
from quorum_rl.pipeline.planning import plan_fit
from quorum_rl.pipeline.settings import FitSettings, UnitsName
from quorum_rl.pipeline.units import Asking, units_to_ask


def _judges_of(share: float | None, return_bounds: Sequence[float] | None) -> Judges | None:
    """The judges that were asked for, if any.

    Raises:
        QuorumError: for numbers that are none, or in a fit of several processes.
    """
    if share is None:
        if return_bounds is not None:
            raise QuorumError(
                "return_bounds are for judges: say which share of the experts judges."
            )
        return None
    if not is_single_process():
        raise QuorumError("a fit with judges is for one process: start it by itself.")
    return Judges(share=share, return_bounds=return_bounds)


def plan_asked(
    declared: Declared,
    *,
    epsilon: float,
    delta: float,
    learner: str | type[DenseLearner] | Learner = "auto",
    learner_settings: Mapping[str, Any] | None = None,
    settings: FitSettings | None = None,
    can_query: bool = False,
    judges: float | None = None,
    return_bounds: Sequence[float] | None = None,
    choose: Sequence[Named] = (),
    units: UnitsName = "auto",
) -> FitPlan:
    """What `fit` would do and spend if asked so, for experts of whom these facts are declared: with
    logs, `log.declared`. For the options see `fit`; `can_query` says that there are experts to
    query. No data is touched; `print(plan.describe())` says it in words.

    Raises:
        QuorumError: as `plan_fit`, or for a learner or units that there cannot be.
    """
    check_kinds(
        epsilon=epsilon, delta=delta, learner=learner, learner_settings=learner_settings,
        settings=settings, choose=choose,
    )  # fmt: skip
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
        judges=_judges_of(judges, return_bounds),
        asking=None if made and units == "auto" else _all_of(asked),  # as they were made
        others=candidates[1:],
    )


def _all_of(asked: Sequence[Asking | None]) -> Asking | None:
    """What is asked once for all candidates: they see the same, and some see rewards too."""
    some = [one for one in asked if one is not None]
    return max(some, key=lambda one: len(one.asked), default=None)
