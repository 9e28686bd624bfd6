"""On the lattice nobody counts more than `units`, to the last bit, and honest shares are kept."""

import math
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pytest
from faults import with_fault
from hypothesis import given, settings, strategies as st
from jax_privacy.clipping import clip_pytree

from quorum_rl.errors import QuorumError
from quorum_rl.training.mechanism import (
    LEAST_BITS,
    MOST_BITS,
    MOST_PARAMETERS,
    NOISE_BITS,
    check_parameters,
    lattice_sum,
    units_for,
)

LatticeSum: TypeAlias = Callable[..., Any]
Floats: TypeAlias = npt.NDArray[np.float32]

SHAPES = ((5,), (2, 3))  # of the leaves: eleven parameters
COUNT, EXPERTS = 11, 5
UNITS = 2**15


@cache
def compiled(function: LatticeSum, normalised: bool) -> LatticeSum:
    return jax.jit(
        lambda leaves, present, clip_norm, units: function(
            leaves, present, clip_norm, units, normalised
        )
    )


def leaves_of(rows: Floats) -> list[jax.Array]:
    """Contributions, one in a row, as leaves of two shapes; or of one if they are longer."""
    if rows.shape[1] != COUNT:
        return [jnp.asarray(rows)]
    cuts = np.split(rows, [math.prod(SHAPES[0])], axis=1)
    return [jnp.asarray(cut.reshape(-1, *shape)) for cut, shape in zip(cuts, SHAPES, strict=True)]


def summed(
    rows: Floats,
    present: Any = None,
    *,
    clip_norm: float = 1.0,
    units: int = UNITS,
    normalised: bool = False,
    function: LatticeSum = lattice_sum,
) -> list[int]:
    """What `function` makes of contributions, as Python's own whole numbers."""
    here = np.ones(len(rows), bool) if present is None else np.asarray(present)
    made = compiled(function, normalised)(
        leaves_of(rows), here, jnp.float32(clip_norm), jnp.float32(units)
    )
    assert all(leaf.dtype == jnp.int32 for leaf in made)
    return [int(number) for leaf in made for number in np.ravel(leaf)]


def size(numbers: list[int]) -> int:
    """The squared norm, exactly."""
    return sum(number * number for number in numbers)


def honest(seed: int, experts: int, count: int = COUNT, norm: float = 0.5) -> Floats:
    rows = np.random.default_rng(seed).normal(size=(experts, count))
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(norm * unit, np.float32)


# No expert counts more than it may

EXTREMES = [0.0, 1e-45, 1e-38, 1e-30, 1e-19, 1.0, 1e6, 1e15, 1e19, 1e30, 3.4e38, np.inf, np.nan]
numbers = st.sampled_from(EXTREMES + [-x for x in EXTREMES]) | st.floats(width=32)
rows = st.lists(numbers, min_size=COUNT, max_size=COUNT).map(lambda row: np.array(row, np.float32))


def check_sensitivity(
    victim: Floats, function: LatticeSum = lattice_sum, others: Floats | None = None, **how: Any
) -> None:
    """A victim, whatever it holds, changes the sum by its own share, and that is short enough."""
    count, units = len(victim), how.get("units", UNITS)
    others = honest(1, EXPERTS - 1, count) if others is None else others
    everybody = np.concatenate([others, victim[None]])
    rest = [True] * len(others)
    with_it = summed(everybody, [*rest, True], function=function, **how)
    without = summed(everybody, [*rest, False], function=function, **how)
    alone = summed(everybody, [False] * len(others) + [True], function=function, **how)
    change = [one - other for one, other in zip(with_it, without, strict=True)]
    assert change == alone  # others' shares are what they were
    assert size(change) <= units**2


