"""Every way to break the guarantee that we know of, caught by a case built for it.

Each case has a mechanism or data that differ in one thing from what was analysed: their output
tells more than is claimed, and without that thing it does not.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from claims import both_outputs, claimed, event_with, spent
from enumeration import SOUND, Faults
from trees import Experts, Floats, Tree, along, always, chain, experts, grow

from quorum_rl.privacy.accounting import total_delta
from quorum_rl.privacy.events import ReleaseEvent
from quorum_rl.privacy.pairs import composed_delta, pair_of

Outputs = tuple[Floats, Floats]
planned = partial(event_with, lattice_bits=32)


def _plus(who: Experts, table: Floats) -> Experts:
    return Experts(np.concatenate([who.policy, table[None]]), np.append(who.copies, 1))


def _removal(tree: Tree, others: Experts, newcomer: Floats, event: ReleaseEvent) -> Outputs:
    return both_outputs(tree, _plus(others, newcomer), others, event)


def _largest_removal(event: ReleaseEvent) -> float:
    """The ε beyond which a removal has nothing but δ left."""
    return event.iterations * pair_of(event).epsilon_remove


def _assert_within(event: ReleaseEvent, sound: Outputs) -> None:
    for share in (0.0, 0.3, 0.6, 0.9, 1.0):
        epsilon = share * _largest_removal(event)
        claim, true = claimed(event, epsilon), spent(sound, epsilon)
        assert true.remove <= claim.remove + 1e-9
        assert true.add <= claim.add + 1e-9


def _assert_caught(event: ReleaseEvent, faulty: Outputs, sound: Outputs, times: float) -> None:
    """The fault spends so many times the δ claimed at the largest loss, if nothing is charged."""
    epsilon = _largest_removal(event)
    claim = composed_delta(pair_of(event), event.iterations, epsilon)
    assert max(spent(faulty, epsilon)) > times * claim
    _assert_within(event, sound)


def test_a_halved_offset_is_caught() -> None:
    """Two experts avoid a path that the third takes: below theta all along."""
    tree = chain(3)
    event = planned(
        experts=2,
        query_epsilon=2.0,
        threshold_epsilon=0.5,
        delta=1e-4,
        depth=3,
        p_min=0.01,
        least_count=0.2 / 99,
    )
    halved = replace(event, threshold=(event.theta + event.threshold) / 2)
    others, newcomer = experts((2, always(tree, 1, 0.01))), always(tree, 0, 0.01)
    sound = _removal(tree, others, newcomer, event)
    _assert_caught(event, _removal(tree, others, newcomer, halved), sound, times=10)
    # And the offset is no larger than it has to be: this case uses a good part of the claimed δ.
    largest = _largest_removal(event)
    assert spent(sound, largest).remove > 0.2 * claimed(event, largest).remove


def test_halved_query_noise_is_caught_when_an_expert_is_removed() -> None:
    """All agree about the threshold for long; one leaves them at the last step."""
    tree = chain(12)
    event = planned(
        experts=27,
        query_epsilon=2.0,
        threshold_epsilon=1.0,
        delta=1e-5,
        depth=12,
        stop_probability=0.01,
    )
    halved = replace(event, query_epsilon=2 * event.query_epsilon)
    others, newcomer = experts((27, always(tree, 0, 0.0))), along(tree, [0] * 11 + [1], 0.0)
    sound = _removal(tree, others, newcomer, event)
    _assert_caught(event, _removal(tree, others, newcomer, halved), sound, times=100)


def test_halved_query_noise_is_caught_when_an_expert_is_added() -> None:
    """The threshold's noise is small, so the query alone hides the new expert."""
    tree = chain(3)
    event = planned(
        experts=27,
        query_epsilon=0.3,
        threshold_epsilon=2.0,
        delta=1e-3,
        depth=3,
        p_min=0.02,
        least_count=0.1,
    )
    halved = replace(event, query_epsilon=2 * event.query_epsilon)
    others, newcomer = experts((27, always(tree, 0, 0.02))), always(tree, 0, 0.02)
    sound, faulty = (
        _removal(tree, others, newcomer, event),
        _removal(tree, others, newcomer, halved),
    )
    largest = pair_of(event).epsilon_add
    assert claimed(event, largest).add < 1e-9
    assert spent(faulty, largest).add > 0.05
    _assert_within(event, sound)


