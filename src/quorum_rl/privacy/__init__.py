"""The mathematics of the guarantee: what a mechanism costs, and the best mechanism for a budget.

Numerics are loaded when they are used: whoever only names an event does not wait for them.
"""

from typing import TYPE_CHECKING

from quorum_rl.lazy import load_when_used

if TYPE_CHECKING:
    from quorum_rl.privacy.accounting import (
        total_delta as total_delta,
        total_epsilon as total_epsilon,
    )
    from quorum_rl.privacy.calibration import (
        noise_multiplier_for as noise_multiplier_for,
        steps_for as steps_for,
    )
    from quorum_rl.privacy.events import (
        EVERYBODY as EVERYBODY,
        LEAST_NOISE as LEAST_NOISE,
        MOST_NOISE as MOST_NOISE,
        Event as Event,
        Mode as Mode,
        Part as Part,
        ReleaseEvent as ReleaseEvent,
        SelectionEvent as SelectionEvent,
        TrainingEvent as TrainingEvent,
        event_from_json as event_from_json,
        event_to_json as event_to_json,
        in_words as in_words,
        kind_of as kind_of,
        largest_probability as largest_probability,
    )
    from quorum_rl.privacy.expectation import expected_lengths as expected_lengths
    from quorum_rl.privacy.planner import (
        ReleasePlan as ReleasePlan,
        plan_from_json as plan_from_json,
        plan_release as plan_release,
        what_would_help as what_would_help,
    )
else:
    __all__, __getattr__ = load_when_used(__name__)
