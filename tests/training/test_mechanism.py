"""The private step is the mechanism that its event says."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from quorum_rl.errors import QuorumError
from quorum_rl.learners import DenseLearner, Networks
from quorum_rl.privacy.events import TrainingEvent
from quorum_rl.training import mechanism
from quorum_rl.training.clipping import clipped_by_gradients
from quorum_rl.training.expert_data import ExpertData, transitions_of
from quorum_rl.training.gaussian import standard_normal
from quorum_rl.training.mechanism import (
    PrivateStep,
    StepNumbers,
    StepShape,
    default_micro_batch,
    noise_like,
    poisson_sample,
    private_gradient,
    sum_over_drawn,
)
from quorum_rl.training.plain import plain_gradient
from quorum_rl.types import Transition

Sampler: TypeAlias = Callable[[jax.Array, int, jax.Array], jax.Array]
FALSE_ALARM = 1e-6  # of every statistical check here, on both sides together

STEP = PrivateStep(
    sampling_rate=0.3,
    clip_norm=0.5,
    noise_multiplier=1.5,
    expected_batch=8.0,
    micro_batch=4,
    transitions_per_expert=3,
)


def flat(tree: Any) -> Any:
    return np.concatenate(
        [np.ravel(np.asarray(leaf, np.float64)) for leaf in jax.tree.leaves(tree)]
    )


def within(statistic: float, degrees: int) -> bool:
    """Whether a sum of squares is one that a chi-square distribution gives."""
    low, high = stats.chi2(degrees).ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2])
    return bool(low < statistic < high)


# Who is drawn

EXPERTS, DRAWS = 30, 20_000


def rates_are_as_declared(drawn: Any, rate: float) -> bool:
    counts = drawn.sum(axis=0)
    squares = (counts - DRAWS * rate) ** 2 / (DRAWS * rate * (1 - rate))
    return within(squares.sum(), EXPERTS)


def experts_are_independent(drawn: Any) -> bool:
    """Correlations between independent columns have squares that sum to a chi-square variable."""
    correlations = np.corrcoef(drawn, rowvar=False)[np.triu_indices(EXPERTS, 1)]
    return within(DRAWS * np.square(correlations).sum(), len(correlations))


def draws(sampler: Sampler, rate: float) -> Any:
    numbers = PrivateStep(**{**vars(STEP), "sampling_rate": rate}).numbers
    keys = jax.random.split(jax.random.key(11), DRAWS)
    drawn = jax.vmap(lambda key: sampler(key, EXPERTS, numbers.last_drawn))(keys)
    return np.asarray(drawn, np.float64)


@pytest.mark.parametrize("rate", [0.04, 0.5])
def test_each_expert_is_drawn_at_the_declared_rate_whoever_else_is(rate: float) -> None:
    drawn = draws(poisson_sample, rate)
    assert rates_are_as_declared(drawn, rate)
    assert experts_are_independent(drawn)
    # The sizes vary as those of independent draws do.
    sizes = drawn.sum(axis=1)
    expected = stats.binom(EXPERTS, rate).pmf(np.arange(EXPERTS + 1)) * DRAWS
    counts = np.bincount(sizes.astype(int), minlength=EXPERTS + 1)
    usual = expected > 10
    counts, expected = (np.append(x[usual], x[~usual].sum()) for x in (counts, expected))
    assert stats.chisquare(counts, expected).pvalue > FALSE_ALARM


def shuffled(key: jax.Array, count: int, last_drawn: jax.Array) -> jax.Array:
    """As many as expected, always."""
    size = jnp.round(count * (last_drawn / 2.0**32)).astype(int)
    return jax.random.permutation(key, count) < size


def all_or_nobody_of_a_pair(key: jax.Array, count: int, last_drawn: jax.Array) -> jax.Array:
    return jnp.repeat(poisson_sample(key, count // 2, last_drawn), 2)


def too_eager(key: jax.Array, count: int, last_drawn: jax.Array) -> jax.Array:
    return poisson_sample(key, count, last_drawn // 20 * 21)


def test_the_checks_catch_wrong_sampling() -> None:
    for dependent in (shuffled, all_or_nobody_of_a_pair):
        assert not experts_are_independent(draws(dependent, 0.5))
    assert rates_are_as_declared(draws(shuffled, 0.5), 0.5)  # which alone proves little
    assert not rates_are_as_declared(draws(too_eager, 0.5), 0.5)


@pytest.mark.parametrize(
    ("rate", "last_drawn"),
    [
        (1.0, 2**32 - 1),
        (0.5, 2**31 - 1),
        (2**-32, 0),
        (0.1, 429496728),
        (np.nextafter(0.25, 0), 2**30 - 2),
    ],
)
def test_the_rate_is_rounded_down_to_a_multiple_of_two_to_the_minus_32(
    rate: float, last_drawn: int
) -> None:
    numbers = PrivateStep(**{**vars(STEP), "sampling_rate": rate}).numbers
    assert int(numbers.last_drawn) == last_drawn
    assert 0 <= rate - (last_drawn + 1) / 2**32 < 2**-32


def test_at_rate_one_everybody_is_drawn_and_bits_up_to_the_last_drawn_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    everybody = poisson_sample(jax.random.key(0), 1000, jnp.uint32(2**32 - 1))
    assert everybody.all()
    bits = jnp.array([0, 9, 10, 11, 2**32 - 1], jnp.uint32)
    monkeypatch.setattr(mechanism, "random_words", lambda *_: (bits, bits))
    assert poisson_sample(jax.random.key(0), 5, jnp.uint32(10)).tolist() == [1, 1, 1, 0, 0]


# What the drawn experts add up to


@cache
def summing(learner: DenseLearner, micro_batch: int) -> Callable[..., Any]:
    return jax.jit(partial(sum_over_drawn, learner, shape=StepShape(3, micro_batch, False)))


@pytest.mark.parametrize("chosen", [[], [4], [0, 3, 10], list(range(11))], ids=len)
def test_the_micro_batch_does_not_change_the_sum(
    learner: DenseLearner,
    params: Networks,
    target: Networks,
    data: ExpertData,
    chosen: list[int],
) -> None:
    drawn = jnp.zeros(11, bool).at[jnp.asarray(chosen, int)].set(True)
    keys = (jax.random.key(3), jax.random.key(4))
    sums = [
        flat(summing(learner, size)(params, target, data, drawn, keys, 0.5, start=params))
        - flat(params)
        for size in (2, 9)
    ]
    transitions = transitions_of(data, jnp.arange(11), keys[0], 3)
    learner_keys = jax.random.split(keys[1], (11, 3))
    oracle = jax.jit(partial(clipped_by_gradients, learner))
    expected = flat(oracle(params, target, transitions, drawn, learner_keys, 0.5))
    for one in sums:
        np.testing.assert_allclose(one, expected, rtol=1e-5, atol=2e-6)


# Noise


def noise_of(step: PrivateStep, noise: Callable[..., Any], params: Networks) -> Any:
    """What `noise` makes for each of many keys, a row each."""
    keys = jax.random.split(jax.random.key(5), 3000)
    rows = jax.jit(jax.vmap(lambda key: noise(params, key, step.numbers)))(keys)
    return np.concatenate(
        [np.asarray(leaf, np.float64).reshape(3000, -1) for leaf in jax.tree.leaves(rows)], axis=1
    )


def noise_is_as_declared(noise: Any, step: PrivateStep) -> bool:
    """Its size is σC, and no two entries are drawn together."""
    scaled = noise / (step.noise_multiplier * step.clip_norm)
    some = scaled[:, :: max(1, scaled.shape[1] // 60)]
    correlations = np.corrcoef(some, rowvar=False)[np.triu_indices(some.shape[1], 1)]
    return within(np.square(scaled).sum(), scaled.size) and within(
        len(some) * np.square(correlations).sum(), len(correlations)
    )


def test_noise_has_the_declared_standard_deviation_in_every_entry(params: Networks) -> None:
    noise = noise_of(STEP, noise_like, params)
    assert noise_is_as_declared(noise, STEP)
    assert stats.kstest(noise[0] / 0.75, stats.norm.cdf).pvalue > FALSE_ALARM


def forgets_the_clip_norm(params: Any, key: jax.Array, numbers: StepNumbers) -> Any:
    return noise_like(params, key, numbers._replace(clip_norm=jnp.float32(1)))


def divides_the_noise(params: Any, key: jax.Array, numbers: StepNumbers) -> Any:
    return jax.tree.map(
        lambda leaf: leaf / numbers.expected_batch, noise_like(params, key, numbers)
    )


def gives_every_leaf_the_same_noise(params: Any, key: jax.Array, numbers: StepNumbers) -> Any:
    scale = numbers.noise_multiplier * numbers.clip_norm
    return jax.tree.map(
        lambda leaf: scale * standard_normal(key, leaf.size).reshape(leaf.shape), params
    )


@pytest.mark.parametrize(
    "mutant", [forgets_the_clip_norm, divides_the_noise, gives_every_leaf_the_same_noise]
)
def test_the_check_catches(mutant: Callable[..., Any], params: Networks) -> None:
    assert not noise_is_as_declared(noise_of(STEP, mutant, params), STEP)


# The whole step


@cache
def whole_step(learner: DenseLearner, shape: StepShape) -> Callable[..., Any]:
    return jax.jit(partial(private_gradient, learner, shape=shape))


def changed(**numbers: float) -> StepNumbers:
    return PrivateStep(**{**vars(STEP), **numbers}).numbers


def test_an_empty_draw_is_noise_alone(
    learner: DenseLearner, params: Networks, target: Networks, data: ExpertData
) -> None:
    key = jax.random.key(6)
    nobody = changed(sampling_rate=2**-32)
    gradient = whole_step(learner, STEP.shape)(params, target, data, key, nobody)
    noise = jax.jit(noise_like)(params, jax.random.split(key, 4)[3], nobody)
    np.testing.assert_allclose(flat(gradient), flat(noise) / 8.0, rtol=1e-6)
    assert flat(gradient).all()


def divides_by_the_declared_constant(step: Callable[..., Any], *arguments: Any) -> bool:
    """Half the experts drawn or all of them: the same constant turns the sums into gradients."""
    key = jax.random.key(8)
    sampling_key, *keys, noise_key = jax.random.split(key, 4)
    learner, params, target, data = arguments
    for rate in (0.5, 1.0):
        numbers = changed(sampling_rate=rate, noise_multiplier=1e-6)
        drawn = poisson_sample(sampling_key, data.expert_count, numbers.last_drawn)
        noise = noise_like(params, noise_key, numbers)
        total = summing(learner, 9)(
            params, target, data, drawn, tuple(keys), numbers.clip_norm, start=noise
        )
        gradient = flat(step(params, target, data, key, numbers))
        if not np.allclose(gradient, flat(total) / 8.0, rtol=1e-5, atol=1e-7):
            return False
    return True


def test_the_sum_is_divided_by_the_declared_constant_whoever_is_drawn(
    learner: DenseLearner, params: Networks, target: Networks, data: ExpertData
) -> None:
    ours = whole_step(learner, STEP.shape)
    assert divides_by_the_declared_constant(ours, learner, params, target, data)

    def divides_by_how_many_were_drawn(
        params: Any, target: Any, data: ExpertData, key: jax.Array, numbers: StepNumbers
    ) -> Any:
        sampling_key = jax.random.split(key, 4)[0]
        drawn = poisson_sample(sampling_key, data.expert_count, numbers.last_drawn).sum()
        return ours(params, target, data, key, numbers._replace(expected_batch=drawn * 1.0))

    mutant = divides_by_how_many_were_drawn
    assert not divides_by_the_declared_constant(mutant, learner, params, target, data)


def test_runs_with_other_keys_and_numbers_are_one_program(
    learner: DenseLearner, params: Networks, target: Networks, data: ExpertData
) -> None:
    words = np.array([[1, 2], [2**32 - 1, 7], [0, 5]], np.uint32)
    keys = jax.random.wrap_key_data(jnp.asarray(words))
    settings = [
        changed(sampling_rate=0.2),
        changed(sampling_rate=1.0, clip_norm=2.0),
        changed(noise_multiplier=0.1, expected_batch=3.0),
    ]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *settings)
    step = partial(private_gradient, learner, params, target, data, shape=STEP.shape)
    together = jax.jit(jax.vmap(lambda key, numbers: step(key=key, numbers=numbers)))(keys, stacked)
    for run, numbers in enumerate(settings):
        alone = whole_step(learner, STEP.shape)(params, target, data, keys[run], numbers)
        mine = jax.tree.map(lambda leaf, run=run: leaf[run], together)
        np.testing.assert_allclose(flat(mine), flat(alone), rtol=1e-5, atol=1e-6)


def test_a_plain_gradient_is_the_mean_of_all_gradients(
    learner: DenseLearner,
    params: Networks,
    target: Networks,
    transitions: Callable[..., Transition],
) -> None:
    batch = transitions(9, 12)
    keys = jax.random.split(jax.random.key(0), 12)
    gradient = jax.jit(partial(plain_gradient, learner))(params, target, batch, keys)
    each = jax.jit(jax.vmap(jax.grad(learner.loss), (None, None, 0, 0)))(
        params, target, batch, keys
    )
    mean = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64).mean(axis=0), each)
    np.testing.assert_allclose(flat(gradient), flat(mean), rtol=1e-5, atol=1e-6)


# What it says of itself


def test_a_step_says_what_it_is() -> None:
    assert STEP.event(7) == TrainingEvent(sampling_rate=0.3, noise_multiplier=1.5, steps=7)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sampling_rate", 0.0),
        ("sampling_rate", 1.1),
        ("clip_norm", 0.0),
        ("clip_norm", float("nan")),
        ("noise_multiplier", 0.0),
        ("noise_multiplier", float("inf")),
        ("expected_batch", -1.0),
        ("micro_batch", 0),
        ("transitions_per_expert", 2.5),
    ],
)
def test_a_number_out_of_its_range_is_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(QuorumError, match=f"the {name.replace('_', ' ')} is {value}: give"):
        PrivateStep(**{**vars(STEP), name: value})


def test_a_micro_batch_takes_what_is_drawn_on_average(monkeypatch: pytest.MonkeyPatch) -> None:
    for experts, rate in ((3000, 512 / 3000), (300, 0.2), (50, 1.0), (2, 0.01)):
        assert abs(default_micro_batch(experts, rate) - experts * rate) < 8
    # With many transitions an expert, one that is nearly always full.
    assert default_micro_batch(3000, 64 / 3000, 16) == 56
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    for experts, rate in ((3000, 512 / 3000), (300, 0.2), (50, 1.0), (2, 0.01)):
        assert stats.binom(experts, rate).sf(default_micro_batch(experts, rate)) < 0.05
    assert default_micro_batch(10**6, 0.5) == 1024
