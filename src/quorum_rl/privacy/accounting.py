"""What a list of events costs together, in both directions and always from above.

Releases have a closed form, private steps come from dp-accounting, whose grid rounds
pessimistically; a private selection is bounded by finitely many losses. Together δ is the mean of
the training's δ over the losses of the others: jointly, in each direction, and without a grid for
the release.

Where experts are in two parts, each of them has lost to the events on everybody and to those on
its own part, and to no others: that is accounted for either part, and the larger counts
(docs/theory.md, Theorem 7).
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

from dp_accounting.pld import privacy_loss_distribution as pld

from quorum_rl.errors import FRACTION, require
from quorum_rl.privacy.events import (
    EVERYBODY,
    Event,
    ReleaseEvent,
    SelectionEvent,
    TrainingEvent,
)
from quorum_rl.privacy.losses import NOTHING, Losses, combined, from_library, joint_delta
from quorum_rl.privacy.pairs import composed_losses, overflow_probability, pair_of
from quorum_rl.privacy.selection import selection_losses

COARSEST: Final = 2.0**-10  # the grid's widest step
FINEST: Final = 2.0**-19  # and its narrowest, beyond which memory is not worth it
FFT_ERROR: Final = 1e-15  # per composed step, added to δ
LARGEST_EPSILON: Final = 700.0  # e^ε is a double up to here


def total_delta(events: Sequence[Event], epsilon: float) -> float:
    """At most the δ that all `events` together have at `epsilon`.

    Guarantee: for neighbours that differ by one expert, both with at least the declared number of
    experts, the outputs of all events together are (epsilon, δ)-indistinguishable.
    """
    return max(_delta_of_one(events, epsilon) for events in losers(events))


def total_epsilon(events: Sequence[Event], delta: float) -> float:
    """At most the ε that all `events` together have at `delta`; infinite if no ε reaches it."""
    require("delta", delta, FRACTION)
    # Each bounds the others' side at every larger ε too: a divergence does not rise with ε.
    return max(_epsilon_of_one(events, delta) for events in losers(events))


def losers(events: Sequence[Event]) -> list[list[Event]]:
    """What an expert has lost to, for every part that it may be in.

    Guarantee: with the names of the experts hashed as `TrainingEvent` says, an expert's part is
    independent of everybody else, and the other part's events are the same with it and without.
    """
    parts = sorted({event.part for event in events} - {EVERYBODY})
    if not parts:
        return [list(events)]
    return [[event for event in events if event.part in (EVERYBODY, part)] for part in parts]


def _delta_of_one(events: Sequence[Event], epsilon: float) -> float:
    charge = (1 + math.exp(min(epsilon, LARGEST_EPSILON))) * _overflow(events)
    return min(_divergence(events)(epsilon) + charge, 1.0)


def _epsilon_of_one(events: Sequence[Event], delta: float) -> float:
    if not events:
        return 0.0
    divergence, overflow = _divergence(events), _overflow(events)

    def excess(epsilon: float) -> float:
        return divergence(epsilon) + (1 + math.exp(epsilon)) * overflow - delta

    # Beyond this the charge for overflow alone is more than delta.
    last = math.log(delta / overflow) if overflow > 0 else LARGEST_EPSILON
    return least_epsilon(excess, min(last, LARGEST_EPSILON))


def _overflow(events: Sequence[Event]) -> float:
    return sum(overflow_probability(event) for event in events if isinstance(event, ReleaseEvent))


def least_epsilon(excess: Callable[[float], float], last: float) -> float:
    """The least ε in [0, last] with excess(ε) ≤ 0, rounded up; infinite if there is none.

    `excess` falls and then may rise: a hockey-stick divergence and the charge for overflow are both
    convex functions of e^ε.
    """
    low, high = 0.0, min(1.0, last)
    if last <= 0 or excess(low) <= 0:
        return 0.0 if excess(0.0) <= 0 else math.inf
    while excess(high) > 0 and high < last:
        low, high = high, min(2 * high, last)
    if excess(high) > 0:
        low, high = 0.0, _lowest_point(excess, 0.0, last)
        if excess(high) > 0:
            return math.inf
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return high


def _lowest_point(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a function that falls and then rises is least."""
    while high - low > 1e-7:
        left, right = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, right) if function(left) <= function(right) else (left, high)
    return high


