"""No neighbouring expert sets exceed a claim, however hard one looks, and some come close.

The adversary climbs over expert sets on trees with early ends, several starts and chance, for one
to three iterations, with a floor under the policies and with random stopping instead.
"""

from dataclasses import replace

import pytest
from claims import both_outputs, event_with
from enumeration import Faults, needed_epsilon
from search import NEGLIGIBLE, Shares, attack
from trees import Floats, Tree, along, always, chain, experts, grow

from quorum_rl.privacy.events import ReleaseEvent
from quorum_rl.privacy.pairs import pair_of

PLAIN = grow(2, 3)
WIDE = grow(3, 3, ends=lambda steps: len(steps) == 2 and steps[-1][0] == 2)
BUSHY = grow(
    2,
    3,
    starts=(0.6, 0.4),
    successors=(0.8, 0.2),
    ends=lambda steps: bool(steps) and (len(steps) + steps[-1][1]) % 3 == 2,
)
LONG = chain(10)
TINY = grow(2, 2)


def _event(
    tree: Tree,
    many: int,
    query_epsilon: float,
    threshold_epsilon: float,
    delta: float,
    floor: tuple[float, float] | None = None,
    stop_probability: float = 0.0,
    iterations: int = 1,
    pool_size: int | None = None,
    lattice_bits: int = 32,
) -> ReleaseEvent:
    """With a floor (and the least count that goes with it) or with random stopping."""
    p_min, least_count = floor or (0.0, 0.0)
    return event_with(
        experts=many,
        actions=tree.actions,
        depth=int(tree.depth.max()),
        query_epsilon=query_epsilon,
        threshold_epsilon=threshold_epsilon,
        delta=delta,
        p_min=p_min,
        least_count=least_count,
        stop_probability=stop_probability,
        iterations=iterations,
        pool_size=pool_size,
        lattice_bits=lattice_bits,
    )


def _name(event: ReleaseEvent) -> str:
    rests_on = "floor" if event.p_min else "stopping"
    return f"{rests_on}-{event.experts}-experts-{event.iterations}-draws-{event.pool_size}-pool"


# Cases with the shares of the claims that the search reached, less a tenth: it is to keep its grip.
Case = tuple[Tree, ReleaseEvent, Shares]
COARSE = _event(PLAIN, 12, 1.0, 1.0, 1e-2, (0.1, 0.2), lattice_bits=6)
ONE_ITERATION: list[Case] = [
    (PLAIN, _event(PLAIN, 3, 2.0, 2.0, 1e-2, (0.2, 0.05)), Shares(0.33, 0.37, 0.18)),
    (WIDE, _event(WIDE, 6, 1.0, 2.0, 1e-2, (0.1, 0.1)), Shares(0.29, 0.33, 0.35)),
    (BUSHY, _event(BUSHY, 12, 1.0, 1.0, 1e-3, (0.02, 0.05)), Shares(0.31, 0.3, 0.5)),
    (WIDE, _event(WIDE, 30, 1.0, 2.0, 1e-6, (0.02, 0.2)), Shares(0.35, 0.47, 0.43)),
    (LONG, _event(LONG, 100, 0.5, 0.5, 1e-6, (0.03, 2.0)), Shares(0.32, 0.83, 0.53)),
    (PLAIN, COARSE, Shares(0.21, 0.33, 0.21)),
    (PLAIN, _event(PLAIN, 3, 2.0, 4.0, 1e-2, None, 0.2), Shares(0.37, 0.5, 0.2)),
    (WIDE, _event(WIDE, 10, 2.0, 1.0, 1e-3, None, 0.1), Shares(0.26, 0.57, 0.22)),
    (BUSHY, _event(BUSHY, 20, 0.5, 2.0, 1e-2, None, 0.2), Shares(0.28, 0.27, 0.33)),
    (LONG, _event(LONG, 100, 1.0, 1.0, 1e-6, None, 0.01), Shares(0.28, 0.87, 0.44)),
]
SEVERAL_ITERATIONS: list[Case] = [
    (PLAIN, _event(PLAIN, 6, 1.0, 2.0, 1e-2, (0.1, 0.1), 0, 2), Shares(0.38, 0.22, 0.45)),
    (PLAIN, _event(PLAIN, 20, 1.0, 2.0, 1e-3, None, 0.1, 2), Shares(0.32, 0.45, 0.24)),
    (TINY, _event(TINY, 3, 2.0, 2.0, 1e-2, (0.2, 0.05), 0, 3), Shares(0.48, 0.2, 0.18)),
    # Pools smaller than the iterations: the charge covers whatever happens at the largest loss.
    (PLAIN, _event(PLAIN, 100, 0.5, 0.5, 1e-6, (0.03, 2.0), 0, 2, 1), Shares(0.32, 0, 0)),
    (TINY, _event(TINY, 4, 2.0, 2.0, 1e-2, None, 0.2, 2, 1), Shares(0.39, 0, 0)),
    (TINY, _event(TINY, 20, 1.0, 2.0, 1e-3, None, 0.1, 3, 2), Shares(0.36, 0, 0)),
]


