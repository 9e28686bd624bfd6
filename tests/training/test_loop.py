"""The training loop: against a plain one in Python, many runs at once, in any chunks, resumed."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax
import pytest
from loops import (
    AVERAGING,
    LEARNER,
    MIXED,
    NO,
    PRIVATE_STEP,
    A,
    B,
    kept,
    nearly_the_same,
    recipe_of,
    run_of,
    same_bits,
    stacked,
    trained,
)

from quorum_rl.errors import QuorumError
from quorum_rl.training.contributions import Local, mean_gradient
from quorum_rl.training.data import ExpertData, plain_batch
from quorum_rl.training.loop import begin, result_of
from quorum_rl.training.mechanism import PrivateStep, private_mean, trained_count
from quorum_rl.training.noise import rounded_noise
from quorum_rl.training.randomness import keys_of, step_key
from quorum_rl.training.recipe import (
    Optimiser,
    Recipe,
    Run,
    Schedule,
    StepKind,
    TrainState,
    noise_scales,
    optimiser_of,
)
from quorum_rl.types import Transition


@pytest.fixture(scope="module", name="plain")
def _plain(transitions: Callable[..., Transition]) -> Transition:
    return transitions(8, 12)


@jax.jit
def private_mean_of(
    params: Any, target: Any, run: Run, number: int, noise: Any, data: ExpertData
) -> Any:
    keys = keys_of(step_key(run.noise_key, jnp.asarray(number)))
    shape = PRIVATE_STEP.shape
    return private_mean(LEARNER, params, target, data, keys, noise, run.numbers, shape)


@jax.jit
def plain_gradient_of(params: Any, target: Any, run: Run, number: int, plain: Transition) -> Any:
    key = jax.random.wrap_key_data(run.public_key, impl="threefry2x32")
    chosen, own = jax.random.split(jax.random.fold_in(key, number))
    return mean_gradient(LEARNER, params, target, plain_batch(plain, chosen, 5), own)


# One that is none of ours, and what optax itself makes of it.
OWN_OPTIMISER = Optimiser(
    "own", optax.chain(optax.scale_by_rms(0.8), optax.add_decayed_weights(0.3))
)
OPTIMISERS: dict[str, Any] = {
    "adam": optax.adam,
    "momentum": partial(optax.sgd, momentum=0.9),
    "sgd": optax.sgd,
    "own": lambda rate: optax.chain(
        optax.scale_by_rms(0.8), optax.add_decayed_weights(0.3), optax.scale(-rate)
    ),
}


def by_hand(recipe: Recipe, run: Run, data: ExpertData, plain: Transition) -> dict[str, Any]:
    """One run, step by step in Python, with optax's own optimisers and a NumPy average."""
    made = OPTIMISERS[recipe.optimiser.name]
    updates = [made(float(run.learning_rate)), made(float(run.private_learning_rate))]
    first = begin(recipe, stacked([run]), 3, 4)
    params, target = jax.tree.map(lambda leaf: leaf[0], (first.params, first.target))
    states = [update.init(params) for update in updates]
    average = jax.tree.map(np.asarray, params)
    count = trained_count(LEARNER, params, PRIVATE_STEP.contribution)
    scales = noise_scales(stacked([run]))
    for number, kind in enumerate(MIXED.tolist(), start=1):
        if kind == StepKind.PRIVATE:
            noise = rounded_noise(run.noise_key[None], scales, number, 1, count)[0, 0]
            gradient = private_mean_of(params, target, run, number, noise, data)
        else:
            gradient = plain_gradient_of(params, target, run, number, plain)
        which = 0 if recipe.shared_optimiser else kind
        # The rate is that of the kind, whosever moments are used.
        change, states[which] = updates[kind].update(gradient, states[which], params)
        left = max(0.0, 1 - (number - 1) / float(run.rates_end))
        change = jax.tree.map(lambda leaf, left=left: left * leaf, change)
        params = optax.apply_updates(params, change)
        if number % 3 == 0:
            target = jax.tree.map(lambda new, old: 0.4 * new + 0.6 * old, params, target)
        share = max(1 - AVERAGING, 1 / max(number - float(run.average_from), 1))
        average = jax.tree.map(
            lambda old, new, share=share: (1 - share) * old + share * np.asarray(new),
            average,
            params,
        )
    return {"params": params, "target": target, "average": average}


