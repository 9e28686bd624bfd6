"""Fixed-point counts against exact fractions, and the same integers however they are computed."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from math import prod
from typing import NamedTuple

import jax
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings, strategies as st
from ledger_files import FLOOR
from tree_logs import random_tables, table_experts, tree_logs
from trees import Floats, grow

from quorum_rl.budget.entropy import SeededEntropy
from quorum_rl.experts import ExpertSet, LoggedExperts, Population, population as population_module
from quorum_rl.experts.networks import Layer
from quorum_rl.logs.agreement import prefix_counts
from quorum_rl.privacy.events import Mode, ReleaseEvent
from quorum_rl.privacy.pairs import STEPS_LOST
from quorum_rl.release.counting import (
    EXPERTS_AT_ONCE,
    ROWS_AT_ONCE,
    PrefixCounts,
    fixed_point_factors,
)
from quorum_rl.release.mechanism import Integers
from quorum_rl.release.sampling import draw_as_published

EVENT = replace(
    FLOOR, experts=4, p_min=0.1, horizon=12, prefix_cap=12, iterations=1, theta=2.0, threshold=3.0,
    threshold_epsilon=1.0, query_epsilon=1.0, pool_size=3,
)  # fmt: skip


class Drawn(NamedTuple):
    """Trajectories: states (iterations, steps, size) and actions (iterations, steps)."""

    states: npt.NDArray[np.float32]
    actions: npt.NDArray[np.int32]


def counted(
    event: ReleaseEvent,
    experts: ExpertSet,
    drawn: Drawn,
    who: npt.NDArray[np.bool_] | None = None,
    *,
    experts_at_once: int = EXPERTS_AT_ONCE,
    rows_at_once: int = ROWS_AT_ONCE,
) -> Integers:
    """The counts of all prefixes, taken in blocks of three and two steps and then the rest."""
    everyone = np.ones(len(experts), np.bool_) if who is None else who
    counts = PrefixCounts(
        event,
        experts,
        everyone,
        *drawn,
        experts_at_once=experts_at_once,
        rows_at_once=rows_at_once,
    )
    iterations, steps = np.arange(len(drawn.states)), drawn.actions.shape[1]
    edges = sorted({0, min(3, steps), min(5, steps), steps})
    return np.hstack([counts(iterations, first, last) for first, last in pairwise(edges)])


def along_one_path(event: ReleaseEvent, taken: Floats) -> Integers:
    """The counts of a single trajectory whose action k has probability `taken[expert, k]`."""
    experts = table_experts(np.stack([taken, 1 - taken], axis=-1))
    steps = taken.shape[1]
    states = np.arange(steps, dtype=np.float32).reshape(1, steps, 1)
    drawn = Drawn(states, np.zeros((1, steps), np.int32))
    return np.asarray(counted(event, experts, drawn)[0])


def exact_counts(event: ReleaseEvent, taken: Floats) -> list[Fraction]:
    """Σ_i Π_j min(π_i/p_max, 1) of every prefix, in lattice steps, as fractions."""
    most = Fraction(event.p_max) if event.mode == "tight" else Fraction(1)
    shares = [[min(Fraction(float(p)) / most, Fraction(1)) for p in row] for row in taken]
    unit = 2**event.lattice_bits
    lengths = range(1, taken.shape[1] + 1)
    return [unit * sum((prod(row[:k]) for row in shares), Fraction(0)) for k in lengths]


@st.composite
def probabilities(draw: st.DrawFn) -> Floats:
    """Of 1 to 5 experts over 1 to 10 steps; certain and impossible actions are frequent."""
    experts, steps = draw(st.integers(1, 5)), draw(st.integers(1, 10))
    one = st.one_of(st.floats(0.0, 1.0), st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]))
    row = st.lists(one, min_size=steps, max_size=steps)
    return np.array(draw(st.lists(row, min_size=experts, max_size=experts)))


@settings(max_examples=200, derandomize=True)
@example(taken=np.ones((5, 10)), bits=32, floor=0.1, mode="tight")
@example(taken=np.ones((5, 10)), bits=1, floor=0.1, mode="tight")
@example(taken=np.full((3, 10), 0.9), bits=32, floor=0.1, mode="tight")
@example(taken=np.full((3, 10), 0.98), bits=32, floor=0.02, mode="tight")
@given(
    taken=probabilities(),
    bits=st.integers(1, 32),
    floor=st.floats(0.001, 0.5),
    mode=st.sampled_from(["tight", "paper"]),
)
def test_counts_are_the_exact_products_rounded_down(
    taken: Floats, bits: int, floor: float, mode: Mode
) -> None:
    event = replace(EVENT, lattice_bits=bits, p_min=floor, mode=mode)
    counts = along_one_path(event, taken)
    previous = len(taken) * 2**bits
    for length, exact in enumerate(exact_counts(event, taken), start=1):
        count = int(counts[length - 1])
        lost = STEPS_LOST * length * len(taken)
        assert 0 <= count <= len(taken) * 2**bits
        assert exact - Fraction(lost) <= count <= exact
        assert count <= previous
        previous = count


def test_a_probability_above_the_declared_most_counts_as_the_most() -> None:
    factors = fixed_point_factors(np.array([0.9, 0.95, 1.0]), EVENT)
    assert factors.tolist() == [2**32 - 1] * 3


def test_only_mode_tight_divides_by_the_most_that_an_action_can_have() -> None:
    published = replace(EVENT, mode="paper")
    assert fixed_point_factors(np.array([0.45]), EVENT).tolist() == [2**31 - 1]
    assert fixed_point_factors(np.array([0.5]), published).tolist() == [2**31 - 1]


TREE = grow(2, 6, starts=(0.5, 0.5))


@pytest.fixture(scope="module", name="tables")
def _tables() -> Floats:
    return random_tables(TREE, 23, floor=0.1, seed=1)


@pytest.fixture(scope="module", name="drawn")
def _drawn(tables: Floats) -> Drawn:
    """States and actions of 13 trajectories of the experts with these tables."""
    log = tree_logs(TREE, table_experts(tables, 0.1), 1, seed=2)
    return Drawn(*draw_as_published(log, 13, SeededEntropy(0)).padded(6))


def test_counts_are_those_of_the_agreement_diagnostic(tables: Floats) -> None:
    """Which sums float products; both lose next to nothing over six steps."""
    experts = table_experts(tables, 0.1)
    log = tree_logs(TREE, experts, 1, seed=2)
    states = np.stack([episode.observations[:-1] for episode in log])
    actions = np.stack([episode.actions for episode in log]).astype(np.int32)
    drawn = Drawn(states, actions)
    found = counted(replace(EVENT, mode="paper"), experts, drawn) / 2**32
    np.testing.assert_allclose(found, prefix_counts(experts, log), rtol=0, atol=1e-6)
    normaliser = EVENT.p_max ** np.arange(1, 7)
    tight = counted(EVENT, experts, drawn) / 2**32
    capped = np.minimum(tables, EVENT.p_max)  # 0.9 + rounding: the cap takes next to nothing off
    expected = prefix_counts(table_experts(capped), log) / normaliser
    np.testing.assert_allclose(tight, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("experts_at_once", "rows_at_once"), [(1, 1), (1, 8192), (5, 7), (23, 6), (1000, 1)]
)
def test_chunks_do_not_matter(
    experts_at_once: int, rows_at_once: int, tables: Floats, drawn: Drawn
) -> None:
    experts = table_experts(tables)
    np.testing.assert_array_equal(
        counted(EVENT, experts, drawn, experts_at_once=experts_at_once, rows_at_once=rows_at_once),
        counted(EVENT, experts, drawn),
    )


def test_the_order_of_the_experts_does_not_matter(tables: Floats, drawn: Drawn) -> None:
    order = np.random.default_rng(3).permutation(len(tables))
    np.testing.assert_array_equal(
        counted(EVENT, table_experts(tables[order]), drawn),
        counted(EVENT, table_experts(tables), drawn),
    )


def test_which_iterations_are_still_open_does_not_matter(tables: Floats, drawn: Drawn) -> None:
    """A count is the same whether the other iterations ended long ago or not."""
    experts, everyone = table_experts(tables), np.ones(len(tables), np.bool_)
    counts = PrefixCounts(EVENT, experts, everyone, *drawn)
    counts(np.arange(13), 0, 2)
    counts(np.array([2, 5, 11]), 2, 3)
    found = counts(np.array([5, 11]), 3, 6)
    np.testing.assert_array_equal(found, counted(EVENT, experts, drawn)[[5, 11], 3:])


@pytest.mark.parametrize("bits", [1, 7, 32])
def test_one_expert_more_raises_every_count_by_at_most_one(
    bits: int, tables: Floats, drawn: Drawn
) -> None:
    event = replace(EVENT, lattice_bits=bits)
    everyone = counted(event, table_experts(tables), drawn)
    for expert in range(len(tables)):
        others = counted(event, table_experts(np.delete(tables, expert, axis=0)), drawn)
        alone = counted(event, table_experts(tables[expert : expert + 1]), drawn)
        np.testing.assert_array_equal(everyone - others, alone)  # and on nobody else
        assert alone.min() >= 0
        assert alone.max() <= 2**bits


def test_dropped_experts_do_not_count(tables: Floats, drawn: Drawn) -> None:
    kept = np.arange(len(tables)) % 3 > 0
    np.testing.assert_array_equal(
        counted(EVENT, table_experts(tables), drawn, kept),
        counted(EVENT, table_experts(tables[kept]), drawn),
    )


def test_without_experts_every_count_is_zero(tables: Floats, drawn: Drawn) -> None:
    nobody = np.zeros(len(tables), np.bool_)
    assert not counted(EVENT, table_experts(tables), drawn, nobody).any()


def test_as_many_experts_as_anybody_has_do_not_overflow() -> None:
    """A million experts who agree for three steps: sums stay far below 2**63."""
    counts = along_one_path(EVENT, np.full((1_000_000, 3), 0.9))
    assert (counts <= 1_000_000 * 2**32).all()
    assert (counts >= 1_000_000 * (2**32 - 3 * 3)).all()


def test_the_number_of_devices_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """70 networks on two devices and on one, in chunks that fit neither."""
    rng = np.random.default_rng(0)
    network = tuple(
        Layer(
            rng.normal(size=(70, inputs, outputs)).astype(np.float32),
            rng.normal(size=(70, outputs)).astype(np.float32),
        )
        for inputs, outputs in ((4, 8), (8, 2))
    )
    states = rng.normal(size=(9, 6, 4)).astype(np.float32)
    actions = rng.integers(2, size=(9, 6)).astype(np.int32)

    def counts(experts_at_once: int = 1024, rows_at_once: int = 8192) -> Integers:
        population = Population(observation_size=4, action_count=2, network=network)
        experts = LoggedExperts(population.mixed_with_uniform(0.1))
        return counted(
            EVENT,
            experts,
            Drawn(states, actions),
            experts_at_once=experts_at_once,
            rows_at_once=rows_at_once,
        )

    assert len(jax.devices()) == 2
    on_two = counts()
    assert on_two.min() > 0
    np.testing.assert_array_equal(counts(experts_at_once=33, rows_at_once=10), on_two)
    first = jax.devices()[:1]
    monkeypatch.setattr(jax, "devices", lambda: first)
    population_module._compiled.cache_clear()
    try:
        np.testing.assert_array_equal(counts(), on_two)
    finally:
        population_module._compiled.cache_clear()