def _divergence(events: Sequence[Event]) -> Callable[[float], float]:
    """δ as a function of ε, the larger of both directions, without the charge for overflow."""
    releases = release_losses([event for event in events if isinstance(event, ReleaseEvent)])
    selections = [event for event in events if isinstance(event, SelectionEvent)]
    for selection in sorted(selections, key=repr):
        remove, add = (combined(losses, selection_losses(selection)) for losses in releases)
        releases = remove, add
    trainings = training_losses([event for event in events if isinstance(event, TrainingEvent)])

    def divergence(epsilon: float) -> float:
        stages = zip(releases, trainings, strict=True)
        return max(
            release.delta(epsilon)
            if training is NOTHING
            else joint_delta(release, training, epsilon)
            for release, training in stages
        )

    return divergence


def release_losses(events: Sequence[ReleaseEvent]) -> tuple[Losses, Losses]:
    """The losses of all releases: with the expert against without, and the reverse."""
    remove = add = NOTHING
    for event in sorted(events, key=repr):  # in one order: rounding must not depend on it
        forth, back = composed_losses(pair_of(event), event.iterations)
        remove, add = combined(remove, forth), combined(add, back)
    return remove, add


def training_losses(events: Sequence[TrainingEvent]) -> tuple[Losses, Losses]:
    """The losses of all private steps: with the expert against without, and the reverse."""
    if not events:
        return NOTHING, NOTHING
    merged = _merged(events)
    return _composed_trainings(merged, grid_width(merged))


@lru_cache(maxsize=16)
def _composed_trainings(events: tuple[TrainingEvent, ...], width: float) -> tuple[Losses, Losses]:
    whole: Any = None
    for event in events:
        step = one_step_losses(event.sampling_rate, event.noise_multiplier, width)
        part = self_composed(step, event.steps)
        whole = part if whole is None else whole.compose(part)
    return from_library(whole, FFT_ERROR * sum(event.steps for event in events))


def _merged(events: Sequence[TrainingEvent]) -> tuple[TrainingEvent, ...]:
    """The same steps in one order, equal ones counted together: order must not change a digit."""
    steps: dict[tuple[float, float], int] = {}
    for event in events:
        key = (event.sampling_rate, event.noise_multiplier)
        steps[key] = steps.get(key, 0) + event.steps
    return tuple(
        TrainingEvent(sampling_rate=rate, noise_multiplier=multiplier, steps=count)
        for (rate, multiplier), count in sorted(steps.items())
    )


def grid_width(events: Sequence[TrainingEvent]) -> float:
    """The step of the grid: a tenth of the narrowest one-step spread, where that pays.

    Spreading each loss over two neighbours adds variance of at most a quarter of the squared
    step, so steps below 0.004/√n add nothing that shows. A power of two, so that it is cached.
    """
    widths = [COARSEST]
    for event in events:
        spread = one_step_spread(event.sampling_rate, event.noise_multiplier)
        widths.append(max(spread / 10, 0.004 / math.sqrt(event.steps)))
    return max(2.0 ** math.floor(math.log2(min(widths))), FINEST)


def one_step_spread(sampling_rate: float, noise_multiplier: float) -> float:
    """About the standard deviation of one private step's loss (exact as the rate goes to 0)."""
    return sampling_rate * math.sqrt(math.expm1(min(noise_multiplier**-2, 100.0)))


@lru_cache(maxsize=64)
def one_step_losses(sampling_rate: float, noise_multiplier: float, width: float) -> Any:
    """One private step: the Poisson-subsampled Gaussian of dp-accounting, add and remove."""
    return pld.from_gaussian_mechanism(
        noise_multiplier, sampling_prob=sampling_rate, value_discretization_interval=width
    )


def self_composed(step: Any, steps: int) -> Any:
    """`step`, `steps` times.

    In eights first: dp-accounting raises the size of a sparse distribution to the power of `steps`
    to decide whether it stays sparse, which takes seconds for millions of steps.
    """
    eights, rest = divmod(steps, 8)
    if eights == 0:
        return step.self_compose(steps)
    eight = step.self_compose(8)
    whole = eight.self_compose(eights) if eights > 1 else eight
    return whole.compose(step.self_compose(rest)) if rest else whole
