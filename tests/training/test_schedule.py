"""Which steps are private: exactly so many, in an order that no data decides."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.stats import chisquare

from quorum_rl.errors import QuorumError
from quorum_rl.training.recipe import StepKind, shuffled_schedule, steps_at_share


@given(private=st.integers(0, 300), plain=st.integers(0, 300), seed=st.integers(0, 2**32 - 1))
def test_there_are_exactly_as_many_steps_of_each_kind_as_were_asked_for(
    private: int, plain: int, seed: int
) -> None:
    if private + plain == 0:
        return
    schedule = shuffled_schedule(private, plain, seed)
    assert (schedule == StepKind.PRIVATE).sum() == private
    assert (schedule == StepKind.PLAIN).sum() == plain
    assert len(schedule) == private + plain


def test_the_order_follows_from_the_seed_and_the_numbers_alone() -> None:
    first, again = shuffled_schedule(40, 60, 7), shuffled_schedule(40, 60, 7)
    np.testing.assert_array_equal(first, again)
    assert (first != shuffled_schedule(40, 60, 8)).any()


def test_every_order_is_equally_likely() -> None:
    """Two private steps among four: six orders. Seeds are fixed, so no false alarm; with others it
    would be one in a thousand."""
    drawn = [tuple(shuffled_schedule(2, 2, seed)) for seed in range(3000)]
    counts = [drawn.count(order) for order in sorted(set(drawn))]
    assert len(counts) == 6
    assert chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize(("private", "plain"), [(0, 0), (-1, 5), (5, -1)])
def test_a_schedule_without_steps_is_refused(private: int, plain: int) -> None:
    with pytest.raises(QuorumError, match=f"{private} private and {plain} plain steps"):
        shuffled_schedule(private, plain, 0)


@given(private=st.integers(1, 10_000), share=st.floats(0.01, 1.0))
def test_private_steps_are_the_given_share_of_all(private: int, share: float) -> None:
    plain = steps_at_share(private, share)
    # To within half a step more or less.
    assert abs(private / share - (private + plain)) <= 0.5 + 1e-6


@pytest.mark.parametrize("share", [0.0, -0.5, 1.01, float("nan")])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(QuorumError, match="private_share is"):
        steps_at_share(10, share)
