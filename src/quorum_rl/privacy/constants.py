"""The constants of one release: the best split of its budget between threshold, queries and draw.

Three things share an iteration's ε: the threshold's noise, the queries' noise, and the change of
the draw itself, through the least count c0 that a releasable prefix must keep. And δ is shared
between the offset (a prefix below theta must hardly ever pass) and the composition's tail. The
search below finds the split that makes the threshold least, or any other score of an event best.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq, minimize

from quorum_rl.errors import TooLittleBudgetError
from quorum_rl.privacy.events import LATTICE_BITS, ReleaseEvent, largest_probability
from quorum_rl.privacy.laplace import lattice_offset
from quorum_rl.privacy.pairs import (
    Pair,
    composed_delta,
    draw_and_query,
    overflow_probability,
    pair_of,
)

POOL_SHARE = 0.01  # of δ, at most, that the charge for overflowing pools may take
DECLARED = ("experts", "actions", "p_min", "stop_probability", "horizon", "prefix_cap")
START = (0.2, -1.5, -0.3)  # of the search: the usual split, in the units of `_Split`


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is declared about the experts and the world, and what may be spent on them.

    `p_min` is 0 where nothing is promised about the policies; then `stop_probability` is not.
    `overflow_epsilon` is the ε at which a pool's overflow is charged: that of all stages together
    where this release is one of several.
    """

    experts: int
    actions: int
    p_min: float
    stop_probability: float
    horizon: int
    prefix_cap: int
    epsilon: float
    delta: float
    overflow_epsilon: float

    @property
    def p_max(self) -> float:
        return largest_probability(self.actions, self.p_min)


@dataclass(frozen=True)
class _Split:
    """How a budget is shared, as three unbounded numbers.

    ε_t/ε_q = exp(threshold); c0·ε_q = exp(draw); the offset's share of δ is a sigmoid of `offset`.
    """

    threshold: float
    draw: float
    offset: float


def tight_event(
    setting: Setting,
    iterations: int,
    score: Callable[[ReleaseEvent], float] | None = None,
    start: tuple[float, float, float] = START,
) -> tuple[ReleaseEvent, tuple[float, float, float]]:
    """The release of `iterations` whose score, by default its threshold's logarithm, is least.

    Returns also where the search ended: a good `start` for a similar setting.

    Guarantee: the event costs at most (setting.epsilon, setting.delta), its own overflow included.

    Raises:
        TooLittleBudgetError: if there is none.
    """
    pool_size = pool_size_for(setting, iterations)
    judged = score or (lambda event: math.log(event.threshold))

    def cost(point: npt.NDArray[np.float64]) -> float:
        event = _event(setting, iterations, pool_size, _Split(*point.tolist()))
        return math.inf if event is None else judged(event)

    simplex = np.array(start) + np.vstack([np.zeros(3), 0.4 * np.eye(3)])
    options = {"xatol": 5e-3, "fatol": 1e-5, "maxfev": 300, "initial_simplex": simplex}
    with np.errstate(invalid="ignore"):  # SciPy subtracts infinite costs
        found = minimize(cost, np.array(start), method="Nelder-Mead", options=options)
    at: list[float] = found.x.tolist()
    event = _event(setting, iterations, pool_size, _Split(*at))
    if event is None:
        raise TooLittleBudgetError(
            f"epsilon = {setting.epsilon:g} and delta = {setting.delta:g} cannot be split over "
            f"{iterations} iterations: give a larger epsilon or fewer iterations."
        )
    return event, (at[0], at[1], at[2])


def pool_size_for(setting: Setting, iterations: int) -> int:
    """The fewest trajectories per expert whose overflow takes at most POOL_SHARE of δ."""
    for size in range(1, iterations):
        if _overflow_charge(setting, iterations, size) <= POOL_SHARE * setting.delta:
            return size
    return iterations


