"""Noise is a rounded Gaussian, exactly: its cells, its tails, its last bits, and its streams."""

import math
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import numpy.typing as npt
import pytest
from compiling import optimised
from faults import with_fault
from jax.scipy.special import ndtri
from scipy import stats

from quorum_rl.training import noise
from quorum_rl.training.mechanism import NOISE_BITS
from quorum_rl.training.noise import ABSOLUTE, RELATIVE, cell_of, rounded_noise
from quorum_rl.training.randomness import keys_of, random_words, step_key

Draw: TypeAlias = Callable[[Any, Any, int, int, int], Any]
Integers: TypeAlias = npt.NDArray[np.int64]

FALSE_ALARM = 1e-6  # of every statistical check here, on both sides together
KEYS = np.array([[3, 5], [2**32 - 1, 11]], np.uint32)
SMALL = (0.3, 0.7, 1.0, 4.0)
LARGE = (1000.5, 1.3 * 2**15, 2.0**NOISE_BITS)
STEPS, COUNT = 100, 1000


def draws(scale: float, draw: Draw = rounded_noise) -> Integers:
    """Those of some steps of one run, a row each."""
    return np.asarray(draw(KEYS[:1], [scale], 1, STEPS, COUNT), np.int64)[:, 0]


# The law


def cells_are_as_likely_as_they_should_be(drawn: Integers, scale: float) -> bool:
    """Every cell floor(s·Z + 1/2) by itself, those that are rare together."""
    most = math.ceil(10 * scale) + 2
    cells = np.arange(-most, most + 1)
    # From the nearer end, where nothing cancels.
    inner, outer = (np.abs(cells) - 0.5) / scale, (np.abs(cells) + 0.5) / scale
    likely = np.where(
        cells == 0, 1 - 2 * stats.norm.sf(outer), stats.norm.sf(inner) - stats.norm.sf(outer)
    )
    expected = likely * drawn.size
    counts = np.bincount(np.clip(drawn.ravel(), -most, most) + most, minlength=len(cells))
    usual = expected > 10
    rare = counts[~usual].sum(), expected[~usual].sum()
    if rare[1] > 1:
        found = stats.chisquare(
            np.append(counts[usual], rare[0]), np.append(expected[usual], rare[1])
        )
        return bool(found.pvalue > FALSE_ALARM)
    rest = expected[usual] * counts[usual].sum() / expected[usual].sum()
    found = stats.chisquare(counts[usual], rest)
    few = stats.poisson.sf(rare[0] - 1, rare[1])
    return bool(found.pvalue > FALSE_ALARM and few > FALSE_ALARM)


def moments_and_tails_are_as_declared(drawn: Integers, scale: float) -> bool:
    """Mean, variance, shape, and how many lie beyond three and four deviations, on either side."""
    z = drawn.ravel() / scale
    mean = 2 * stats.norm.sf(abs(z.sum()) / math.sqrt(z.size))
    squares = np.square(z).sum()
    below = stats.chi2(z.size).cdf(squares)
    found = [mean, 2 * min(below, 1 - below), stats.kstest(z, stats.norm.cdf).pvalue]
    for at in (3.0, 4.0):
        sides = int((z > at).sum()), int((z < -at).sum())
        found += [stats.binomtest(side, z.size, stats.norm.sf(at)).pvalue for side in sides]
    return bool(min(found) > FALSE_ALARM)


def last_bits_are_even(drawn: Integers) -> bool:
    """On a large scale, remainders by 16 are as likely as one another."""
    return bool(stats.chisquare(np.bincount(drawn.ravel() % 16, minlength=16)).pvalue > FALSE_ALARM)


def streams_are_independent(drawn: Integers) -> bool:
    """Rows are not correlated, nor are neighbours in a row; all have the same scale."""
    rows = drawn / drawn.std()
    correlations = np.corrcoef(rows)[np.triu_indices(len(rows), 1)]
    neighbours = (rows[:, 1:] * rows[:, :-1]).sum() / math.sqrt(rows[:, 1:].size)
    squares = rows.shape[1] * np.square(correlations).sum()
    low, high = stats.chi2(len(correlations)).ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2])
    return bool(low < squares < high and 2 * stats.norm.sf(abs(neighbours)) > FALSE_ALARM)


