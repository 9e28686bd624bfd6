"""The private step is the mechanism that its event says."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiling import optimised
from faults import with_fault
from jax_privacy.clipping import clipped_grad
from scipy import stats

from quorum_rl.errors import QuorumError
from quorum_rl.learners import Bc, DenseLearner, Learner, Networks
from quorum_rl.privacy.events import TrainingEvent
from quorum_rl.training.contributions import (
    Contribution,
    Gradient,
    Local,
    Solve,
    mean_gradient,
)
from quorum_rl.training.data import ExpertData, transitions_of
from quorum_rl.training.mechanism import (
    PrivateStep,
    StepNumbers,
    StepShape,
    default_chunk,
    private_mean,
    sum_over_drawn,
    trained_count,
    who_is_drawn,
)
from quorum_rl.training.noise import rounded_noise
from quorum_rl.training.randomness import StepKeys, keys_of, step_key
from quorum_rl.types import Transition

STEP = PrivateStep(
    sampling_rate=0.3,
    clip_norm=0.5,
    noise_multiplier=1.5,
    expected_batch=8.0,
    chunk=8,
    contribution=Gradient(transitions=3),
)


def flat(tree: Any) -> Any:
    return np.concatenate(
        [np.ravel(np.asarray(leaf, np.float64)) for leaf in jax.tree.leaves(tree)]
    )


# What the drawn experts add up to

LOCAL = Local(steps=2, batch_size=3, rate=0.3)
MANY = 40


@dataclass(frozen=True)
class LastBits:
    """The last bits of another contribution, and nothing else: who rounds otherwise is seen."""

    of: Contribution

    @property
    def transitions(self) -> int:
        return self.of.transitions

    def trained(self, learner: Learner, params: Any) -> Any:
        return self.of.trained(learner, params)

    def __call__(
        self, learner: Learner, params: Any, target: Any, transitions: Transition, key: jax.Array
    ) -> Any:
        made = self.of(learner, params, target, transitions, key)
        return jax.tree.map(lambda leaf: 2.0**22 * leaf % 1, made)


@pytest.fixture(scope="module", name="many")
def _many(transitions: Callable[..., Transition]) -> ExpertData:
    """Forty experts with three transitions each."""
    return ExpertData(transitions(6, 3 * MANY), jnp.arange(0, 3 * MANY + 1, 3))


def step_keys(seed: int) -> StepKeys:
    return keys_of(step_key(jnp.asarray([seed, 3], jnp.uint32), jnp.uint32(1)))


@cache
def summing(
    learner: DenseLearner, shape: StepShape, function: Callable[..., Any] = sum_over_drawn
) -> Callable[..., Any]:
    return jax.jit(partial(function, learner, shape=shape))


def whole(sums: list[jax.Array]) -> Any:
    assert all(leaf.dtype == jnp.int32 for leaf in sums)
    return np.concatenate([np.ravel(np.asarray(leaf, np.int64)) for leaf in sums])


def others_keep_their_shares(
    learner: DenseLearner,
    params: Networks,
    target: Networks,
    data: ExpertData,
    contribution: Contribution,
    function: Callable[..., Any] = sum_over_drawn,
) -> bool:
    """Whoever is added, at any place, changes the sum by what it is alone: to the last bit."""
    sums = summing(learner, StepShape(contribution, 32, False), function)
    count = data.expert_count

    def of(drawn: Any) -> Any:
        made = sums(params, target, data, jnp.asarray(drawn), step_keys(2), STEP.numbers)
        return whole(made)

    for size in (3, 9, 17, 33, count):
        drawn = np.arange(count) < size
        everybody = of(drawn)
        for victim in (0, size // 2, size - 1):
            rest, alone = drawn.copy(), np.zeros(count, bool)
            rest[victim], alone[victim] = False, True
            if not np.array_equal(everybody, of(rest) + of(alone)):
                return False
            if (np.square(of(alone)).sum()) > STEP.units**2:
                return False
    return True


@pytest.mark.parametrize(
    "contribution",
    [Gradient(transitions=3), LOCAL, LastBits(Gradient(transitions=3)), LastBits(LOCAL)],
    ids=["gradient", "local", "last bits of gradients", "last bits of local steps"],
)
def test_an_expert_changes_the_sum_by_its_own_share_wherever_others_come_to_stand(
    learner: DenseLearner,
    params: Networks,
    target: Networks,
    many: ExpertData,
    contribution: Contribution,
) -> None:
    assert others_keep_their_shares(learner, params, target, many, contribution)


def test_so_it_does_as_users_compile(
    learner: DenseLearner, params: Networks, target: Networks, many: ExpertData
) -> None:
    with optimised():
        again = with_fault(sum_over_drawn)  # another function, so that it is compiled again
        bits = LastBits(STEP.contribution)
        assert others_keep_their_shares(learner, params, target, many, bits, again)


TWO_SIZES = (
    (
        "total: list[Array] = jax.lax.while_loop(some_are_left, add, state)[1]",
        """for size, left_over in ((shape.size, shape.size // 2), (8, 0)):
        state = jax.lax.while_loop(
            lambda at: drawn_count - at[0] > left_over, lambda at: add(at, size), state
        )
    total = state[1]""",
    ),
    ("def add(state: tuple[Array, list[Array]])", "def add(state, size)"),
    ("jnp.arange(1, shape.size + 1)", "jnp.arange(1, size + 1)"),
    ("return done + shape.size,", "return done + size,"),
)


def test_the_check_catches_small_chunks_for_what_is_left_over(
    learner: DenseLearner, params: Networks, target: Networks, many: ExpertData
) -> None:
    """In a chunk of another size the same expert rounds otherwise."""
    mutant = with_fault(sum_over_drawn, *TWO_SIZES)
    bits = LastBits(Gradient(transitions=3))
    assert not others_keep_their_shares(learner, params, target, many, bits, mutant)


@partial(jax.jit, static_argnums=0)
def oracle(
    learner: DenseLearner,
    params: Networks,
    target: Networks,
    shown: Transition,
    numbers: Any,
    keys: StepKeys,
    clip_norm: Any,
) -> Any:
    """The sum of clipped mean gradients as jax-privacy has it for groups of examples."""

    def mean_loss(params: Any, of_expert: Transition, number: jax.Array) -> jax.Array:
        own = jax.random.fold_in(keys.contribution, number)
        each = jax.random.split(own, len(of_expert.reward))
        return jax.vmap(learner.loss, (None, None, 0, 0))(params, target, of_expert, each).mean()

    clipped = clipped_grad(
        mean_loss, l2_clip_norm=clip_norm, batch_argnums=(1, 2), keep_batch_dim=False
    )
    return clipped(params, shown, numbers)


@partial(jax.jit, static_argnums=0)
def gradients(
    learner: DenseLearner,
    params: Networks,
    target: Networks,
    shown: Transition,
    numbers: Any,
    keys: StepKeys,
) -> Any:
    """Those of each expert, as they are."""

    def one(of_expert: Transition, number: jax.Array) -> Any:
        own = jax.random.fold_in(keys.contribution, number)
        return mean_gradient(learner, params, target, of_expert, own)

    return jax.vmap(one)(shown, numbers)


def in_float64(each: Any, clip_norm: float) -> Any:
    """The same by NumPy, of gradients of each expert."""
    leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(each)]
    rows = np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows * np.minimum(1, clip_norm / norms)).sum(axis=0), norms


@pytest.mark.parametrize("chosen", [[], [0, 3, 10], list(range(11))], ids=len)
@pytest.mark.parametrize("clip_norm", [0.05, 2.0, 1e4])  # clips all, some, none
def test_the_sum_is_that_of_clipped_gradients_of_each_expert_but_for_rounding(
    learner: DenseLearner,
    params: Networks,
    target: Networks,
    data: ExpertData,
    chosen: list[int],
    clip_norm: float,
) -> None:
    drawn = jnp.zeros(11, bool).at[jnp.asarray(chosen, int)].set(True)
    keys, numbers = step_keys(4), replace(STEP, clip_norm=clip_norm).numbers
    ours = whole(summing(learner, STEP.shape)(params, target, data, drawn, keys, numbers))
    if not chosen:
        assert not ours.any()
        return
    experts = jnp.asarray(chosen)
    shown = jax.jit(transitions_of, static_argnums=3)(data, experts, keys.transitions, 3)
    each = gradients(learner, params, target, shown, experts, keys)
    expected, norms = in_float64(each, clip_norm)
    if len(chosen) == 11:
        clipped = (norms > clip_norm).mean()
        assert {0.05: clipped == 1, 2.0: 0 < clipped < 1, 1e4: clipped == 0}[clip_norm]
    unit = clip_norm / STEP.units
    # Half a unit of each expert, and what is taken off one that is clipped.
    off = len(chosen) * (0.51 + math.sqrt(len(ours)) / 2 * (norms > clip_norm).any()) * unit
    np.testing.assert_allclose(ours * unit, expected, atol=off)
    theirs = flat(oracle(learner, params, target, shown, experts, keys, clip_norm))
    np.testing.assert_allclose(ours * unit, theirs, atol=off + 1e-5 * clip_norm)


# The whole step


@cache
def stepping(learner: DenseLearner, shape: StepShape) -> Callable[..., Any]:
    return jax.jit(partial(private_mean, learner, shape=shape))


def changed(**numbers: Any) -> StepNumbers:
    return replace(STEP, **numbers).numbers


def noise_for(params: Any, learner: DenseLearner, step: PrivateStep, seed: int) -> Any:
    count = trained_count(learner, params, step.contribution)
    words = np.array([[seed, 3]], np.uint32)
    return rounded_noise(words, [step.noise_scale], 1, 1, count)[0, 0]


@pytest.mark.parametrize(
    "contribution", [Gradient(transitions=3), LOCAL], ids=["gradient", "local"]
)
@pytest.mark.parametrize("normalised", [False, True])
def test_a_step_is_the_sum_and_the_noise_in_units_over_the_declared_constant(
    learner: DenseLearner,
    params: Networks,
    target: Networks,
    data: ExpertData,
    contribution: Contribution,
    normalised: bool,
) -> None:
    """With the noise taken off, whole numbers are left: exactly those of who was drawn."""
    step = replace(STEP, contribution=contribution, normalised=normalised, sampling_rate=0.5)
    keys, noise = step_keys(8), noise_for(params, learner, step, 8)
    made = stepping(learner, step.shape)(params, target, data, keys, noise, step.numbers)
    drawn = who_is_drawn(data, keys.sampling, step.numbers.last_drawn)
    assert 0 < drawn.sum() < 11
    total = whole(summing(learner, step.shape)(params, target, data, drawn, keys, step.numbers))
    left = flat(made) * (8.0 * step.units / 0.5) - np.asarray(noise, np.int64)
    np.testing.assert_allclose(left, total, atol=0.05)  # float32 of numbers up to 200 000


def test_an_empty_draw_is_noise_alone(
    learner: DenseLearner, params: Networks, target: Networks, data: ExpertData
) -> None:
    nobody = changed(sampling_rate=2**-32)
    noise = noise_for(params, learner, STEP, 6)
    mean = stepping(learner, STEP.shape)(params, target, data, step_keys(6), noise, nobody)
    expected = np.asarray(noise, np.float64) * (0.5 / STEP.units / 8.0)
    np.testing.assert_allclose(flat(mean), expected, rtol=1e-6)
    assert np.std(flat(mean)) == pytest.approx(1.5 * 0.5 / 8.0, rel=0.2)


def test_with_a_rate_of_one_everybody_is_drawn_and_nobody_who_is_filling(
    data: ExpertData,
) -> None:
    for seed in range(5):
        drawn = who_is_drawn(data, step_keys(seed).sampling, changed(sampling_rate=1.0).last_drawn)
        assert drawn.all()
        offsets = jnp.append(data.offsets, data.offsets[-1])  # one more, without transitions
        filled = who_is_drawn(
            replace(data, offsets=offsets), step_keys(seed).sampling, jnp.uint32(2**32 - 1)
        )
        assert filled.tolist() == [True] * 11 + [False]


def divides_by_the_declared_constant(step: Callable[..., Any], *arguments: Any) -> bool:
    """Half the experts drawn or all of them: the same constant turns the sums into means."""
    learner, params, target, data = arguments
    keys, nothing = step_keys(8), jnp.zeros(trained_count(learner, params, STEP.contribution), int)
    for rate in (0.5, 1.0):
        numbers = changed(sampling_rate=rate)
        drawn = who_is_drawn(data, keys.sampling, numbers.last_drawn)
        total = whole(summing(learner, STEP.shape)(params, target, data, drawn, keys, numbers))
        mean = flat(step(params, target, data, keys, nothing, numbers))
        if not np.allclose(mean, total * (0.5 / STEP.units) / 8.0, rtol=1e-5, atol=1e-9):
            return False
    return True


def test_the_sum_is_divided_by_the_declared_constant_whoever_is_drawn(
    learner: DenseLearner, params: Networks, target: Networks, data: ExpertData
) -> None:
    ours = stepping(learner, STEP.shape)
    assert divides_by_the_declared_constant(ours, learner, params, target, data)

    def divides_by_how_many_were_drawn(
        params: Any, target: Any, data: ExpertData, keys: StepKeys, noise: Any, numbers: StepNumbers
    ) -> Any:
        drawn = who_is_drawn(data, keys.sampling, numbers.last_drawn).sum()
        return ours(params, target, data, keys, noise, numbers._replace(expected_batch=drawn * 1.0))

    mutant = divides_by_how_many_were_drawn
    assert not divides_by_the_declared_constant(mutant, learner, params, target, data)


def test_what_is_not_trained_gets_neither_sum_nor_noise(data: ExpertData) -> None:
    learner, solve = Bc(hidden_sizes=(6, 5)), Solve(transitions=4)
    params = learner.init(jax.random.key(0), 3, 4)
    step = replace(STEP, contribution=solve)
    assert trained_count(learner, params, solve) == 5 * 4 + 4
    noise = noise_for(params, learner, step, 1)
    mean = stepping(learner, step.shape)(params, {}, data, step_keys(1), noise, step.numbers)
    *hidden, last = mean["policy"]
    assert not flat(hidden).any()
    assert flat(last).all()


def test_runs_with_other_keys_and_numbers_are_one_program(
    learner: DenseLearner, params: Networks, target: Networks, data: ExpertData
) -> None:
    settings = [
        changed(sampling_rate=0.2),
        changed(sampling_rate=1.0, clip_norm=2.0),
        changed(noise_multiplier=2.0**13, expected_batch=3.0),  # fewer units
    ]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *settings)
    keys = [step_keys(seed) for seed in (1, 2**32 - 1, 0)]
    together = jax.tree.map(lambda *each: jnp.stack(each), *keys)
    noises = jnp.stack([noise_for(params, learner, STEP, seed) for seed in (4, 5, 6)])
    step = partial(private_mean, learner, params, target, data, shape=STEP.shape)
    every = jax.jit(jax.vmap(lambda *own: step(*own)))(together, noises, stacked)
    for run, numbers in enumerate(settings):
        alone = stepping(learner, STEP.shape)(params, target, data, keys[run], noises[run], numbers)
        mine = jax.tree.map(lambda leaf, run=run: leaf[run], every)
        unit = float(numbers.clip_norm / numbers.units / numbers.expected_batch)
        np.testing.assert_allclose(flat(mine), flat(alone), rtol=1e-6, atol=2 * unit)


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
        ("chunk", 0),
        ("chunk", 2.5),
    ],
)
def test_a_number_out_of_its_range_is_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(QuorumError, match=f"{name} is {value}: give"):
        PrivateStep(**{**vars(STEP), name: value})


def test_more_noise_than_there_is_room_for_is_refused() -> None:
    with pytest.raises(QuorumError, match="leaves nothing of it"):
        replace(STEP, noise_multiplier=1e7)
    coarse = replace(STEP, noise_multiplier=2.0**15)
    assert (coarse.units, coarse.noise_scale) == (2**11, 2.0**26)
    assert (STEP.units, STEP.noise_scale) == (2**15, 1.5 * 2**15)


def test_chunks_have_one_size_that_is_a_multiple_of_eight() -> None:
    for chunk, size in ((1, 8), (8, 8), (9, 16), (112, 112)):
        assert replace(STEP, chunk=chunk).shape.size == size
    assert replace(STEP, chunk=112).shape.on_one_of(8).size == 16
    assert STEP.shape.on_one_of(8).size == 8


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_few_equal_chunks_take_what_is_usually_drawn(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    for experts, rate in ((3000, 512 / 3000), (300, 0.2), (50, 1.0), (2, 0.01)):
        chunk = default_chunk(experts, rate, 2)
        assert stats.binom(experts, rate).sf(chunk) < 0.05
        assert chunk - experts * rate < 8 + 1 + 2 * np.sqrt(experts * rate)
    # One fewer may be declared than there are, and all are drawn.
    assert default_chunk(299, 1.0, 1) == 304
    assert default_chunk(2999, 1.0, 1) == 1000
    assert default_chunk(10**6, 0.5, 1) <= 1024
    assert default_chunk(2999, 1.0, 1280) == (200 if backend == "cpu" else 752)
    assert default_chunk(50, 1.0, 10**7) == 8