def _overflow_charge(setting: Setting, iterations: int, pool_size: int) -> float:
    probe = _assemble(setting, iterations, pool_size, 2.0, 3.0, 1.0, 1.0)
    return (1 + math.exp(setting.overflow_epsilon)) * overflow_probability(probe)


def _event(setting: Setting, iterations: int, pool_size: int, split: _Split) -> ReleaseEvent | None:
    """The event with this split, its noise as small as the budget allows; None if there is none."""
    left = setting.delta - _overflow_charge(setting, iterations, pool_size)
    share = 1 / (1 + math.exp(min(-split.offset, 50.0)))
    offset_delta = left * share / iterations
    ratio, draw = math.exp(split.threshold), math.exp(split.draw)

    def pair_at(query: float) -> Pair:
        if setting.p_min == 0:
            remove = ratio * query + query
        else:
            remove = ratio * query + draw_and_query(draw / query, query)
        return Pair(remove, query + math.log(setting.experts / (setting.experts - 1)), offset_delta)

    query = _solved(
        lambda query: composed_delta(pair_at(query), iterations, setting.epsilon), left, setting
    )
    for shrink in (1 - 1e-6, 1 - 1e-3, 0.0):  # the event's own pair adds what rounding may cost
        if query * shrink <= 1e-9:
            return None
        event = _assembled_at(
            setting, iterations, pool_size, query * shrink, ratio, draw, offset_delta
        )
        if composed_delta(pair_of(event), iterations, setting.epsilon) <= left:
            return event
    return None


def _assembled_at(
    setting: Setting,
    iterations: int,
    pool_size: int,
    query: float,
    ratio: float,
    draw: float,
    offset_delta: float,
) -> ReleaseEvent:
    if setting.p_min == 0:
        theta = 1 + 1 / (setting.stop_probability * math.expm1(query))
    else:
        theta = 1 + draw / query * setting.p_max / setting.p_min
    threshold = _up(theta) + lattice_offset(offset_delta, query, ratio * query, LATTICE_BITS)
    return _assemble(setting, iterations, pool_size, theta, threshold, ratio * query, query)


def _assemble(
    setting: Setting,
    iterations: int,
    pool_size: int,
    theta: float,
    threshold: float,
    threshold_epsilon: float,
    query_epsilon: float,
) -> ReleaseEvent:
    declared = {name: getattr(setting, name) for name in DECLARED}
    return ReleaseEvent(
        mode="tight",
        iterations=iterations,
        theta=theta,
        threshold=threshold,
        threshold_epsilon=threshold_epsilon,
        query_epsilon=query_epsilon,
        pool_size=pool_size,
        **declared,
    )


def _solved(delta_at: Callable[[float], float], left: float, setting: Setting) -> float:
    """About where `delta_at` reaches `left`, or the whole ε if even that costs less."""
    least, most = math.log(1e-8), math.log(setting.epsilon)

    def excess(log_query: float) -> float:
        return math.log(max(delta_at(math.exp(log_query)), 1e-300) / left)

    if excess(most) <= 0:
        return setting.epsilon
    if excess(least) >= 0:
        return 0.0
    return math.exp(float(brentq(excess, least, most, xtol=1e-7)))


def paper_event(setting: Setting, iterations: int) -> ReleaseEvent:
    """The release with the constants of the paper's Algorithm 2, L being the declared horizon."""
    epsilon = setting.epsilon / math.sqrt(32 * iterations * math.log(2 / setting.delta))
    delta = setting.delta / (2 * iterations * setting.horizon)
    count = 1 / -math.expm1(-epsilon)
    theta = count / setting.p_min
    threshold = _up(theta + 4 / epsilon * math.log(1 / delta))
    event = _assemble(setting, iterations, 0, theta, threshold, epsilon / 2, epsilon / 4)
    return replace(event, mode="paper")


def _up(value: float) -> float:
    """The next point of the lattice at or above `value`."""
    return math.ceil(value * 2.0**LATTICE_BITS) / 2.0**LATTICE_BITS