@settings(max_examples=200, derandomize=True, database=None)
@given(
    victim=rows,
    clip_norm=st.sampled_from([1e-15, 1e-6, 0.3, 1.0, 50.0, 1e15]),
    units=st.sampled_from([2**LEAST_BITS, 2**10, 2**MOST_BITS]),
    normalised=st.booleans(),
)
def test_whatever_an_expert_contributes_it_changes_the_sum_by_at_most_a_norm_of_units(
    victim: Floats, clip_norm: float, units: int, normalised: bool
) -> None:
    check_sensitivity(victim, clip_norm=clip_norm, units=units, normalised=normalised)


MAGNITUDES = 10.0 ** np.array([0, 0, 0, -45, -38, -30, -20, -10, 10, 18, 19, 20, 30, 37])


@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize(("count", "units"), [(3, 64), (500, 64), (500, UNITS), (20_000, UNITS)])
def test_contributions_of_mixed_magnitudes_count_no_more(
    count: int, units: int, normalised: bool
) -> None:
    """Where some squares overflow, some vanish, and those left must not pass for the whole."""
    random = np.random.default_rng(0)
    experts = min(400, 2_000_000 // count)
    each = random.normal(size=(experts, count)) * random.choice(MAGNITUDES, (experts, count))
    each[::7] *= 1e2  # where float32 ends
    with np.errstate(over="ignore", under="ignore"):
        each = each.astype(np.float32)
    alone = jax.jit(
        jax.vmap(
            lambda row: lattice_sum(
                [row[None]], jnp.ones(1, bool), jnp.float32(1), jnp.float32(units), normalised
            )[0]
        )
    )
    counted = np.asarray(alone(each), np.int64)
    assert (np.square(counted).sum(axis=1) <= units**2).all()
    sound = np.isfinite(each).all(axis=1)
    assert not counted[~sound].any()
    assert counted[sound].any(axis=1).mean() > 0.9


def test_small_terms_that_are_rounded_away_in_a_sum_count_no_more() -> None:
    """Added one by one to a 1, squares of 2**-12.5 vanish, and many of them are not nothing."""
    victim = np.full(2**20, 2.0**-12.5, np.float32)
    victim[0] = 1.0
    made = np.asarray(summed(1000 * victim[None]), np.int64)
    assert 0.95 * UNITS < math.sqrt(np.square(made).sum()) <= UNITS


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_anywhere_counts_zero_and_spoils_nobody(wrong: float) -> None:
    everybody = honest(2, EXPERTS)
    usual = summed(everybody, [True] * 4 + [False])
    everybody[4, 7] = wrong
    assert summed(everybody) == usual
    for normalised in (False, True):
        assert not any(summed(everybody[4:], normalised=normalised))


def test_who_is_not_present_counts_nothing_whatever_stands_there() -> None:
    everybody = honest(3, EXPERTS)
    usual = summed(everybody[:3])
    for padding in (np.nan, 1e30, 0.0):
        everybody[3:] = padding
        assert summed(everybody, [True] * 3 + [False] * 2) == usual


# Order and chunks


@settings(max_examples=50, derandomize=True, database=None)
@given(order=st.permutations(range(EXPERTS)), cut=st.integers(1, EXPERTS - 1), victim=rows)
def test_sums_depend_neither_on_the_order_nor_on_the_chunks(
    order: list[int], cut: int, victim: Floats
) -> None:
    everybody = np.concatenate([honest(4, EXPERTS - 1), victim[None]])
    usual = summed(everybody)
    assert summed(everybody[order]) == usual
    here = np.arange(EXPERTS) < cut
    parts = summed(everybody[order], here), summed(everybody[order], ~here)
    assert [one + other for one, other in zip(*parts, strict=True)] == usual


# What is kept of honest contributions


def test_a_contribution_below_the_clip_norm_is_kept_but_for_rounding() -> None:
    for clip_norm, norm in ((0.5, 0.4), (2.0, 1e-3), (1e-6, 9e-7), (1e10, 5e9)):
        row = honest(5, 1, norm=norm)
        exactly = row[0].astype(np.float64) * UNITS / np.float64(np.float32(clip_norm))
        off = np.asarray(summed(row, clip_norm=clip_norm)) - exactly
        assert np.abs(off).max() < 0.5 + 0.01  # float32 has 24 bits, and units 15
    assert not any(summed(np.zeros((1, COUNT), np.float32)))
    assert not any(summed(np.zeros((1, COUNT), np.float32), normalised=True))


@pytest.mark.parametrize("norm", [1.5, 1e4, 1e18, 1e25, 1e37])
def test_a_long_contribution_keeps_its_direction_and_nearly_the_clip_norm(norm: float) -> None:
    row = honest(6, 1, norm=norm)
    direction = row[0].astype(np.float64)
    direction /= np.linalg.norm(direction)
    made = np.asarray(summed(row))
    length = np.linalg.norm(made)
    assert UNITS - 2 * math.sqrt(COUNT) < length <= UNITS
    np.testing.assert_allclose(made, length * direction, atol=1.0)


@pytest.mark.parametrize("norm", [1e-32, 1e-20, 1e-3, 0.5, 30.0])
def test_normalised_every_contribution_has_nearly_the_clip_norm(norm: float) -> None:
    row = honest(7, 1, norm=norm)
    direction = row[0].astype(np.float64) / np.linalg.norm(row[0].astype(np.float64))
    made = np.asarray(summed(row, normalised=True))
    np.testing.assert_allclose(made, UNITS * direction, atol=2 * math.sqrt(COUNT))
    assert size(list(map(int, made))) <= UNITS**2


@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("clip_norm", [0.01, 1.0, 100.0])  # clips all, some, none
def test_the_sum_is_that_of_jax_privacy_and_of_numpy_but_for_rounding(
    clip_norm: float, normalised: bool
) -> None:
    experts = 40
    norms = np.geomspace(0.05, 20, experts)[:, None]
    everybody = (honest(8, experts, norm=1.0) * norms).astype(np.float32)
    exact = everybody.astype(np.float64)
    lengths = np.linalg.norm(exact, axis=1, keepdims=True)
    factors = clip_norm / lengths if normalised else np.minimum(1, clip_norm / lengths)
    by_numpy = (exact * factors).sum(axis=0)

    def clipped(row: jax.Array) -> jax.Array:
        one, _ = clip_pytree(row, clip_norm=clip_norm)
        scaled: jax.Array = one
        return scaled

    ours = np.asarray(summed(everybody, clip_norm=clip_norm, normalised=normalised))
    ours = ours * (float(np.float32(clip_norm)) / UNITS)
    # Each is off by half a unit in every place, and by what is taken off before it is rounded.
    off = experts * (0.51 + math.sqrt(COUNT) / 2) * clip_norm / UNITS
    np.testing.assert_allclose(ours, by_numpy, atol=off)
    if not normalised:
        theirs = np.asarray(jax.vmap(clipped)(jnp.asarray(everybody))).sum(axis=0)
        np.testing.assert_allclose(ours, theirs, atol=off)


# How fine the lattice is


@pytest.mark.parametrize(
    ("noise", "bits"),
    [(1e-9, 15), (1.0, 15), (2.0**11, 15), (2.0**11 * 1.01, 14), (2.0**20, 6)],
)
def test_units_are_as_many_as_leave_the_noise_its_room(noise: float, bits: int) -> None:
    assert units_for(noise) == 2**bits
    assert noise * units_for(noise) <= 2**NOISE_BITS


@pytest.mark.parametrize("experts", [100, 2**14, 2**14 + 1, 10**6])
def test_a_sum_over_four_times_the_experts_that_are_expected_does_not_wrap_around(
    experts: int,
) -> None:
    """Though all of them contribute a clip norm in one coordinate."""
    units = units_for(1.0, experts)
    assert 4 * experts * units <= 2**31
    assert units == 2**15 or 8 * experts * units > 2**31  # and no coarser than that needs


def test_where_jax_counts_in_64_bits_sums_are_the_same() -> None:
    everybody = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)

    def summed() -> Any:
        present, one = jnp.ones(5, bool), jnp.float32(1.0)
        return lattice_sum([jnp.asarray(everybody)], present, one, jnp.float32(UNITS))[0]

    usual = summed()
    with jax.enable_x64(True):
        wide = summed()
    assert wide.dtype == usual.dtype == jnp.int32
    np.testing.assert_array_equal(wide, usual)


