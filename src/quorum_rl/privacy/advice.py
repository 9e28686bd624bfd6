"""What would let a release through for which the declared numbers are too small."""

from collections.abc import Callable
from dataclasses import replace

from quorum_rl.errors import QuorumError
from quorum_rl.privacy.constants import Setting, paper_event, tight_event
from quorum_rl.privacy.expectation import longest_prefix
from quorum_rl.privacy.planner import ReleasePlan

MOST_EXPERTS = 10**7
MOST_EPSILON = 64.0


def what_would_help(plan: ReleasePlan) -> list[str]:
    """Single changes, each of which makes an infeasible plan feasible; in words."""
    setting, count = _setting_of(plan), plan.event.iterations

    def passes(changed: Setting, iterations: int = count) -> bool:
        try:
            event = (
                paper_event(changed, iterations)
                if plan.event.mode == "paper"
                else tight_event(changed, iterations)[0]
            )
        except QuorumError:
            return False
        return longest_prefix(event, 1.0) > 0

    found = []
    experts = _least(
        lambda number: passes(replace(setting, experts=number)), setting.experts, MOST_EXPERTS
    )
    if experts is not None:
        found.append(f"{experts} experts instead of {setting.experts}")
    tenths = _least(
        lambda number: passes(replace(setting, epsilon=number / 10, overflow_epsilon=number / 10)),
        max(round(setting.epsilon * 10), 1),
        round(MOST_EPSILON * 10),
    )
    if tenths is not None:
        found.append(f"epsilon = {tenths / 10:g} instead of {setting.epsilon:g}")
    fewer = [number for number in range(count - 1, 0, -1) if number < 8 or number % 8 == 0]
    iterations = next((number for number in fewer if passes(setting, number)), None)
    if iterations is not None:
        found.append(f"{iterations} iterations instead of {count}")
    if plan.event.mode == "paper":
        tight = replace(setting, prefix_cap=plan.event.prefix_cap)
        if longest_prefix(tight_event(tight, count)[0], 1.0) > 0:
            found.append("mode tight instead of paper")
    return found


def _setting_of(plan: ReleasePlan) -> Setting:
    event = plan.event
    return Setting(
        experts=event.experts,
        actions=event.actions,
        p_min=event.p_min,
        stop_probability=event.stop_probability,
        horizon=event.horizon,
        prefix_cap=event.prefix_cap,
        epsilon=plan.epsilon,
        delta=plan.delta,
        overflow_epsilon=plan.epsilon,
    )


def _least(holds: Callable[[int], bool], low: int, most: int) -> int | None:
    """About the least number above `low` for which `holds`, to two digits; None if none does."""
    high = low
    while not holds(high):
        if high >= most:
            return None
        low, high = high, min(2 * high, most)
    while high - low > max(1, high // 100):
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
