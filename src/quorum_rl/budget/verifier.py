"""A second opinion on a certificate: the cost of every event by another route.

Nothing numerical is shared with `quorum_rl.privacy`, only the definition of the events. Where the
accounting has a formula, this has a search or an integral; where it composes in closed form, this
composes on a grid.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final

import numpy as np
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.integrate import quad

from quorum_rl.budget.record import LedgerRecord
from quorum_rl.budget.selection import selection_on_grid
from quorum_rl.errors import QuorumError
from quorum_rl.privacy.events import (
    EVERYBODY,
    Event,
    Part,
    ReleaseEvent,
    SelectionEvent,
    TrainingEvent,
)

TOLERANCE: Final = 1e-3  # of ε: what the grid may add to it
CONTRIBUTIONS: Final = 2**18  # how densely an expert's contribution u in [0, 1] is searched
WIDEST: Final = 2.0**-11  # of the grid's steps
NARROWEST: Final = 2.0**-20


@dataclass(frozen=True)
class Verification:
    """Whether a claimed ε holds, by the independent route.

    `epsilon` is at least the true ε at `delta`. `holds` if the claim is not below it by more than
    the grid explains and nothing else speaks against it; otherwise `reasons` say why.
    """

    epsilon: float
    delta: float
    claimed: float
    holds: bool
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class IterationLoss:
    """What one iteration of a release loses: on removal, on addition, and outright."""

    removal: float
    addition: float
    outright: float


def verify(
    record: LedgerRecord, *, epsilon: float | None = None, delta: float | None = None
) -> Verification:
    """Checks that all charges together cost at most `epsilon` at `delta`.

    `epsilon` is what a certificate claims, `delta` where; the ledger's budget where not given.

    Raises:
        QuorumError: if neither the ledger nor the caller names them.
    """
    claimed = record.epsilon if epsilon is None else epsilon
    at = record.delta if delta is None else delta
    if claimed is None or at is None:
        raise QuorumError(
            "this research ledger has no budget: say which epsilon and delta to check."
        )
    found = independent_epsilon(record.events, at)
    reasons = []
    if not found <= claimed * (1 + TOLERANCE):
        reasons.append(f"the events cost up to ε = {found:.6g} at δ = {at:g}, not {claimed:.6g}")
    if record.torn and not (record.epsilon is not None and claimed >= record.epsilon):
        reasons.append("the ledger's last line was cut off, so its whole budget must be claimed")
    if any(event.mode == "paper" for event in record.events if isinstance(event, ReleaseEvent)):
        reasons.append("mode paper has no pool of fresh trajectories, which the guarantee needs")
    if len(set(record.pools)) < len(record.pools):
        reasons.append("a release pool was used more than once")
    if record.whole_logs.intersection(record.pools):
        reasons.append("a training has read the trajectories of a release pool")
    if record.split is None and record.is_parted:
        reasons.append("an event is on one part of the experts, and no split was committed to")
    return Verification(found, at, claimed, not reasons, tuple(reasons))


def independent_epsilon(events: Sequence[Event], delta: float) -> float:
    """At least the ε at `delta` of all events together; infinite if there is none.

    An expert sits in one part for good, and what is asked of the other runs alike with it and
    without: so each seat is tried, with only those events that can see who sits there.
    """
    seats: set[Part] = {event.part for event in events if event.part != EVERYBODY}
    seen = (
        [event for event in events if event.part == seat or event.part == EVERYBODY]
        for seat in seats or {EVERYBODY}
    )
    return max(_epsilon_in_one_seat(events, delta) for events in seen)


def _epsilon_in_one_seat(events: Sequence[Event], delta: float) -> float:
    if not events:
        return 0.0
    losses = {event: _iteration(event) for event in events if isinstance(event, ReleaseEvent)}
    if any(loss.outright >= 1 for loss in losses.values()):
        return math.inf
    step = min(_grid_step(event, losses) for event in events)
    whole: Any = pld.identity(step)
    for event in events:
        if isinstance(event, ReleaseEvent):
            loss, times = _on_grid(losses[event], step), event.iterations
        elif isinstance(event, SelectionEvent):
            loss, times = selection_on_grid(event, step), 1
        else:
            loss, times = _gaussian(event, step), event.steps
        whole = whole.compose(_composed(loss, times))
    overflow = sum(_overflow(event) for event in events if isinstance(event, ReleaseEvent))
    return _least_epsilon(whole, delta, float(overflow))


def _iteration(event: ReleaseEvent) -> IterationLoss:
    """One iteration, by searching over what the differing expert contributes to the count.

    With u its share of the next count, n' the others' count there and both given that the released
    prefix lies above theta: the draw changes by the factor 1 + u/n', the failed query by
    exp(ε_q·(1 − u)), the threshold by exp(ε_t).
    """
    query = event.query_epsilon
    outright = _passing_below_theta(event)
    least = _least_count(event)
    if not least > 0 or outright >= 1:
        return IterationLoss(math.inf, math.inf, 1.0)
    u = np.linspace(0, 1, CONTRIBUTIONS + 1)
    if event.mode == "tight" and event.p_min == 0:
        # The prefix also comes out by stopping on it, which balances the draws of its extensions.
        loss = np.maximum(query, np.log1p(u / least))
    else:
        loss = query * (1 - u) + np.log1p(u / least)
    slope = max(query, 1 / least)
    between = slope / (2 * CONTRIBUTIONS)  # half a step of the search away
    lattice = query * 3 * event.prefix_cap / 2**event.lattice_bits  # counts are rounded down
    floor = -math.log1p(-outright)  # what changes where there are fewer experts than theta
    return IterationLoss(
        removal=max(event.threshold_epsilon + float(loss.max()) + between + lattice, floor),
        addition=max(query + math.log(event.experts) - math.log(event.experts - 1), floor),
        outright=outright,
    )


def _least_count(event: ReleaseEvent) -> float:
    """The least count that the other experts keep where a prefix above theta is drawn."""
    if event.mode == "paper":
        return event.theta * event.p_min - 1  # not normalised: one step takes at most all but p_min
    if event.p_min > 0:
        return (event.theta - 1) * event.p_min / (1 - (event.actions - 1) * event.p_min)
    return (event.theta - 1) * event.stop_probability


def _passing_below_theta(event: ReleaseEvent) -> float:
    """Pr[query noise − threshold noise > threshold − theta], by integrating over the threshold's.

    Each discrete draw is at most a continuous one and a step of the lattice.
    """
    offset = event.threshold - event.theta - 2 / 2**event.lattice_bits
    if offset <= 0:
        return 1.0
    query, threshold = event.query_epsilon, event.threshold_epsilon

    def passing(noise: float) -> float:
        """The density of this threshold noise, times the chance that the query's overcomes it."""
        needed = offset + noise
        tail = math.exp(-query * needed) / 2 if needed >= 0 else 1 - math.exp(query * needed) / 2
        return threshold / 2 * math.exp(-threshold * abs(noise)) * tail

    far = 45 / threshold  # e^-45 of the threshold's noise lies beyond: counted whole below
    edges = [-offset - far, -offset, 0.0, far]
    total = math.exp(-threshold * (offset + far))
    for low, high in pairwise(edges):
        pieces = np.linspace(low, high, 17)
        for start, end in pairwise(pieces):
            value, error = quad(passing, start, end, epsabs=0, epsrel=1e-9)
            total += value + error
    # Beyond +far the query noise must overcome even more than offset + far.
    return min(total + math.exp(-45 - query * (offset + far)), 1.0)


