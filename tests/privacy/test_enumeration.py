"""The exact oracle of the release, checked against brute force, SciPy and fractions."""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from claims import event_with
from enumeration import (
    Faults,
    given_trajectory,
    hockey_stick,
    iteration_distribution,
    joint_distribution,
    lattice_counts,
    needed_epsilon,
)
from scipy.integrate import quad
from scipy.stats import laplace
from trees import Experts, Floats, Tree, along, chain, experts, grow, trajectory_ends

from quorum_rl.privacy.events import ReleaseEvent
from quorum_rl.privacy.pairs import Pair, composed_delta, composed_losses

PLAIN = grow(2, 3)
TINY = grow(2, 2)


def _some_experts(tree: Tree, copies: tuple[int, ...], floor: float, seed: int) -> Experts:
    rng = np.random.default_rng(seed)
    free = 1 - tree.actions * floor
    drawn = rng.dirichlet(np.ones(tree.actions), size=(len(copies), tree.nodes))
    return Experts(floor + free * drawn, np.array(copies))


def _tiny_event(lattice_bits: int, **changes: float | int) -> ReleaseEvent:
    event = event_with(
        experts=3,
        query_epsilon=3.0,
        threshold_epsilon=4.0,
        delta=0.05,
        depth=2,
        stop_probability=0.3,
        iterations=2,
        lattice_bits=lattice_bits,
    )
    return replace(event, threshold=event.theta + 1.0, **changes)  # type: ignore[arg-type]