def test_noise_that_leaves_nothing_and_too_many_parameters_are_refused() -> None:
    with pytest.raises(QuorumError, match="leaves nothing of it: give a larger epsilon"):
        units_for(2.0**20 * 1.01)
    with pytest.raises(
        QuorumError, match=r"beside a sum over 10,000,000 experts.*smaller sampling"
    ):
        units_for(1.0, 1e7)
    with pytest.raises(QuorumError, match="a lattice of 64 units leaves nothing"):
        check_parameters(64**2, 64)
    check_parameters(MOST_PARAMETERS, 2**15)
    with pytest.raises(QuorumError, match=r"4,194,305 parameters.*at most 4,194,304"):
        check_parameters(MOST_PARAMETERS + 1)
    with pytest.raises(QuorumError, match="give smaller networks"):
        jax.eval_shape(
            lambda leaf: lattice_sum([leaf], jnp.ones(1, bool), jnp.ones(()), jnp.ones(())),
            jax.ShapeDtypeStruct((1, MOST_PARAMETERS + 1), jnp.float32),
        )


# What the check catches

CLIP = ("jnp.minimum(scale * (units / clip_norm), clipped)", "scale * (units / clip_norm)")
ROOM = (" - math.sqrt(count) / 2", "")
CEILING = ("jnp.floor(leaf * factor[:, None] + 0.5)", "jnp.ceil(leaf * factor[:, None])")
ABOUT = ("(about <= NEARLY * units**2) & ", "")
EXACTLY = (" & (exactly <= (units**2).astype(jnp.int32))", "")
CHECK = (
    "(about <= NEARLY * units**2) & (exactly <= (units**2).astype(jnp.int32))",
    "jnp.ones(len(present), bool)",
)
TOGETHER = ("jnp.where(norm > 0, norm, 1)", "norm.max()")

