"""The mathematics of the guarantee: what a mechanism costs, and the best mechanism for a budget.

Numerics are loaded when they are used: whoever only names an event does not wait for them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from quorum_rl.privacy.events import (
    Event,
    ReleaseEvent,
    SelectionEvent,
    TrainingEvent,
    event_from_json,
    event_to_json,
)

if TYPE_CHECKING:
    from quorum_rl.privacy.accounting import total_delta, total_epsilon
    from quorum_rl.privacy.planner import ReleasePlan, plan_from_json, plan_release

__all__ = [
    "Event",
    "ReleaseEvent",
    "ReleasePlan",
    "SelectionEvent",
    "TrainingEvent",
    "event_from_json",
    "event_to_json",
    "plan_from_json",
    "plan_release",
    "total_delta",
    "total_epsilon",
]

_MODULES = {
    "ReleasePlan": "planner",
    "plan_from_json": "planner",
    "plan_release": "planner",
    "total_delta": "accounting",
    "total_epsilon": "accounting",
}


if not TYPE_CHECKING:  # a type checker knows the names, and no others

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
