"""The exact distribution of what a release puts out, by enumeration: the tests' own oracle.

Nothing here is taken from the product but the event's constants. An output is the node of the
tree where the released prefix ends; output 0 stands for nothing (the empty prefix).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Final, Literal

import numpy as np
from trees import Experts, Floats, Ints, Tree, trajectory_ends

from quorum_rl.privacy.events import ReleaseEvent

TAIL: Final = 37.0  # e^-37 < 1e-16: threshold noise beyond it is put on the last point
FINE_BITS: Final = 12  # above it the lattice is too fine to sum point by point
POINTS: Final = 16  # of Gauss and Legendre, per piece
PIECE: Final = 4.0  # scales of the narrower noise: pieces no longer than this


@dataclass(frozen=True)
class Faults:
    """How a mechanism may differ from the one that was analysed; halved constants need no flag:
    they are another event."""

    nearest: bool = False  # products rounded to the nearest lattice point, not down
    first_stop: bool = True  # whether it may stop before the first query, too
    overflow: Literal["nothing", "reuse"] = "nothing"  # what an expert without fresh logs gives


SOUND: Final = Faults()


def iteration_distribution(
    tree: Tree, who: Experts, event: ReleaseEvent, faults: Faults = SOUND
) -> Floats:
    """The probability of every output of one iteration.

    Exact up to rounding for `lattice_bits` to 12; beyond, the lattice is taken as the real line,
    which is right to about 2**-lattice_bits.
    """
    return joint_distribution(tree, who, event, 1, faults)


def joint_distribution(
    tree: Tree, who: Experts, event: ReleaseEvent, draws: int, faults: Faults = SOUND
) -> Floats:
    """The probability of every sequence of `draws` outputs, with the pool of `event`.

    Experts are drawn with replacement; the r-th draw of one uses its r-th pool trajectory, and
    beyond `pool_size` it gives nothing (or, as a fault, its last trajectory once more).

    Shapes:
        (nodes,) * draws.
    """
    given = given_trajectory(tree, event, lattice_counts(tree, who, event, faults), faults)
    ends = trajectory_ends(tree, who)
    copies = who.copies if who.pooled is None else who.copies * who.pooled
    joint = np.zeros((tree.nodes,) * draws)
    for blocks in _partitions(draws):
        per_size = [_outputs_of_one(ends, given, len(b), event.pool_size, faults) for b in blocks]
        order = np.argsort([draw for block in blocks for draw in block])
        for kinds in product(range(len(copies)), repeat=len(blocks)):
            ways = _distinct(copies, kinds)
            if ways == 0:
                continue
            part = np.array(float(ways))
            for outputs, kind in zip(per_size, kinds, strict=True):
                part = np.multiply.outer(part, outputs[kind])
            joint += np.transpose(part, order)
    return joint / float(copies.sum()) ** draws


def _partitions(draws: int) -> Iterator[list[list[int]]]:
    """Every way in which some of the draws fall on the same expert."""
    if draws == 0:
        yield []
        return
    for blocks in _partitions(draws - 1):
        for index, block in enumerate(blocks):
            yield [*blocks[:index], [*block, draws - 1], *blocks[index + 1 :]]
        yield [*blocks, [draws - 1]]


def _distinct(copies: Ints, kinds: tuple[int, ...]) -> int:
    """In how many ways different experts of these kinds can be chosen."""
    return math.prod(
        math.perm(int(many), kinds.count(kind)) for kind, many in enumerate(copies.tolist())
    )


def _outputs_of_one(
    ends: Floats, given: Floats, draws: int, pool_size: int, faults: Faults
) -> list[Floats]:
    """For each kind, the joint distribution of what one expert gives when drawn `draws` times."""
    fresh = min(draws, pool_size)
    outputs = []
    for ends_of_kind in ends:
        once = ends_of_kind @ given
        joint = np.array(1.0)
        for _ in range(fresh if faults.overflow == "nothing" else max(fresh - 1, 0)):
            joint = np.multiply.outer(joint, once)
        if faults.overflow == "nothing":
            nothing = np.zeros_like(once)
            nothing[0] = 1.0
            for _ in range(draws - fresh):
                joint = np.multiply.outer(joint, nothing)
        else:
            joint = np.multiply.outer(joint, _same_trajectory(ends_of_kind, given, draws - fresh))
        outputs.append(joint)
    return outputs


def _same_trajectory(ends: Floats, given: Floats, again: int) -> Floats:
    """What one trajectory gives when it is queried 1 + `again` times, with fresh noise."""
    letters = "bcdefgh"[: again + 1]
    terms = ",".join(f"a{letter}" for letter in letters)
    joint: Floats = np.einsum(f"a,{terms}->{letters}", ends, *[given] * (again + 1))
    return joint


def given_trajectory(
    tree: Tree, event: ReleaseEvent, counts: Ints, faults: Faults = SOUND
) -> Floats:
    """Row by row, the distribution of the output if the drawn trajectory ends at that node."""
    passed, failed = _query_outcomes(tree, event, counts, faults)
    rows = np.zeros((tree.nodes, tree.nodes))
    for node in range(tree.nodes):
        before = tree.parent[node]
        if before < 0:
            rows[node, node] = 1.0
            continue
        rows[node] = rows[before]
        if tree.depth[node] <= event.prefix_cap:
            rows[node, before] = failed[node]
            rows[node, node] = passed[node]
    starts = tree.depth == 0
    rows[:, 0] = rows[:, starts].sum(axis=1)
    rows[:, starts & (np.arange(tree.nodes) > 0)] = 0.0
    return rows


def lattice_counts(tree: Tree, who: Experts, event: ReleaseEvent, faults: Faults = SOUND) -> Ints:
    """The count at every node of the steps that led there, in units of 2**-lattice_bits.

    Every expert's product is rounded down at every step, in whole numbers.
    """
    one = 1 << event.lattice_bits
    unit = event.p_max if event.mode == "tight" else 1.0
    scaled = np.minimum(who.policy / unit, 1.0) * (1 - 2.0**-50) * one
    factors = (np.rint(scaled) if faults.nearest else np.floor(scaled)).astype(np.uint64)
    half = np.uint64(one // 2 if faults.nearest else 0)
    values = np.full(who.policy.shape[:2], one, np.uint64)
    for node in range(tree.nodes):
        if (before := tree.parent[node]) >= 0:
            grown = values[:, before] * factors[:, before, tree.action[node]] + half
            values[:, node] = grown >> np.uint64(event.lattice_bits)
    return np.asarray(who.copies @ values.astype(np.int64), np.int64)


def _query_outcomes(
    tree: Tree, event: ReleaseEvent, counts: Ints, faults: Faults
) -> tuple[Floats, Floats]:
    """For each node, that all queries up to it pass, and that all but the last one do.

    Nodes with the same counts on the way have the same outcomes, and are computed once.
    """
    noise, weights = _threshold_noise(event, counts)
    threshold = math.ceil(event.threshold * 2**event.lattice_bits)
    passed, failed = np.ones(tree.nodes), np.zeros(tree.nodes)
    ways: list[tuple[int, ...]] = []
    running: dict[tuple[int, ...], Floats] = {(): weights}
    known: dict[tuple[int, ...], tuple[float, float]] = {}
    for node in range(tree.nodes):
        before = tree.parent[node]
        ways.append(() if before < 0 else (*ways[before], int(counts[node])))
        if before < 0:
            continue
        if ways[node] not in known:
            may_stop = faults.first_stop or tree.depth[node] > 1
            stop = event.stop_probability if may_stop else 0.0
            below, above = _laplace(threshold - counts[node] + noise, event)
            alive = running[ways[before]]
            running[ways[node]] = alive * ((1 - stop) * above)
            known[ways[node]] = (
                float(running[ways[node]].sum()),
                float(alive @ (stop + (1 - stop) * below)),
            )
        passed[node], failed[node] = known[ways[node]]
    return passed, failed


def _laplace(bar: Floats, event: ReleaseEvent) -> tuple[Floats, Floats]:
    """Probabilities that the query noise is at most `bar`, and above it; both without
    cancellation."""
    rate = event.query_epsilon * 2.0**-event.lattice_bits
    far = np.exp(-rate * np.where(bar >= 0, bar + 1, -bar)) / (1 + math.exp(-rate))
    return np.where(bar >= 0, 1 - far, far), np.where(bar >= 0, far, 1 - far)


def _threshold_noise(event: ReleaseEvent, counts: Ints) -> tuple[Floats, Floats]:
    """Values of the threshold noise in lattice units, and their probabilities."""
    rate = event.threshold_epsilon * 2.0**-event.lattice_bits
    last = math.ceil(TAIL / rate)
    if event.lattice_bits <= FINE_BITS:
        noise = np.arange(-last, last + 1, dtype=float)
        weights = np.exp(-rate * np.abs(noise)) * math.tanh(rate / 2)
        weights[[0, -1]] /= 1 - math.exp(-rate)
        return noise, weights
    # The functions summed are smooth between these points: the noise's own peak and the counts.
    kinks = np.append(counts - math.ceil(event.threshold * 2**event.lattice_bits), 0)
    fastest = max(event.threshold_epsilon, event.query_epsilon) * 2.0**-event.lattice_bits
    pieces = np.linspace(-last, last, math.ceil(2 * last * fastest / PIECE) + 1)
    cuts = np.union1d(kinks[np.abs(kinks) < last], pieces)
    place, share = np.polynomial.legendre.leggauss(POINTS)
    half = np.diff(cuts)[:, None] / 2
    noise = (cuts[:-1, None] + half * (1 + place)).ravel()
    weights = (half * share).ravel() * rate / 2 * np.exp(-rate * np.abs(noise))
    return noise, weights


def hockey_stick(first: Floats, second: Floats, epsilon: float) -> float:
    """Σ (first − e^ε·second)⁺: how far `first` may exceed e^ε times `second` on any set."""
    return float(np.maximum(first - math.exp(epsilon) * second, 0.0).sum())


def needed_epsilon(first: Floats, second: Floats, delta: float) -> float:
    """The least ε ≥ 0 at which the hockey-stick divergence is at most `delta`; infinite if none.

    It is attained on a set of outputs where the ratio of the two is large, so only such are tried.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        order = np.argsort(np.nan_to_num(second / first, nan=np.inf), axis=None)
        gained = np.cumsum(first.ravel()[order]) - delta
        epsilons = np.log(gained / np.cumsum(second.ravel()[order]))
    return float(max(0.0, np.max(epsilons[gained > 0], initial=0.0)))
