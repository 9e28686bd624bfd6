"""What the product claims for a release, direction by direction, and how much a case uses of it."""

import math
from typing import NamedTuple

from enumeration import SOUND, Faults, hockey_stick, joint_distribution
from trees import Experts, Floats, Tree

from quorum_rl.privacy.events import ReleaseEvent
from quorum_rl.privacy.laplace import lattice_offset
from quorum_rl.privacy.pairs import composed_losses, overflow_probability, pair_of

USUAL = ReleaseEvent(
    mode="tight",
    experts=3000,
    actions=2,
    p_min=0.02,
    stop_probability=0.0,
    horizon=200,
    prefix_cap=200,
    iterations=25,
    theta=69.32825211586427,
    threshold=162.5283029798884,
    threshold_epsilon=0.16218801377998274,
    query_epsilon=0.1360777239621779,
    pool_size=25,  # so nothing overflows
)
"""A release as it is planned for ε = 7.5 and 3,000 experts."""


class Both(NamedTuple):
    """A number for each direction: P with the expert over Q without, and the reverse."""

    remove: float
    add: float


def event_with(
    *,
    experts: int,
    query_epsilon: float,
    threshold_epsilon: float,
    delta: float,
    depth: int,
    p_min: float = 0.0,
    least_count: float = 0.0,
    stop_probability: float = 0.0,
    actions: int = 2,
    iterations: int = 1,
    pool_size: int | None = None,
    lattice_bits: int = 8,
) -> ReleaseEvent:
    """The release whose offset spends `delta`, for declared constants; a full pool by default."""
    if p_min > 0:
        theta = 1 + least_count * (1 - (actions - 1) * p_min) / p_min
    else:
        theta = 1 + 1 / (stop_probability * math.expm1(query_epsilon))
    offset = lattice_offset(delta, query_epsilon, threshold_epsilon, lattice_bits)
    return ReleaseEvent(
        mode="tight",
        experts=experts,
        actions=actions,
        p_min=p_min,
        stop_probability=stop_probability,
        horizon=depth,
        prefix_cap=depth,
        iterations=iterations,
        theta=theta,
        threshold=math.ceil(theta * 2**lattice_bits) / 2**lattice_bits + offset,
        threshold_epsilon=threshold_epsilon,
        query_epsilon=query_epsilon,
        pool_size=iterations if pool_size is None else pool_size,
        lattice_bits=lattice_bits,
    )


def claimed(event: ReleaseEvent, epsilon: float, charged: bool = True) -> Both:
    """The claimed δ at `epsilon`; without the pool's overflow if it is not `charged`."""
    remove, add = (
        losses.delta(epsilon) for losses in composed_losses(pair_of(event), event.iterations)
    )
    charge = (1 + math.exp(epsilon)) * overflow_probability(event) if charged else 0.0
    return Both(min(remove + charge, 1.0), min(add + charge, 1.0))


def both_outputs(
    tree: Tree, with_expert: Experts, without: Experts, event: ReleaseEvent, faults: Faults = SOUND
) -> tuple[Floats, Floats]:
    """The distributions of all outputs of the release, with the expert and without."""
    return (
        joint_distribution(tree, with_expert, event, event.iterations, faults),
        joint_distribution(tree, without, event, event.iterations, faults),
    )


def spent(outputs: tuple[Floats, Floats], epsilon: float) -> Both:
    """The true δ at `epsilon`."""
    with_expert, without = outputs
    return Both(
        hockey_stick(with_expert, without, epsilon), hockey_stick(without, with_expert, epsilon)
    )
