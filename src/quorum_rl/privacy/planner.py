"""The planner: from declared numbers to a release, or to what would help, without touching data."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final, Literal

from quorum_rl.errors import (
    FRACTION,
    SHARE,
    QuorumError,
    Rule,
    TooLittleBudgetError,
    at_least,
    require,
)
from quorum_rl.json_files import number
from quorum_rl.privacy.constants import (
    DECLARED,
    START,
    Setting,
    paper_event,
    pool_size_for,
    tight_event,
)
from quorum_rl.privacy.events import Mode, ReleaseEvent
from quorum_rl.privacy.expectation import expected_transitions, longest_prefix
from quorum_rl.privacy.pairs import Pair, composed_delta, overflow_probability, pair_of

Objective = Literal["transitions", "threshold"]

AGREEMENT: Final = 0.9  # about what trained populations keep at every step (docs/experts.md)
DEFAULT_ITERATIONS: Final = 25  # for the objective "threshold", which would always prefer one
MOST_ITERATIONS: Final = 4096
POOL_LIMIT: Final = 8  # of an expert's trajectories, kept from training, unless more are allowed
STOP_PROBABILITIES: Final = (0.05, 0.02, 0.1, 0.2)  # tried where nothing is promised nor given
MOST_EXPERTS: Final = 10**7  # that advice goes to
MOST_EPSILON: Final = 64.0


@dataclass(frozen=True)
class ReleasePlan:
    """A release to be made, what it costs, and what it should give.

    Guarantee: everything here is a function of declared numbers; no data was touched.
    """

    event: ReleaseEvent
    epsilon: float
    delta: float
    agreement: float

    @property
    def pair(self) -> Pair:
        """What one iteration costs."""
        return pair_of(self.event)

    @property
    def feasible(self) -> bool:
        """Whether a prefix of one step can pass if all experts agree."""
        return self.longest_prefix_if_all_agree > 0

    @property
    def longest_prefix_if_all_agree(self) -> int:
        return longest_prefix(self.event, 1.0)

    @property
    def longest_prefix_at_agreement(self) -> int:
        return longest_prefix(self.event, self.agreement)

    @property
    def expected_transitions(self) -> float:
        return expected_transitions(self.event, self.agreement)

    def to_json(self) -> dict[str, Any]:
        """Every fact of the plan under its one name."""
        event, pair = self.event, self.pair
        return asdict(event) | {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "threshold_noise_scale": event.threshold_noise_scale,
            "query_noise_scale": event.query_noise_scale,
            "iteration_epsilon_remove": pair.epsilon_remove,
            "iteration_epsilon_add": pair.epsilon_add,
            "iteration_delta": pair.delta,
            "agreement": self.agreement,
            "longest_prefix": self.longest_prefix_if_all_agree,
            "longest_prefix_at_agreement": self.longest_prefix_at_agreement,
            "expected_transitions": self.expected_transitions,
            "feasible": self.feasible,
        }


def plan_from_json(facts: Mapping[str, Any]) -> ReleasePlan:
    """The plan that `ReleasePlan.to_json` described. What follows from its constants is derived.

    Raises:
        QuorumError: if a fact is missing or makes no sense.
    """
    try:
        event = ReleaseEvent(**{field.name: facts[field.name] for field in fields(ReleaseEvent)})
        declared = (number(facts, name) for name in ("epsilon", "delta", "agreement"))
        plan = ReleasePlan(event, *declared)
        pair_of(event)
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        if isinstance(error, QuorumError):
            raise
        raise QuorumError(
            f"this is not a plan ({error}): make one with 'quorum plan release'."
        ) from error
    return plan


def plan_release(
    *,
    experts: int,
    actions: int,
    horizon: int,
    epsilon: float,
    delta: float,
    p_min: float | None = None,
    stop_probability: float | None = None,
    prefix_cap: int | None = None,
    iterations: int | None = None,
    mode: Mode = "tight",
    objective: Objective = "transitions",
    agreement: float = AGREEMENT,
    pool_limit: int = POOL_LIMIT,
    minimum_trajectories: int | None = None,
    overflow_epsilon: float | None = None,
) -> ReleasePlan:
    """The best release that costs at most (epsilon, delta); what is not given is chosen.

    `experts` is the declared public minimum. Without `p_min` nothing is assumed about the policies,
    and the release stops at random instead. `objective` says what a chosen number is chosen for:
    the expected number of released transitions under `agreement` (see `expectation`), or the lowest
    threshold. Iterations are not chosen so many that more than `pool_limit` trajectories of every
    expert must be kept for the release; of the `minimum_trajectories` that each has by declaration,
    one is left for training. Pass the ε of all stages together as `overflow_epsilon` if this is one
    of several.

    Raises:
        QuorumError: if the numbers make no release at all. Never because nothing would come out.
        TooLittleBudgetError: if not even a useless release fits.
    """
    floor = p_min or 0.0
    if minimum_trajectories is not None:
        require("minimum_trajectories", minimum_trajectories, at_least(2))
        pool_limit = min(pool_limit, minimum_trajectories - 1)
    setting = Setting(
        experts=experts,
        actions=actions,
        p_min=floor,
        stop_probability=stop_probability or 0.0,
        horizon=horizon,
        prefix_cap=min(horizon if prefix_cap is None else prefix_cap, horizon),
        epsilon=epsilon,
        delta=delta,
        overflow_epsilon=max(epsilon, overflow_epsilon or 0.0),  # never below its own claim
    )
    _check(setting, agreement, iterations, pool_limit, stops_never=stop_probability == 0)
    if mode == "paper":
        if not floor:
            raise QuorumError("mode paper needs a floor: give p_min above 0.")
        event = _best_paper(setting, iterations, objective, agreement)
        return ReleasePlan(event, epsilon, delta, agreement)
    best = _best_tight if floor or setting.stop_probability else _best_stopping
    event = best(setting, iterations, objective, agreement, pool_limit)
    _confirm(event, setting)
    if iterations is None and overflow_epsilon is None and event.pool_size == pool_limit:
        # The charge for overflowing pools grows with e^ε and may hold back more than ε gives. What
        # costs less than ε costs no more than ε.
        for own in (0.75 * epsilon, 0.5 * epsilon):
            less = replace(
                setting,
                epsilon=own,
                overflow_epsilon=own,
                stop_probability=event.stop_probability,
            )
            most = _most_iterations(less, pool_limit)
            other = _best_tight(less, most, objective, agreement, pool_limit)
            _confirm(other, less)
            event = max(event, other, key=lambda each: expected_transitions(each, agreement))
    if minimum_trajectories is not None and event.pool_size >= minimum_trajectories:
        raise QuorumError(
            f"{event.iterations} iterations reserve {event.pool_size} trajectories of every expert "
            f"and leave one to training, but minimum_trajectories is {minimum_trajectories}: plan "
            "fewer iterations."
        )
    return ReleasePlan(event, epsilon, delta, agreement)


def _best_paper(
    setting: Setting, iterations: int | None, objective: Objective, agreement: float
) -> ReleaseEvent:
    if iterations is None and objective == "threshold":
        iterations = DEFAULT_ITERATIONS
    if iterations is not None:
        return paper_event(setting, iterations)
    return max(
        (paper_event(setting, count) for count in _doubling()),
        key=lambda event: expected_transitions(event, agreement),
    )


def _best_tight(
    setting: Setting,
    iterations: int | None,
    objective: Objective,
    agreement: float,
    pool_limit: int,
) -> ReleaseEvent:
    if objective == "threshold":
        return tight_event(setting, iterations or DEFAULT_ITERATIONS)[0]

    def score(event: ReleaseEvent) -> float:
        # The threshold decides between releases that give next to nothing.
        return -math.log(expected_transitions(event, agreement) + 1e-3 / event.threshold)

    start = START
    if iterations is None:
        iterations, start = _best_iterations(setting, score, pool_limit)
    lowest, start = tight_event(setting, iterations, start=start)
    richest, _ = tight_event(setting, iterations, score, start)
    return min(lowest, richest, key=score)


def _best_iterations(
    setting: Setting, score: Callable[[ReleaseEvent], float], pool_limit: int
) -> tuple[int, tuple[float, float, float]]:
    """The number of iterations whose lowest threshold scores best, and where its search ended."""
    scored: dict[int, tuple[float, tuple[float, float, float]]] = {}

    def try_out(count: int) -> float:
        # From the usual split, not from where the search for another count ended: it may have
        # ended at an edge that this search would not leave.
        try:
            event, at = tight_event(setting, count)
        except TooLittleBudgetError:
            if not scored:
                raise
            return math.inf
        scored[count] = (score(event), at)
        return event.threshold

    for count in _doubling():
        if count > 1 and pool_size_for(setting, count) > pool_limit:
            break
        if try_out(count) > 4 * setting.experts:
            break
    best = min(scored, key=lambda count: scored[count][0])
    for count in (round(best / 1.4), round(best * 1.4)):  # the points between the doublings
        if count not in scored and pool_size_for(setting, count) <= pool_limit:
            try_out(count)
    best = min(scored, key=lambda count: scored[count][0])
    return best, scored[best][1]


def _best_stopping(
    setting: Setting,
    iterations: int | None,
    objective: Objective,
    agreement: float,
    pool_limit: int,
) -> ReleaseEvent:
    """Also choose how often to stop, for what comes out: stopping at once is always safest."""

    def best(chance: float, count: int | None) -> ReleaseEvent:
        at = replace(setting, stop_probability=chance)
        return _best_tight(at, count, objective, agreement, pool_limit)

    first, *others = STOP_PROBABILITIES
    events = [best(first, iterations)]
    events += [best(chance, events[0].iterations) for chance in others]
    return max(events, key=lambda event: expected_transitions(event, agreement))


def _most_iterations(setting: Setting, pool_limit: int) -> int:
    """The most iterations, to a factor of √2 or so, that a pool of that size serves."""
    counts = [count for power in _doubling() for count in (power, round(power * 1.4))]
    fitting = [count for count in counts if pool_size_for(setting, count) <= pool_limit]
    return max(fitting, default=1)


def _doubling() -> list[int]:
    return [2**power for power in range(MOST_ITERATIONS.bit_length())]


def _check(
    setting: Setting,
    agreement: float,
    iterations: int | None,
    pool_limit: int,
    *,
    stops_never: bool,
) -> None:
    rules = {
        "experts": at_least(2),
        "actions": at_least(2),
        "horizon": at_least(1),
        "prefix_cap": at_least(1),
        "epsilon": Rule("a number above 0 and below 100", lambda value: 0 < value < 100),
        "delta": FRACTION,
        "p_min": Rule(
            "a floor between 0 and 1/actions", lambda value: 0 <= value * setting.actions <= 1
        ),
        "stop_probability": Rule("a probability from 0 to below 1", lambda value: 0 <= value < 1),
    }
    for name, rule in rules.items():
        require(name, getattr(setting, name), rule)
    require("pool_limit", pool_limit, at_least(1))
    require("agreement", agreement, SHARE)
    if iterations is not None:
        fits = Rule("a number from 1 to a million", lambda value: 1 <= value <= 10**6)
        require("iterations", iterations, fits)
    if setting.p_min == 0 and setting.stop_probability == 0 and stops_never:
        raise QuorumError(
            "stop_probability is 0 and there is no p_min: give one of them above 0, or neither and "
            "let the planner choose how often to stop."
        )
    if setting.p_min > 0 and setting.stop_probability > 0:
        raise QuorumError("p_min and stop_probability exclude each other: give one of them.")


def _confirm(event: ReleaseEvent, setting: Setting) -> None:
    """A last look at the claim, by the numbers that the mechanism will really use."""
    charge = (1 + math.exp(setting.overflow_epsilon)) * overflow_probability(event)
    spent = composed_delta(pair_of(event), event.iterations, setting.epsilon) + charge
    if not spent <= setting.delta:
        raise QuorumError(
            f"the planned release would need delta = {spent:.3g}, more than the "
            f"{setting.delta:.3g} given: report this as a bug."
        )


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
    declared = {name: getattr(plan.event, name) for name in DECLARED}
    return Setting(
        epsilon=plan.epsilon, delta=plan.delta, overflow_epsilon=plan.epsilon, **declared
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