@pytest.mark.parametrize(
    "case", ONE_ITERATION + SEVERAL_ITERATIONS, ids=lambda case: _name(case[1])
)
def test_no_neighbours_exceed_the_claim(case: Case) -> None:
    tree, event, reached = case
    found = attack(tree, event, steps=100, seed=event.experts)
    assert found.excess <= 0
    assert all(least <= most <= 1 for least, most in zip(reached, found.shares, strict=True)), found


def test_the_search_finds_a_missing_first_stop_and_halved_query_noise_by_itself() -> None:
    stopping = _event(PLAIN, 30, 1.0, 1.0, 1e-4, None, 0.1)
    assert attack(PLAIN, stopping, 20, seed=1, faults=Faults(first_stop=False)).excess > 1e-3
    long = _event(LONG, 30, 2.0, 1.0, 1e-5, None, 0.01)
    halved = replace(long, query_epsilon=2 * long.query_epsilon)
    assert attack(LONG, long, 20, seed=1, mechanism=halved).excess > 1e-3


def _agreeing(tree: Tree, event: ReleaseEvent, one: Floats) -> tuple[Floats, Floats]:
    """What comes out if all take action 0, with one expert more and without."""
    all_others = (event.experts, always(tree, 0, event.p_min))
    return both_outputs(tree, experts(all_others, (1, one)), experts(all_others), event)


def test_with_random_stopping_a_removal_needs_nearly_all_of_the_claimed_epsilon() -> None:
    """All agree for thirty steps on a count about the threshold; one leaves at the last step."""
    tree = chain(30)
    event = _event(tree, 209, 1.0, 1.0, 1e-6, None, 0.003)
    pair = pair_of(event)
    outputs = _agreeing(tree, event, along(tree, [0] * 29 + [1], 0.0))
    needed = needed_epsilon(*outputs, pair.delta)
    assert 0.99 * pair.epsilon_remove < needed < pair.epsilon_remove


def test_with_a_floor_the_draw_of_a_removed_expert_costs_nearly_what_is_claimed() -> None:
    """Thousands agree, just enough for the threshold; one does what they do as rarely as allowed.

    What is left of the claim is the threshold's noise, which has no part in this.
    """
    tree = chain(2)
    event = _event(tree, 5159, 0.3, 0.3, 1e-7, (1e-5, 0.05))
    pair = pair_of(event)
    needed = needed_epsilon(*_agreeing(tree, event, along(tree, [0, 1], 1e-5)), pair.delta)
    assert 0.9 * pair.epsilon_remove < needed < pair.epsilon_remove
    assert needed > 0.98 * (pair.epsilon_remove - event.threshold_epsilon)


def test_an_addition_needs_nearly_all_of_the_claimed_epsilon() -> None:
    """One more who agrees, with little noise at the threshold: fewer empty prefixes come out."""
    tree = chain(2)
    event = _event(tree, 90, 1.0, 4.0, 1e-6, (0.002, 0.15))
    pair = pair_of(event)
    with_expert, without = _agreeing(tree, event, always(tree, 0, 0.002))
    needed = needed_epsilon(without, with_expert, NEGLIGIBLE)
    assert 0.96 * pair.epsilon_add < needed < pair.epsilon_add