def _walked(tree: Tree, who: Experts, event: ReleaseEvent) -> Floats:
    """One iteration by its definition: every expert, trajectory and value of every noise."""
    one = 2**event.lattice_bits
    values = np.arange(-25 * one // 3, 25 * one // 3 + 1)
    threshold_noise, first, second = np.meshgrid(values, values, values, indexing="ij")

    def chances(epsilon: float) -> Floats:
        raw = np.exp(-epsilon * np.abs(values) / one)
        return np.asarray(raw / raw.sum())

    at_threshold, at_query = chances(event.threshold_epsilon), chances(event.query_epsilon)
    chance = np.einsum("a,b,c->abc", at_threshold, at_query, at_query)
    counts, ends = lattice_counts(tree, who, event), trajectory_ends(tree, who)
    outputs = np.zeros(tree.nodes)
    for kind, leaf in product(range(len(who.copies)), np.flatnonzero(tree.terminal)):
        drawn = who.copies[kind] / who.copies.sum() * ends[kind, leaf]
        path = [int(leaf)]
        while tree.parent[path[0]] >= 0:
            path.insert(0, int(tree.parent[path[0]]))
        going = np.ones_like(chance) * chance * drawn
        for before, node, noise in zip(path, path[1:], (first, second), strict=False):
            stay = 1 - event.stop_probability
            bar = math.ceil(event.threshold * one) + threshold_noise
            on = going * stay * (counts[node] + noise > bar)
            outputs[before if tree.depth[before] else 0] += (going - on).sum()
            going = on
        outputs[leaf] += going.sum()
    return outputs


def test_one_iteration_is_what_walking_through_all_noise_gives() -> None:
    tree = grow(2, 2, starts=(0.7, 0.3), ends=lambda steps: steps == ((1, 0),))
    who = _some_experts(tree, (2, 1), 0.0, seed=1)
    event = _tiny_event(lattice_bits=1)
    np.testing.assert_allclose(
        iteration_distribution(tree, who, event), _walked(tree, who, event), atol=1e-12
    )


def test_the_fine_lattice_is_the_real_line() -> None:
    tree = chain(2)
    who = experts((3, along(tree, [0], 0.2)), (2, along(tree, [0, 1], 0.2)))
    event = event_with(
        experts=5,
        query_epsilon=1.5,
        threshold_epsilon=0.7,
        delta=0.1,
        depth=2,
        p_min=0.2,
        least_count=0.1,
        lattice_bits=32,
    )

    def passing(count: float, noise: float) -> float:
        return float(laplace.sf(event.threshold + noise - count, scale=event.query_noise_scale))

    def weighted(noise: float) -> float:
        both = passing(5.0, noise) * passing(3.5, noise)
        return float(both * laplace.pdf(noise, scale=event.threshold_noise_scale))

    kinks = [0.0, 5 - event.threshold, 3.5 - event.threshold]
    passed, _ = quad(weighted, -60, 60, points=kinks, limit=500, epsabs=1e-13)
    drawn = (3 * 0.8 * 0.8 + 2 * 0.8 * 0.2) / 5
    last = np.flatnonzero((tree.depth == 2) & (tree.action == 0))
    assert iteration_distribution(tree, who, event)[last] == pytest.approx(drawn * passed, abs=1e-9)


@pytest.mark.parametrize(("nearest", "lattice_bits"), [(False, 3), (False, 8), (True, 3)])
def test_counts_are_rounded_at_every_step_as_fractions_say(
    nearest: bool, lattice_bits: int
) -> None:
    who = _some_experts(PLAIN, (1,), 0.1, seed=2)
    event = event_with(
        experts=2,
        query_epsilon=1.0,
        threshold_epsilon=1.0,
        delta=0.1,
        depth=3,
        p_min=0.1,
        least_count=1.0,
        lattice_bits=lattice_bits,
    )
    one, up = 2**lattice_bits, Fraction(int(nearest), 2)
    expected = [one]
    for node in range(1, PLAIN.nodes):
        before, action = int(PLAIN.parent[node]), int(PLAIN.action[node])
        share = Fraction(float(who.policy[0, before, action])) / Fraction(event.p_max)
        factor = math.floor(share * one + up)
        expected.append(math.floor(Fraction(expected[before] * factor, one) + up))
    counts = lattice_counts(PLAIN, who, event, Faults(nearest=nearest))
    assert counts.tolist() == expected


@pytest.mark.parametrize("overflow", ["nothing", "reuse"])
@pytest.mark.parametrize(("draws", "pool_size"), [(2, 1), (3, 1), (3, 2)])
def test_several_draws_are_what_following_every_expert_and_trajectory_gives(
    draws: int, pool_size: int, overflow: str
) -> None:
    tree = TINY
    who = _some_experts(tree, (2, 1), 0.0, seed=3)
    event = _tiny_event(lattice_bits=5, pool_size=pool_size)
    faults = Faults(overflow="nothing" if overflow == "nothing" else "reuse")
    given = given_trajectory(tree, event, lattice_counts(tree, who, event))
    ends = np.repeat(trajectory_ends(tree, who), who.copies, axis=0)
    nothing = np.eye(tree.nodes)[0]
    leaves = np.flatnonzero(tree.terminal)
    expected = np.zeros((tree.nodes,) * draws)
    for drawn in product(range(3), repeat=draws):
        turns = [drawn[:turn].count(expert) for turn, expert in enumerate(drawn)]
        for pools in product(leaves, repeat=draws):  # the trajectory that each draw adds
            chance = math.prod(ends[e, leaf] for e, leaf in zip(drawn, pools, strict=True))
            outputs = []
            for turn, (expert, leaf) in enumerate(zip(drawn, pools, strict=True)):
                if turns[turn] < pool_size:
                    outputs.append(given[leaf])
                elif overflow == "nothing":
                    outputs.append(nothing)
                else:
                    last = [t for t in range(turn) if drawn[t] == expert][pool_size - 1]
                    outputs.append(given[pools[last]])
            expected += chance / 3**draws * _outer(outputs)
    np.testing.assert_allclose(
        joint_distribution(tree, who, event, draws, faults), expected, atol=1e-14
    )


def _outer(outputs: list[Floats]) -> Floats:
    joint = np.array(1.0)
    for output in outputs:
        joint = np.multiply.outer(joint, output)
    return joint


def test_the_needed_epsilon_is_where_the_divergence_meets_delta() -> None:
    rng = np.random.default_rng(4)
    first, second = rng.dirichlet(np.ones(6) / 2, size=2)
    for delta in (0.0, 1e-3, 0.1):
        epsilon = needed_epsilon(first, second, delta)
        assert hockey_stick(first, second, epsilon) == pytest.approx(delta, abs=1e-12)
    assert needed_epsilon(first, first, 1e-3) == 0
    assert needed_epsilon(np.array([0.5, 0.5]), np.array([0.0, 1.0]), 0.1) == math.inf


@pytest.mark.parametrize("iterations", [1, 2, 4])
def test_composition_is_that_of_the_three_point_pair(iterations: int) -> None:
    pair = Pair(epsilon_remove=0.9, epsilon_add=0.4, delta=0.01)
    spread = math.exp(pair.epsilon_add) - math.exp(-pair.epsilon_remove)
    high = (math.exp(pair.epsilon_add) * (1 - pair.delta) - 1) / spread
    low = 1 - pair.delta - high
    with_expert = _outer([np.array([pair.delta, high, low])] * iterations)
    ratios = np.array([0.0, math.exp(-pair.epsilon_remove), math.exp(pair.epsilon_add)])
    without = with_expert * _outer([ratios] * iterations)
    without[(0,) * iterations] = 0.0
    assert without.sum() == pytest.approx(1)
    for epsilon in (0.0, 0.3, 0.9, 2.0):
        removed = hockey_stick(with_expert, without, epsilon)
        added = hockey_stick(without, with_expert, epsilon)
        losses = composed_losses(pair, iterations)
        assert [each.delta(epsilon) for each in losses] == pytest.approx([removed, added], abs=1e-8)
        assert composed_delta(pair, iterations, epsilon) == pytest.approx(max(removed, added))
