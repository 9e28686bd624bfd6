"""Which units are asked of the experts: where nobody declared any, and so many as there are allow.

A function of declared numbers: that some are asked tells nothing about a log.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, get_args

from quorum_rl.distributed import is_single_process
from quorum_rl.envs import Units, get_world, units_of, world_names
from quorum_rl.errors import QuorumError, unknown_name
from quorum_rl.learners import DenseLearner, Learner
from quorum_rl.logs import Declared
from quorum_rl.pipeline.plan import Cost
from quorum_rl.pipeline.settings import FitSettings, UnitsName
from quorum_rl.privacy import EVERYBODY, Event, Part, noise_multiplier_for
from quorum_rl.training import (
    INSISTED_SHARE,
    MOST_SHARE,
    Asked,
    Unit,
    UnitsPlan,
    experts_needed,
    plan_units,
)

OBSERVED: Final = ("observation_centre", "observation_scale")
REWARDS: Final = "reward_scale"
TOO_DEAR: Final = "beside private units steps would be mostly noise, so none are asked for"


class Asking(NamedTuple):
    """What is to be asked, and whether a fit that cannot is refused."""

    asked: tuple[Asked, ...]
    must: bool


def units_to_ask(
    units: UnitsName,
    declared: Declared,
    settings: FitSettings,
    learner: Learner,
    *,
    called: object,
    given: Mapping[str, Any] | None,
) -> Asking | None:
    """What `units` asks of the experts of these logs, None if nothing.

    `auto` asks where nobody knows: numbers without a declared range, of logs of no world that
    Quorum ships, for a learner that is `called` by name or class and was `given` no units.
    `private` asks for everything, within declared ranges.

    Raises:
        QuorumError: for an unknown name, or private units where there cannot be any.
    """
    if units not in get_args(UnitsName):
        raise unknown_name("units", units, get_args(UnitsName))
    must = units == "private"
    if units == "public":
        return None
    why_not = _why_not(settings, learner, given or {})
    if why_not is not None:
        if must:
            raise QuorumError(f"{why_not}: give units public, or leave them out.")
        return None
    is_made = not isinstance(called, str | type)
    if not must and (is_made or units_of_world(declared) is not None):
        return None
    ranges = _ranges(declared)
    asked = [Asked(place, known) for place, known in enumerate(ranges) if must or known is None]
    if hasattr(learner, REWARDS) and REWARDS not in (given or {}):
        asked.append(Asked(None))
    return Asking(tuple(asked), must) if asked else None


def _why_not(settings: FitSettings, learner: Learner, given: Mapping[str, Any]) -> str | None:
    """Why there cannot be private units at all."""
    if settings.method == "non-private" or settings.mode == "paper":
        return "private units go with neither mode paper nor the method non-private"
    if any(name in given for name in OBSERVED):
        return "private units go with no observation_centre and observation_scale"
    if not isinstance(learner, DenseLearner):
        return f"private units are for learners made of dense networks, not {learner!r}"
    if not is_single_process():
        return "a fit with private units is for one process"
    return None


def _ranges(declared: Declared) -> list[tuple[float, float] | None]:
    """The declared range of each number of an observation."""
    if declared.dictionary is None or not declared.dictionary.columns:
        return [None] * declared.observation_size
    return [
        None if column.low is None or column.high is None else (column.low, column.high)
        for column in declared.dictionary.columns
        for _ in range(column.size)
    ]


def units_beside(
    asking: Asking | None,
    declared: Declared,
    cost: Cost,
    beside: Sequence[Event],
    *,
    parted: bool,
) -> tuple[UnitsPlan | None, list[str]]:
    """The plan of what is to be asked of so many experts as are `declared`, or why there is none.

    Raises:
        QuorumError: if they are too few, and it must be.
    """
    if asking is None:
        return None, []
    least, count = declared.minimum_experts, len(asking.asked)
    assert least is not None  # checked before
    alone = noise_multiplier_for(
        steps=1, sampling_rate=1.0, epsilon=cost[0], delta=cost[1], beside=beside
    )
    part: Part = "training" if parted else EVERYBODY
    most = INSISTED_SHARE if asking.must else MOST_SHARE
    plan = plan_units(asking.asked, alone=alone, expected=least, most=most, part=part)
    if plan is not None and plan.has_room:
        return plan, []
    needed = f"need {experts_needed(count, alone, most):,} experts to learn from"
    why = f"private units of {count:,} number{'' if count == 1 else 's'} " + (
        f"{needed} at this epsilon" if plan is None else "have no room in one sum over so many"
    )
    if asking.must:
        raise QuorumError(
            f"{why}: declare ranges, give observation_centre and observation_scale, or leave the "
            "units out."
        )
    return None, [
        f"{why}, so observations and rewards are seen as they are, where no range is declared"
    ]


def units_of_world(declared: Declared) -> Units | None:
    """The public units of the world that the logs declare, if Quorum ships it."""
    if declared.world not in world_names():
        return None
    world = get_world(declared.world)
    same = declared.observation_size == world.spaces.observation_size
    return units_of(world) if same else None


def in_units(learner: Learner, asked: Sequence[Asked], found: Sequence[Unit | None]) -> Learner:
    """The learner with the units that were found; where none was, with those that it has."""
    assert isinstance(learner, DenseLearner)  # `units_to_ask` has checked
    size = max([one.place + 1 for one in asked if one.place is not None], default=0)
    centre = list(learner.observation_centre or (0.0,) * size)
    scale = list(learner.observation_scale or (1.0,) * size)
    changes: dict[str, Any] = {}
    for one, unit in zip(asked, found, strict=True):
        if unit is None:
            continue
        if one.place is None and not hasattr(learner, REWARDS):
            continue
        if one.place is None:
            changes[REWARDS] = float(f"{1 / unit.scale:.2g}")
        else:
            centre[one.place], scale[one.place] = unit
    changes |= zip(OBSERVED, (tuple(centre), tuple(scale)), strict=True)
    return replace(learner, **changes)