@pytest.mark.parametrize("scale", SMALL)
def test_every_cell_is_as_likely_as_the_gaussian_makes_it(scale: float) -> None:
    assert cells_are_as_likely_as_they_should_be(draws(scale), scale)


@pytest.mark.parametrize("scale", LARGE)
def test_on_large_scales_moments_tails_and_last_bits_are_right(scale: float) -> None:
    drawn = draws(scale)
    assert moments_and_tails_are_as_declared(drawn, scale)
    assert last_bits_are_even(drawn)


def test_steps_runs_and_places_have_independent_noise() -> None:
    both = np.asarray(rounded_noise(KEYS, [50.0, 50.0], 1, 40, COUNT), np.int64)
    assert streams_are_independent(both.reshape(-1, COUNT))
    assert streams_are_independent(both.reshape(-1, COUNT).T[:200])


def half_the_scale(keys: Any, scales: Any, first: int, steps: int, count: int) -> Any:
    return rounded_noise(keys, np.asarray(scales) / 2, first, steps, count)


def the_noise_of_the_first_step(keys: Any, scales: Any, first: int, steps: int, count: int) -> Any:
    del first
    return np.repeat(np.asarray(rounded_noise(keys, scales, 1, 1, count)), steps, axis=0)


def normals_in_float32(keys: Any, scales: Any, first: int, steps: int, count: int) -> Any:
    """Rounded to whole numbers only afterwards."""
    key = jax.random.fold_in(jax.random.wrap_key_data(jnp.asarray(keys[0])), first)
    drawn = jax.random.normal(key, (steps, 1, count)) * jnp.float32(scales[0])
    return np.asarray(jnp.round(drawn), np.int64)


def rounded_down(keys: Any, scales: Any, first: int, steps: int, count: int) -> Any:
    """Towards zero, where nothing becomes too likely."""
    fine = np.asarray(rounded_noise(keys, 1000 * np.asarray(scales), first, steps, count))
    return np.trunc(fine / 1000).astype(np.int64)


@pytest.mark.parametrize("mutant", [half_the_scale, rounded_down])
def test_the_check_of_cells_catches(mutant: Draw) -> None:
    for scale in SMALL:
        assert not cells_are_as_likely_as_they_should_be(draws(scale, mutant), scale)


def test_the_checks_on_large_scales_catch_what_they_are_for() -> None:
    for scale in LARGE:
        assert not moments_and_tails_are_as_declared(draws(scale, half_the_scale), scale)
        one_for_all = draws(scale, the_noise_of_the_first_step)
        assert not streams_are_independent(one_for_all[:40])
    largest = LARGE[-1]
    assert not last_bits_are_even(draws(largest, normals_in_float32))
    assert moments_and_tails_are_as_declared(draws(largest, normals_in_float32), largest)


# Both ways to a number


@pytest.fixture(name="programs")
def _programs() -> Iterator[None]:
    """Programs of before and after are compiled anew: they hold the constants."""
    noise._program.cache_clear()
    yield
    noise._program.cache_clear()


def words_of(step: int, run: int, count: int) -> list[tuple[int, int]]:
    key = keys_of(step_key(jnp.asarray(KEYS[run]), jnp.uint32(step))).noise
    high, low = random_words(key, 0, jnp.arange(count, dtype=jnp.uint32))
    return list(zip(map(int, high), map(int, low), strict=True))


@pytest.mark.parametrize("scale", [0.3, 1.0, 1.3 * 2**15, 2.0**NOISE_BITS])
def test_every_number_is_the_cell_that_its_bits_stand_for(scale: float) -> None:
    """As full precision has it, wherever 63 bits decide."""
    drawn = np.asarray(rounded_noise(KEYS[1:], [scale], 4, 1, 1500))[0, 0]
    undecided = 0
    for ours, (high, low) in zip(drawn.tolist(), words_of(4, 1, 1500), strict=True):
        cell = cell_of(high << 31 | low >> 1, 64, scale)
        undecided += cell is None
        assert cell is None or ours == (-cell if low & 1 else cell)
    assert undecided <= 3


