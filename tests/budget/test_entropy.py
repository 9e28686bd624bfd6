"""Sources of random bits: independent of the order of asking, exact, and never shared."""

import hashlib
from collections.abc import Callable
from random import Random
from typing import TypeAlias

import jax
import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from quorum_rl.budget.entropy import (
    BitStream,
    Entropy,
    OsEntropy,
    SeededEntropy,
    jax_key_data,
)
from quorum_rl.errors import QuorumError

FALSE_ALARM = 1e-6  # of every chi-square test below; with fixed seeds they pass or fail for good

Path: TypeAlias = tuple[int | str, ...]
PATHS = st.lists(st.one_of(st.integers(0, 30), st.text(max_size=4)), max_size=4).map(tuple)


@given(st.lists(PATHS, min_size=2, max_size=6, unique=True), st.randoms(use_true_random=False))
def test_a_seeded_stream_is_the_same_in_whatever_order_it_is_asked_for(
    paths: list[Path], random: Random
) -> None:
    entropy = SeededEntropy(11)
    expected = {path: entropy.stream(*path).bits(900) for path in paths}
    shuffled = list(paths)
    random.shuffle(shuffled)
    streams = {path: SeededEntropy(11).stream(*path) for path in shuffled}
    found = dict.fromkeys(paths, 0)
    for start in (0, 300, 600):  # the streams take turns
        for path in shuffled:
            found[path] |= streams[path].bits(300) << start
    assert found == expected


@given(st.lists(PATHS, min_size=2, max_size=6, unique=True))
def test_different_paths_have_different_streams(paths: list[Path]) -> None:
    drawn = {SeededEntropy(11).stream(*path).bits(128) for path in paths}
    assert len(drawn) == len(paths)


def test_paths_that_look_alike_and_different_seeds_have_different_streams() -> None:
    paths: list[Path] = [
        (1,),
        ("1",),
        (1, 2),
        ("1, 2",),
        (12,),
        ("a", "b"),
        ("ab",),
    ]
    drawn = {SeededEntropy(seed).stream(*path).bits(128) for path in paths for seed in (0, 1)}
    assert len(drawn) == 2 * len(paths)


def test_the_bits_of_a_seed_are_those_of_shake_256() -> None:
    """Pinned: a run that somebody reproduces next year has to draw the same noise."""
    first = hashlib.shake_256(bytes(8) + b'["quorum", 5, "query noise", 3]').digest(64)
    stream = SeededEntropy(5).stream("query noise", 3)
    assert stream.bits(8) == first[0]
    assert stream.bits(504).to_bytes(63, "little") == first[1:]


def test_streams_of_the_operating_system_never_repeat() -> None:
    drawn = {OsEntropy().stream("query noise", 3).bits(128) for _ in range(100)}
    assert len(drawn) == 100


@pytest.mark.parametrize("bound", [1, 2, 3, 7, 10, 64, 100])
def test_integers_below_a_bound_are_uniform(bound: int) -> None:
    stream = SeededEntropy(1).stream("below", bound)
    counts = np.bincount([stream.below(bound) for _ in range(20_000)], minlength=bound)
    assert len(counts) == bound
    assert bound == 1 or stats.chisquare(counts).pvalue > FALSE_ALARM


def _modulo(stream: BitStream, bound: int) -> int:
    return stream.bits((bound - 1).bit_length()) % bound


def test_a_biased_draw_would_be_noticed() -> None:
    draws: dict[str, Callable[[BitStream], int]] = {
        "exact": lambda stream: stream.below(10),
        "biased": lambda stream: _modulo(stream, 10),
    }
    pvalues = {}
    for name, draw in draws.items():
        stream = SeededEntropy(1).stream("below", 10)
        pvalues[name] = stats.chisquare(np.bincount([draw(stream) for _ in range(20_000)])).pvalue
    assert pvalues["biased"] < FALSE_ALARM < pvalues["exact"]


def test_large_integers_below_a_bound_are_uniform_too() -> None:
    bound = 3 * 2**90 + 12345
    stream = SeededEntropy(2).stream()
    fractions = [stream.below(bound) / bound for _ in range(5_000)]
    assert stats.kstest(fractions, "uniform").pvalue > FALSE_ALARM


def test_nothing_lies_below_zero() -> None:
    with pytest.raises(ValueError, match="nothing lies below 0"):
        OsEntropy().stream().below(0)


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(QuorumError, match="seed of the noise is -1"):
        SeededEntropy(-1)


@pytest.mark.parametrize("entropy", [OsEntropy(), SeededEntropy(4)])
def test_a_jax_key_takes_all_of_its_bits_from_the_source(entropy: Entropy) -> None:
    words = [jax_key_data(entropy, "training", number) for number in range(64)]
    assert {word.shape for word in words} == {(2,)}
    assert {word.dtype for word in words} == {np.dtype(np.uint32)}
    # Each of the 64 bits is seen as 0 and as 1: fails by chance with probability 64·2·2**-64.
    assert np.bitwise_or.reduce(words).tolist() == [2**32 - 1] * 2
    assert np.bitwise_and.reduce(words).tolist() == [0, 0]
    key = jax.random.wrap_key_data(jax.numpy.asarray(words[0]))
    assert jax.random.key_data(key).tolist() == words[0].tolist()


def test_only_seeded_keys_repeat() -> None:
    assert SeededEntropy(4).reproducible
    assert not OsEntropy().reproducible
    assert (jax_key_data(SeededEntropy(4)) == jax_key_data(SeededEntropy(4))).all()
    assert (jax_key_data(OsEntropy()) != jax_key_data(OsEntropy())).any()