@pytest.mark.parametrize(
    ("optimiser", "shared", "rates_end"),
    [
        ("adam", False, math.inf),
        ("momentum", True, 7),
        ("sgd", False, len(MIXED)),
        (OWN_OPTIMISER, False, 9),
    ],
    ids=["adam", "momentum", "sgd", "one's own"],
)
def test_the_loop_does_what_a_plain_loop_with_optax_does(
    optimiser: str | Optimiser, shared: bool, rates_end: float, data: ExpertData, plain: Transition
) -> None:
    """Parameters, slow copy and average, over steps of both kinds; rates that fall or do not."""
    recipe = recipe_of(optimiser=optimiser, shared_optimiser=shared)
    run = run_of(0, rates_end=rates_end)
    ours = trained(recipe, [run], MIXED, data, plain)
    for name, wanted in by_hand(recipe, run, data, plain).items():
        nearly_the_same(jax.tree.map(lambda leaf: leaf[0], getattr(ours, name)), wanted)


def test_an_optimiser_is_one_of_ours_by_name_or_ones_own() -> None:
    assert optimiser_of("adam") is optimiser_of("adam")  # a recipe of it is the same program
    assert optimiser_of(OWN_OPTIMISER) is OWN_OPTIMISER
    with pytest.raises(QuorumError, match="choose one of adam, momentum, sgd"):
        optimiser_of("rmsprop")


@pytest.mark.parametrize("average_from", [0, 6, 11, 30])
def test_averaging_of_one_is_the_plain_mean_of_the_parameters_after_the_step_it_begins_at(
    average_from: int, data: ExpertData, plain: Transition
) -> None:
    """Where it begins at the end or beyond, that of the last parameters alone."""
    seen: list[Any] = []

    def after_chunk(state: TrainState, _: int) -> None:
        seen.append(kept(state).params)

    run = run_of(0, average_from=float(average_from))
    recipe = recipe_of(averaging=1.0)
    last = trained(recipe, [run], MIXED, data, plain, chunk=1, after_chunk=after_chunk)
    assert len(seen) == len(MIXED)
    averaged = seen[average_from:] or seen[-1:]
    mean = jax.tree.map(lambda *each: np.mean(np.asarray(each, np.float64), axis=0), *averaged)
    nearly_the_same(result_of(recipe, last), mean)


def test_what_comes_back_is_the_average_only_where_one_was_asked_for(
    data: ExpertData, plain: Transition
) -> None:
    after = trained(recipe_of(), [run_of(0)], MIXED, data, plain)
    assert result_of(recipe_of(), after) is after.average
    assert result_of(recipe_of(averaging=0.0), after) is after.params


def test_the_private_steps_that_are_taken_are_exactly_those_of_the_schedule(
    data: ExpertData, plain: Transition
) -> None:
    schedule = np.append(MIXED, [B, B]).astype(np.int8)  # the last chunk is not full
    after = trained(recipe_of(), [run_of(0)], schedule, data, plain)
    plain_moments, private_moments = after.optimisers
    assert plain_moments.count.tolist() == [(schedule == StepKind.PLAIN).sum()]
    assert private_moments.count.tolist() == [(schedule == StepKind.PRIVATE).sum()]
    assert after.step.tolist() == [14]


@pytest.fixture(scope="module", name="various")
def _various() -> list[Run]:
    """Runs that differ in everything that may differ."""
    return [
        run_of(0),
        run_of(1, learning_rate=3e-2, private_learning_rate=1e-4),
        run_of(2, step=replace(PRIVATE_STEP, noise_multiplier=5.0, clip_norm=0.01)),
        run_of(3, step=replace(PRIVATE_STEP, sampling_rate=0.9, expected_batch=1.0)),
        run_of(4, plain_part=(3, 9), rates_end=9.0),
    ]


