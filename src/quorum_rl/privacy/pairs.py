"""The privacy loss of one release iteration as two numbers and a δ, and of T of them exactly.

P is the output's distribution with the expert, Q without. One iteration satisfies
P(S) ≤ e^epsilon_remove · Q(S) + delta and Q(S) ≤ e^epsilon_add · P(S) for every S. By Lemma A of
docs/theory.md the pair of distributions with three points that meets both with equality dominates
every such (P, Q), and T iterations are a binomial sum.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import gammaln

from quorum_rl.errors import QuorumError
from quorum_rl.privacy.events import ReleaseEvent
from quorum_rl.privacy.laplace import ROUNDING, lattice_tail
from quorum_rl.privacy.losses import LARGEST, Floats, Losses

LOGARITHM_ERROR: float = 1e-14  # per iteration: of logarithms of factorials, added to δ
STEPS_LOST: float = 3.0  # lattice steps that rounding down may cost a product at each factor


@dataclass(frozen=True)
class Pair:
    """What one iteration may lose: by removing an expert, by adding one, and outright."""

    epsilon_remove: float
    epsilon_add: float
    delta: float


def pair_of(event: ReleaseEvent) -> Pair:
    """The dominating pair of one iteration of `event` (Theorems 1 and 2 of docs/theory.md).

    Raises:
        QuorumError: if its constants carry no guarantee.
    """
    if event.mode == "paper":
        return _as_published(event)
    delta = lattice_tail(
        event.threshold - event.theta,
        event.query_epsilon,
        event.threshold_epsilon,
        event.lattice_bits,
    )
    if not delta < 1:
        raise QuorumError("the release's threshold lies too close above theta: plan it again.")
    remove = event.threshold_epsilon + _removal(event)
    add = event.query_epsilon + math.log(event.experts / (event.experts - 1))
    # Fewer experts than theta: nothing comes out but with probability delta, which itself may
    # change by that much.
    least = -math.log1p(-delta)
    return Pair(max(remove, least) * ROUNDING, max(add, least) * ROUNDING, delta)


def _removal(event: ReleaseEvent) -> float:
    """What the failed query and the draw cost together when an expert is removed."""
    if event.p_min == 0:
        needed = 1 / (event.stop_probability * math.expm1(event.query_epsilon))
        if (event.theta - 1) * ROUNDING < needed:
            raise QuorumError(
                f"theta is {event.theta} but random stopping needs {1 + needed:.6g}: plan it again."
            )
        return event.query_epsilon
    least_count = (event.theta - 1) * event.p_min / event.p_max
    lost = STEPS_LOST * event.prefix_cap * 2.0**-event.lattice_bits
    return draw_and_query(least_count, event.query_epsilon) + event.query_epsilon * lost


def draw_and_query(least_count: float, query_epsilon: float) -> float:
    """max over u in [0, 1] of ln(1 + u/least_count) + query_epsilon·(1 − u)."""
    u = min(max(1 / query_epsilon - least_count, 0.0), 1.0)
    return math.log1p(u / least_count) + query_epsilon * (1 - u)


def _as_published(event: ReleaseEvent) -> Pair:
    """(2ε', L·δ') both ways, from the constants that the mechanism really has."""
    count = event.theta * event.p_min
    if not count > 1:
        raise QuorumError(f"theta is {event.theta}: mode paper needs more than 1/p_min.")
    query = event.threshold_epsilon + 2 * event.query_epsilon
    epsilon = query + math.log(count / (count - 1))
    delta = math.exp(-(event.threshold - event.theta) * event.query_epsilon)
    delta = min(event.horizon * delta * ROUNDING, 1.0)
    # A pair has no δ for adding an expert. That it needs none rests on the lemmas of mode tight,
    # which with few experts ask for more than the published ε.
    add = max(epsilon, event.query_epsilon + math.log(event.experts / (event.experts - 1)))
    least = -math.log1p(-delta) if delta < 1 else math.inf
    return Pair(epsilon * ROUNDING, max(add, least) * ROUNDING, delta)


def overflow_probability(event: ReleaseEvent) -> float:
    """At most how likely some expert is drawn more often than it has pool trajectories.

    0 in mode `paper`, which has no pool and whose claim ignores this.
    """
    drawn = event.pool_size + 1
    if event.mode == "paper" or drawn > event.iterations:
        return 0.0
    ways = gammaln(event.iterations + 1) - gammaln(drawn + 1)
    ways -= gammaln(event.iterations - drawn + 1)
    return min(math.exp(ways - event.pool_size * math.log(event.experts)) * ROUNDING, 1.0)


def composed_losses(pair: Pair, iterations: int) -> tuple[Losses, Losses]:
    """The losses of `iterations` iterations: with the expert against without, and the reverse."""
    remove, add, delta = pair.epsilon_remove, pair.epsilon_add, pair.delta
    if not delta < 1:
        raise QuorumError("the release's delta reaches 1: plan it again.")
    if not (add < LARGEST and remove < math.inf):
        raise QuorumError(f"an iteration costs an epsilon above {LARGEST:g}: plan it again.")
    spread = math.expm1(add) - math.expm1(-remove)
    high = max(math.expm1(add) - delta * math.exp(add), 0.0) / spread
    # This is 1 − delta − high, whose digits cancel where an iteration costs much.
    low = min((delta * math.exp(-remove) - math.expm1(-remove)) / spread, 1 - delta)
    times, others, ways = _binomial(iterations)
    with np.errstate(divide="ignore"):
        log_high, log_low = np.log(high), np.log(low)
    chance = ways + _times(times, log_high) + _times(others, log_low)
    loss = times * remove - others * add
    infinite = -math.expm1(iterations * math.log1p(-delta))
    slack = iterations * LOGARITHM_ERROR
    forth = Losses(loss, np.exp(chance), infinite, slack)
    back = Losses(-loss[::-1], np.exp(chance - loss)[::-1], 0.0, slack)
    return forth, back


@lru_cache(maxsize=64)
def _binomial(iterations: int) -> tuple[Floats, Floats, Floats]:
    """0 … iterations, the same in reverse, and the logarithms of the binomial coefficients."""
    times = np.arange(iterations + 1.0)
    others = iterations - times
    ways = gammaln(iterations + 1) - gammaln(times + 1) - gammaln(others + 1)
    return times, others, ways


def composed_delta(pair: Pair, iterations: int, epsilon: float) -> float:
    """δ of `iterations` iterations at `epsilon`, the larger of both directions (Theorem 3)."""
    return max(losses.delta(epsilon) for losses in composed_losses(pair, iterations))


def _times(counts: Floats, log_probability: float) -> Floats:
    """counts·log_probability, with 0·(−∞) = 0."""
    made: Floats = np.zeros_like(counts)
    np.multiply(counts, log_probability, out=made, where=counts > 0)
    return made