@pytest.mark.usefixtures("programs")
def test_the_quick_and_the_full_way_agree_on_every_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    scales = [0.8, 1.7 * 2**15]
    quick = np.asarray(rounded_noise(KEYS, scales, 2, 3, 60))
    for name in ("RELATIVE", "ABSOLUTE"):
        monkeypatch.setattr(noise, name, 1.0)
    noise._program.cache_clear()
    asked: list[int] = []

    def watched(key: Any, place: int, scale: float) -> int:
        asked.append(place)
        return in_full(key, place, scale)

    in_full = noise._in_full
    monkeypatch.setattr(noise, "_in_full", watched)
    np.testing.assert_array_equal(rounded_noise(KEYS, scales, 2, 3, 60), quick)
    assert len(asked) > 0.9 * quick.size


@pytest.mark.usefixtures("programs")
def test_that_check_catches_a_full_way_that_forgets_the_first_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quick = np.asarray(rounded_noise(KEYS, [3.0, 1.7 * 2**15], 2, 1, 20))
    monkeypatch.setattr(noise, "ABSOLUTE", 1.0)
    noise._program.cache_clear()
    forgets = with_fault(noise._in_full, ("high, low = more(0)", "high, low = more(9)"))
    monkeypatch.setattr(noise, "_in_full", forgets)
    assert (np.asarray(rounded_noise(KEYS, [3.0, 1.7 * 2**15], 2, 1, 20)) != quick).any()


def test_what_is_beyond_32_bits_wraps_around_as_sums_do() -> None:
    """No step has noise of that size; a sum would wrap it around in the same way."""
    scale = 1.5 * 2.0**31
    drawn = np.asarray(rounded_noise(KEYS[:1], [scale], 1, 1, 40))[0, 0].tolist()
    beyond = 0
    for ours, (high, low) in zip(drawn, words_of(1, 0, 40), strict=True):
        cell = cell_of((high << 31 | low >> 1) << 60 | 2**59, 124, scale)
        assert cell is not None
        beyond += cell >= 2**31
        # The bits that are still to come change the cell by a few.
        assert ((-cell if low & 1 else cell) - ours + 2**20) % 2**32 < 2**21
    assert beyond > 5


# Full precision


def edge(cell: int, scale: float) -> Any:
    """Pr[Z > z] at the upper edge of a cell, to 200 digits."""
    with mpmath.workdps(200):
        return mpmath.erfc((cell + mpmath.mpf(1) / 2) / mpmath.mpf(scale) / mpmath.sqrt(2)) / 2


@pytest.mark.parametrize("bits", [96, 400])
@pytest.mark.parametrize("scale", [0.05, 1.0, 777.25, 1.3 * 2**15])
@pytest.mark.parametrize("deviations", [0.0, 0.7, 3.0, 6.0])
def test_beside_an_edge_the_cell_is_known_and_upon_it_it_is_not(
    deviations: float, scale: float, bits: int
) -> None:
    cell = round(deviations * scale)
    with mpmath.workdps(200):
        upon = int(mpmath.floor(mpmath.ldexp(edge(cell, scale), bits)))
    assert cell_of(upon, bits, scale) is None
    assert cell_of(upon + 1, bits, scale) == cell
    assert cell_of(upon - 1, bits, scale) == cell + 1


@pytest.mark.parametrize("deviations", [9.0, 20.0, 35.0])
def test_far_tails_have_their_cells_too(deviations: float) -> None:
    """Pr[Z > 35] is 1e-268: 1200 bits tell the cells there apart."""
    scale, bits = 3.7, 1200
    cell = round(deviations * scale)
    with mpmath.workdps(400):
        inner, outer = edge(cell - 1, scale), edge(cell, scale)
        middle = int(mpmath.ldexp((inner + outer) / 2, bits))
    assert cell_of(middle, bits, scale) == cell
    assert stats.norm.sf((cell - 0.5) / scale) == pytest.approx(float(inner), rel=1e-9)


@pytest.mark.parametrize("scale", [0.05, 1.0, 2.0**NOISE_BITS])
def test_at_the_ends_the_middle_is_cell_zero_and_the_tail_is_never_decided(scale: float) -> None:
    assert cell_of(2**63 - 1, 64, scale) == 0
    assert cell_of(0, 64, scale) is None
    assert cell_of(0, 96, scale) is None