def _overflow(event: ReleaseEvent) -> Fraction:
    """At most how likely an expert is drawn more often than its pool has trajectories: some
    pool_size + 1 of the draws have to agree."""
    if event.mode == "paper":
        return Fraction(0)
    draws = math.comb(event.iterations, event.pool_size + 1)
    return Fraction(draws, event.experts**event.pool_size)


def _grid_step(event: Event, losses: dict[ReleaseEvent, IterationLoss]) -> float:
    """Fine against the spread of one step's loss: what the grid adds to its variance is small."""
    if isinstance(event, ReleaseEvent):
        spread, finer = math.sqrt(losses[event].removal * losses[event].addition), 128
    elif isinstance(event, SelectionEvent):
        return WIDEST
    else:
        finer = 24
        spread = event.sampling_rate * math.sqrt(math.expm1(min(event.noise_multiplier**-2, 50)))
    return 2.0 ** math.floor(math.log2(min(max(spread / finer, NARROWEST), WIDEST)))


def _on_grid(loss: IterationLoss, step: float) -> Any:
    """The worst pair of distributions with these losses, spread over neighbours on the grid.

    With the expert the output has infinite loss with probability `outright`, else `removal` or
    −`addition`; the two probabilities follow from both distributions having mass one.
    """
    levels = np.array([loss.removal, -loss.addition])
    chances = np.linalg.solve([np.ones(2), np.exp(-levels)], [1 - loss.outright, 1.0])
    with_expert: dict[int, float] = {}
    without: dict[int, float] = {}
    for level, chance in zip(levels, chances, strict=True):
        for point, part in _spread(float(level), float(chance), step):
            with_expert[point] = with_expert.get(point, 0.0) + part
            without[-point] = without.get(-point, 0.0) + part * math.exp(-point * step)
    return pld.PrivacyLossDistribution.create_from_rounded_probability(
        with_expert, loss.outright, step, True, without, 0.0, symmetric=False
    )


def _spread(loss: float, chance: float, step: float) -> list[tuple[int, float]]:
    """An outcome of this loss told apart into two, one on either neighbouring point of the grid.

    Both distributions keep their mass, so forgetting which of the two it was gives the outcome
    back: what is told apart can only be easier to distinguish.
    """
    below = math.floor(loss / step)
    # Parts a and b at the points below and above: a + b = 1, a·e^-below + b·e^-above = e^-loss.
    rest = loss - below * step
    above = -math.expm1(-rest) / -math.expm1(-step)
    return [(below, chance * (1 - above)), (below + 1, chance * above)]


def _gaussian(event: TrainingEvent, step: float) -> Any:
    return pld.from_gaussian_mechanism(
        event.noise_multiplier,
        sampling_prob=event.sampling_rate,
        value_discretization_interval=step,
    )


def _composed(loss: Any, times: int) -> Any:
    """The distribution `loss` composed with itself, `times` times, by repeated doubling."""
    whole = None
    while times:
        times, odd = divmod(times, 2)
        if odd:
            whole = loss if whole is None else whole.compose(loss)
        loss = loss.compose(loss) if times else loss
    return whole


def _least_epsilon(whole: Any, delta: float, overflow: float) -> float:
    """The least ε at which δ, with (1 + e^ε) times the overflow, is `delta`; slightly above it."""
    epsilon = 0.0
    while epsilon < 700:
        left = delta - (1 + math.exp(epsilon)) * overflow
        if left <= 0:
            return math.inf
        needed = float(whole.get_epsilon_for_delta(left))
        if needed <= epsilon:
            return epsilon
        epsilon = needed * (1 + 1e-7)
    return math.inf
