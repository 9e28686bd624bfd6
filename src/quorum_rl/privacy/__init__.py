"""The mathematics of the guarantee: what a mechanism costs, and the best mechanism for a budget."""

from quorum_rl.privacy.accounting import total_delta, total_epsilon
from quorum_rl.privacy.events import (
    Event,
    ReleaseEvent,
    SelectionEvent,
    TrainingEvent,
    event_from_json,
    event_to_json,
)
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