LONG = honest(9, 1, norm=7.0)[0]
EVERYWHERE = np.full(400, 50.0, np.float32)  # the same in twenty times twenty places
# 65536 has a square that is zero in 32 bits.
WRAPPING = np.array([2.0] * 4 + [0.0] * 7, np.float32)


@pytest.mark.parametrize(
    ("faults", "victim", "units"),
    [
        ((CLIP, CHECK), LONG, UNITS),
        ((CLIP, ABOUT), WRAPPING, UNITS),
        ((CEILING, CHECK), EVERYWHERE, 51),  # 20 · 2.05 of them, 20 · 3 rounded up
        ((ROOM, CHECK), EVERYWHERE, 71),  # 20 · 3.55, rounded 20 · 4
        ((TOGETHER,), LONG, UNITS),
    ],
    ids=["no clip", "a norm that wraps around", "rounds up", "no room", "clips all alike"],
)
def test_the_check_catches(faults: Any, victim: Floats, units: int) -> None:
    others = honest(10, EXPERTS - 1, len(victim), norm=3.0)
    check_sensitivity(victim, others=others, units=units)
    with pytest.raises(AssertionError):
        check_sensitivity(victim, with_fault(lattice_sum, *faults), others, units=units)


@pytest.mark.parametrize(
    ("faults", "victim", "units"),
    [
        ((CLIP,), LONG, UNITS),
        ((CLIP, EXACTLY), 1e10 * LONG, UNITS),
        ((CEILING,), EVERYWHERE, 51),
        ((ROOM,), EVERYWHERE, 71),
        ((CHECK,), 1e30 * LONG, UNITS),
    ],
    ids=["no clip", "no clip, far too long", "rounds up", "no room", "no check"],
)
def test_of_clipping_and_the_exact_check_either_would_do(
    faults: Any, victim: Floats, units: int
) -> None:
    """Without clipping, what is too long counts zero; without the check, clipping was enough."""
    check_sensitivity(victim, with_fault(lattice_sum, *faults), units=units)