def test_no_stop_before_the_first_query_is_caught() -> None:
    """Only the newcomer takes the other action, so only it brings an empty prefix."""
    tree = chain(3)
    event = planned(
        experts=60,
        query_epsilon=1.0,
        threshold_epsilon=1.0,
        delta=1e-3,
        depth=3,
        stop_probability=0.05,
    )
    others, newcomer = experts((60, always(tree, 0, 0.0))), always(tree, 1, 0.0)
    without_it = Faults(first_stop=False)
    faulty = both_outputs(tree, _plus(others, newcomer), others, event, without_it)
    _assert_caught(event, faulty, _removal(tree, others, newcomer, event), times=10)


@pytest.fixture(name="floor_event")
def _floor_event() -> ReleaseEvent:
    return planned(
        experts=60,
        query_epsilon=1.0,
        threshold_epsilon=1.0,
        delta=1e-3,
        depth=3,
        p_min=0.1,
        least_count=1.0,
    )


def test_an_overstated_floor_is_caught(floor_event: ReleaseEvent) -> None:
    """All but the newcomer never take the second step's other action, against the promise."""
    tree = chain(3)

    def outputs(floor: float) -> Outputs:
        others = experts((60, always(tree, 0, floor)))
        return _removal(tree, others, along(tree, [0, 1], floor), floor_event)

    _assert_caught(floor_event, outputs(0.0), outputs(0.1), times=10)


def test_logs_of_another_policy_are_caught(floor_event: ReleaseEvent) -> None:
    """The queried policies keep the floor, but they were smoothed after the logs were taken."""
    tree = chain(3)
    others, newcomer = experts((60, always(tree, 0, 0.1))), along(tree, [0, 1], 0.1)
    acted, newcomer_acted = experts((60, always(tree, 0, 0.0))), along(tree, [0, 1], 0.0)
    faulty = both_outputs(
        tree,
        replace(_plus(others, newcomer), logged=_plus(acted, newcomer_acted).policy),
        replace(others, logged=acted.policy),
        floor_event,
    )
    _assert_caught(floor_event, faulty, _removal(tree, others, newcomer, floor_event), times=10)


def test_a_log_cut_short_is_caught(floor_event: ReleaseEvent) -> None:
    """Whatever the next action is, all others go on: an end after one step names the one."""
    tree = grow(2, 3)
    others = experts((30, along(tree, [0, 0], 0.1)), (30, along(tree, [0, 1], 0.1)))
    together = _plus(others, along(tree, [0, 0], 0.1))
    cut = np.zeros((3, tree.nodes), bool)
    cut[-1] = tree.depth == 1
    faulty = both_outputs(tree, replace(together, cut=cut), others, floor_event)
    sound = both_outputs(tree, together, others, floor_event)
    _assert_caught(floor_event, faulty, sound, times=10)


def test_rounding_to_nearest_is_caught() -> None:
    """Rounded up at every step, counts stay over the threshold while the draw becomes rare."""
    tree = chain(20)
    event = planned(
        experts=400,
        query_epsilon=0.3,
        threshold_epsilon=0.5,
        delta=1e-4,
        depth=20,
        p_min=0.02,
        least_count=0.1,
        lattice_bits=3,
    )
    hesitant = np.tile([0.5, 0.5], (tree.nodes, 1))
    hesitant[:, 0] = 0.51 * event.p_max
    hesitant[:, 1] = 1 - hesitant[:, 0]
    others, newcomer = experts((400, hesitant)), always(tree, 0, 0.02)
    faulty = both_outputs(tree, _plus(others, newcomer), others, event, Faults(nearest=True))
    _assert_caught(event, faulty, _removal(tree, others, newcomer, event), times=10)