SHORT = [A, B, B, A, *[NO] * 8]
MANY = [[B] * 11 + [A], [A] * 11 + [B]]
OWN = np.stack([SHORT, MIXED[::-1], *MANY, MIXED], axis=1).astype(np.int8)
# Who sits out each step: nobody, everybody, all but one. At one step somebody takes the other kind.
SITTING = ["", "03", "01234", "124", "0134", "1234", "0", "4", "12", "3", "2", "4"]
RESTS = np.array([[str(run) in row for run in range(5)] for row in SITTING])
RESTING = np.where(RESTS, NO, MIXED[:, None]).astype(np.int8)
RESTING[10, 1] = A


@pytest.mark.parametrize(
    "schedule", [MIXED, OWN, RESTING], ids=["one schedule", "own schedules", "some rest"]
)
def test_runs_of_one_program_are_what_each_would_be_alone(
    schedule: Schedule, various: list[Run], data: ExpertData, plain: Transition
) -> None:
    together = trained(recipe_of(), various, schedule, data, plain)
    for number, run in enumerate(various):
        own = schedule if schedule.ndim == 1 else schedule[:, number]
        alone = trained(recipe_of(), [run], own, data, plain)
        for name in ("params", "target", "average"):
            one, many = getattr(alone, name), getattr(together, name)
            nearly_the_same(jax.tree.map(lambda leaf, at=number: leaf[at : at + 1], many), one)


@pytest.mark.parametrize("kind", [A, B], ids=["released", "private"])
def test_a_run_that_sits_out_a_kind_of_step_reads_nothing_of_its_data(
    kind: StepKind, various: list[Run], data: ExpertData, plain: Transition
) -> None:
    """Though others read it in the same program. A run that sits out nothing would notice."""

    def ended(schedule: Schedule, data: ExpertData, plain: Transition) -> Any:
        params = trained(recipe_of(), various[:2], schedule, data, plain).params
        return [jax.tree.map(lambda leaf, at=run: leaf[at], params) for run in range(2)]

    read = data.transitions if kind == B else plain
    changed = read._replace(reward=1 + read.reward)
    others = (replace(data, transitions=changed), plain) if kind == B else (data, changed)
    resting = np.stack([MIXED, np.where(kind == MIXED, NO, MIXED)], axis=1).astype(np.int8)
    before, after = ended(resting, data, plain), ended(resting, *others)
    same_bits(after[1], before[1])
    with pytest.raises(AssertionError):
        same_bits(after[0], before[0])


def test_a_run_reads_its_own_part_of_the_shared_released_data_only(
    various: list[Run], data: ExpertData, plain: Transition
) -> None:
    outside = [*range(3), *range(9, 12)]
    other = plain._replace(reward=plain.reward.at[np.array(outside)].set(np.nan))
    same_bits(
        trained(recipe_of(), [various[4]], MIXED, data, other),
        trained(recipe_of(), [various[4]], MIXED, data, plain),
    )


def test_the_size_of_a_chunk_changes_no_bit(data: ExpertData, plain: Transition) -> None:
    """Nor does a last chunk that is padded, or a place where there is nothing to do."""
    gaps = np.array([A, NO, B, A, A, B, NO, B, B, A, B, A], np.int8)
    for schedule in (MIXED, gaps):
        same_bits(
            trained(recipe_of(), [run_of(0)], schedule, data, plain, chunk=5),
            trained(recipe_of(), [run_of(0)], schedule, data, plain, chunk=4),
        )