def test_known_quantiles_are_in_the_cell_that_scipy_says() -> None:
    random = np.random.default_rng(0)
    for scale in (1.0, 100.0, 12345.6):
        for tail in 10.0 ** -random.uniform(0.4, 15, size=40):
            z = scale * stats.norm.isf(tail)
            if abs(z - round(z)) < 0.499:  # scipy's own error is far below a thousandth
                assert cell_of(int(tail * 2**64) << 64, 128, scale) == math.floor(z + 0.5)


# Double precision


def errors_of(inverse: Callable[[Any], Any]) -> tuple[Any, Any]:
    """How far double precision is off, and what is allowed, on a dense grid of 63 bits."""
    random = np.random.default_rng(1)
    breaks = np.concatenate([at * (1 + random.normal(size=300) * 1e-3) for at in (2**-7, 0.13534)])
    grid = [
        2.0 ** -np.linspace(1, 65, 2500),
        np.linspace(1e-6, 0.5, 2500),
        0.5 - 2.0 ** -np.linspace(2, 53, 300),
        breaks,
        np.exp(-32) * (1 + random.normal(size=300) * 1e-3),  # where the series changes
        (np.arange(20) + 0.5) * 2.0**-64,
    ]
    tails = np.unique(np.concatenate(grid))
    with jax.enable_x64(True):
        found = -np.asarray(inverse(jnp.asarray(tails)))
    off = []
    with mpmath.workprec(160):
        for tail, z in zip(tails.tolist(), found.tolist(), strict=True):
            at = mpmath.mpf(z)
            # One step of Newton: what is left after it is the square of a tiny number.
            density = mpmath.exp(-at * at / 2) / mpmath.sqrt(2 * mpmath.pi)
            off.append(float((mpmath.erfc(at / mpmath.sqrt(2)) / 2 - tail) / density))
    return np.abs(off), RELATIVE * np.abs(found) + ABSOLUTE


@pytest.mark.parametrize("as_users_compile", [False, True])
def test_double_precision_is_a_hundred_times_nearer_than_it_is_allowed_to_be(
    as_users_compile: bool,
) -> None:
    if as_users_compile:
        with optimised():
            off, allowed = errors_of(jax.jit(lambda tails: ndtri(tails)))
    else:
        off, allowed = errors_of(jax.jit(ndtri))
    assert (off < allowed / 100).all()


def test_that_check_catches_single_precision() -> None:
    off, allowed = errors_of(lambda tails: ndtri(tails.astype(jnp.float32)).astype(jnp.float64))
    assert not (off < allowed).all()


# What a number depends on


def test_a_number_depends_on_the_runs_key_the_step_and_the_place_alone() -> None:
    """Not on how steps are cut into chunks, who is beside it, or how many places there are."""
    scales = [1.5, 3e4]
    whole = np.asarray(rounded_noise(KEYS, scales, 1, 6, 70))
    parts = [rounded_noise(KEYS, scales, first, steps, 70) for first, steps in ((1, 4), (5, 2))]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    for run in range(2):
        alone = rounded_noise(KEYS[run : run + 1], scales[run : run + 1], 3, 1, 70)
        np.testing.assert_array_equal(alone[0, 0], whole[2, run])
    np.testing.assert_array_equal(rounded_noise(KEYS[::-1], scales[::-1], 1, 6, 70), whole[:, ::-1])
    np.testing.assert_array_equal(rounded_noise(KEYS, scales, 1, 6, 5), whole[:, :, :5])
    # Of all pairs of streams, none is the other's: not even shifted by a step.
    assert len({row.tobytes() for row in whole.reshape(-1, 70)}) == 12


def test_noise_is_made_of_the_steps_own_key_and_of_no_other_of_its_keys() -> None:
    keys = keys_of(step_key(jnp.asarray(KEYS[0]), jnp.uint32(1)))
    words = {tuple(np.asarray(jax.random.key_data(key)).tolist()) for key in keys}
    next_step = keys_of(step_key(jnp.asarray(KEYS[0]), jnp.uint32(2)))
    words |= {tuple(np.asarray(jax.random.key_data(key)).tolist()) for key in next_step}
    assert len(words) == 8