def test_a_tiny_pool_is_caught_if_its_overflow_is_not_charged() -> None:
    """Two experts cannot give three fresh trajectories; three can, and all three come out."""
    tree = chain(1)
    event = planned(
        experts=2,
        query_epsilon=5.0,
        threshold_epsilon=5.0,
        delta=1e-3,
        depth=1,
        p_min=0.1,
        least_count=0.02,
        iterations=3,
        pool_size=1,
    )
    others, newcomer = experts((2, always(tree, 0, 0.1))), always(tree, 0, 0.1)
    enough = replace(event, pool_size=3)
    faulty = _removal(tree, others, newcomer, event)
    _assert_caught(enough, faulty, _removal(tree, others, newcomer, enough), times=30)
    _assert_within(event, faulty)  # with the charge the claim holds again


@pytest.fixture(name="recognisable", scope="module")
def _recognisable() -> tuple[ReleaseEvent, Outputs, Outputs]:
    """Two iterations, many starts: that a trajectory came twice can be seen.

    Small pools are used up by the first draw; then the trajectory is taken again, with fresh
    noise. All agree, but the one leaves at the second step, and so both its prefixes end alike.
    """
    starts = 90
    tree = chain(2, starts=[1 / starts] * starts)
    event = planned(
        experts=94,
        query_epsilon=1.0,
        threshold_epsilon=0.5,
        delta=1e-6,
        depth=2,
        stop_probability=0.01,
        iterations=2,
        pool_size=1,
    )
    others, newcomer = experts((94, always(tree, 0, 0.0))), along(tree, [0, 1], 0.0)
    together, enough = _plus(others, newcomer), replace(event, pool_size=2)
    faulty = both_outputs(tree, together, others, event, Faults(overflow="reuse"))
    return enough, faulty, both_outputs(tree, together, others, enough, SOUND)


def test_a_tiny_pool_that_is_used_again_is_caught(
    recognisable: tuple[ReleaseEvent, Outputs, Outputs],
) -> None:
    event, faulty, sound = recognisable
    _assert_caught(event, faulty, sound, times=5)


def test_the_same_pool_released_twice_is_caught(
    recognisable: tuple[ReleaseEvent, Outputs, Outputs],
) -> None:
    """Two releases of one iteration each, booked as two, from the pool of one."""
    event, faulty, sound = recognisable
    once = replace(event, iterations=1, pool_size=1)
    epsilon = _largest_removal(event)
    booked = total_delta([once, once], epsilon)
    assert spent(faulty, epsilon).remove > 5 * booked
    assert max(spent(sound, epsilon)) <= booked


def test_an_expert_without_pool_trajectories_is_caught() -> None:
    """It supports a path that nobody else takes, and the newcomer alone can be drawn there."""
    tree = chain(3)
    event = planned(
        experts=2,
        query_epsilon=5.0,
        threshold_epsilon=5.0,
        delta=1e-2,
        depth=3,
        p_min=0.01,
        least_count=0.3 / 99,
    )
    others = experts((1, always(tree, 1, 0.01)), (1, always(tree, 0, 0.01)))
    together = _plus(others, always(tree, 0, 0.01))
    faulty = both_outputs(
        tree,
        replace(together, pooled=np.array([True, False, True])),
        replace(others, pooled=np.array([True, False])),
        event,
    )
    _assert_caught(event, faulty, both_outputs(tree, together, others, event), times=2)
    # Dropped before anything else, from counts and draws, it does no harm.
    drawn = experts((2, always(tree, 1, 0.01)))
    _assert_within(event, _removal(tree, drawn, always(tree, 0, 0.01), event))