@pytest.mark.parametrize("stop", [4, 8])
@pytest.mark.parametrize(
    "schedule", [MIXED, OWN, RESTING], ids=["one schedule", "own schedules", "some rest"]
)
def test_a_resumed_run_ends_in_the_same_bits_however_often_it_is_resumed(
    stop: int, schedule: Schedule, various: list[Run], data: ExpertData, plain: Transition
) -> None:
    """Also where the first of the runs has nothing left to do: the others repeat no step."""
    saved: list[TrainState] = []

    def after_chunk(state: TrainState, done: int) -> None:
        if done == stop:
            saved.append(kept(state))

    runs = various if schedule.ndim == 2 else various[:1]
    whole = trained(recipe_of(), runs, schedule, data, plain, after_chunk=after_chunk)
    for _ in range(2):
        same_bits(trained(recipe_of(), runs, schedule, data, plain, start=saved[0]), whole)


@pytest.mark.parametrize("local", [False, True], ids=["gradients", "local steps"])
def test_chunks_of_private_steps_change_no_bit_and_chunks_of_experts_next_to_nothing(
    local: bool, data: ExpertData
) -> None:
    """In chunks of another size a contribution may round otherwise, by a unit of the lattice."""
    private = np.full(6, B, np.int8)
    step = PRIVATE_STEP
    if local:
        step = replace(step, contribution=Local(steps=2, batch_size=3, rate=0.1))

    def ended(step: PrivateStep, chunk: int) -> TrainState:
        recipe = recipe_of(private_shape=step.shape, optimiser="sgd")
        return trained(recipe, [run_of(0, step)], private, data, None, chunk=chunk)

    whole = ended(step, 6)
    same_bits(ended(step, 4), whole)
    unit = step.clip_norm / step.units / step.expected_batch
    other = ended(replace(step, chunk=16), 6)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=unit),
        other.params,
        whole.params,
    )


def test_a_stopped_run_stands_where_it_was_stopped_and_a_finished_one_goes_no_further(
    data: ExpertData, plain: Transition
) -> None:
    runs = [run_of(0)]
    stopped = trained(recipe_of(), runs, MIXED, data, plain, after_chunk=lambda _, done: done == 8)
    assert stopped.step.tolist() == [8]
    same_bits(stopped, trained(recipe_of(), runs, MIXED[:8], data, plain))
    same_bits(trained(recipe_of(), runs, MIXED[:8], data, plain, start=stopped), stopped)


def test_the_noise_of_a_step_depends_on_the_key_and_the_step_alone(
    data: ExpertData, plain: Transition
) -> None:
    """Nobody is ever drawn, so that plain gradient descent moves by the noise alone."""
    nobody = replace(PRIVATE_STEP, sampling_rate=2**-32, expected_batch=1.0)
    recipe = recipe_of(optimiser="sgd")

    def moves(run: Run, schedule: list[StepKind]) -> list[npt.NDArray[np.float32]]:
        """How far the steps after the second moved one layer."""
        kinds = np.array(schedule, np.int8)
        ends = [trained(recipe, [run], kinds[:count], data, plain) for count in (2, 3, 4)]
        places = [np.asarray(end.params["action_values"][0].weight[0]) for end in ends]
        return [after - before for before, after in pairwise(places)]

    run = run_of(0, step=nobody)
    third, fourth = moves(run, [A, B, B, B])
    _, fourth_alone = moves(run, [B, A, NO, B])
    np.testing.assert_allclose(fourth_alone, fourth, atol=1e-6)
    assert np.abs(third).max() > 1e-3
    assert np.abs(third - fourth).max() > 1e-3
    same_noise = moves(replace(run, public_key=run_of(9).public_key), [A, B, B, B])
    np.testing.assert_allclose(same_noise, [third, fourth], atol=1e-6)
    other_noise = moves(replace(run, noise_key=run_of(9).noise_key), [A, B, B, B])
    assert all(np.abs(other_noise - np.stack([third, fourth])).max(axis=(1, 2)) > 1e-3)


def test_first_parameters_depend_on_the_public_key_alone() -> None:
    runs = [run_of(0), replace(run_of(1), public_key=run_of(0).public_key), *map(run_of, (2, 3, 4))]
    first = begin(recipe_of(), stacked(runs), 3, 4).params["action_values"][0].weight
    np.testing.assert_array_equal(first[0], first[1])
    assert (first[0] != first[2]).any()
