"""The training loop: against a plain one in Python, many runs at once, in any chunks, resumed."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import jax
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

from quorum_rl.training.expert_data import ExpertData
from quorum_rl.training.loop import Standing, begin, result_of
from quorum_rl.training.mechanism import private_gradient
from quorum_rl.training.plain import plain_batch, plain_gradient
from quorum_rl.training.recipe import Optimiser, Recipe, Run
from quorum_rl.training.schedule import Kind, Schedule
from quorum_rl.types import Transition


@pytest.fixture(scope="module", name="plain")
def _plain(transitions: Callable[..., Transition]) -> Transition:
    return transitions(8, 12)


@jax.jit
def private_gradient_of(params: Any, target: Any, run: Run, number: int, data: ExpertData) -> Any:
    key = jax.random.wrap_key_data(run.noise_key, impl="threefry2x32")
    key = jax.random.fold_in(key, number)
    return private_gradient(LEARNER, params, target, data, key, run.numbers, PRIVATE_STEP.shape)


@jax.jit
def plain_gradient_of(params: Any, target: Any, run: Run, number: int, plain: Transition) -> Any:
    key = jax.random.wrap_key_data(run.public_key, impl="threefry2x32")
    chosen, own = jax.random.split(jax.random.fold_in(key, number))
    batch = plain_batch(plain, chosen, 5)
    return plain_gradient(LEARNER, params, target, batch, jax.random.split(own, 5))


OPTIMISERS: dict[Optimiser, Any] = {
    "adam": optax.adam,
    "momentum": partial(optax.sgd, momentum=0.9),
    "sgd": optax.sgd,
}


def by_hand(recipe: Recipe, run: Run, data: ExpertData, plain: Transition) -> dict[str, Any]:
    """One run, step by step in Python, with optax's own optimisers and a NumPy average."""
    made = OPTIMISERS[recipe.optimiser]
    updates = [made(float(run.learning_rate)), made(float(run.private_learning_rate))]
    first = begin(recipe, stacked([run]), 3, 4)
    params, target = jax.tree.map(lambda leaf: leaf[0], (first.params, first.target))
    states = [update.init(params) for update in updates]
    average = jax.tree.map(np.asarray, params)
    for number, kind in enumerate(MIXED.tolist(), start=1):
        if kind == Kind.PRIVATE:
            gradient = private_gradient_of(params, target, run, number, data)
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
        average = jax.tree.map(
            lambda old, new: AVERAGING * old + (1 - AVERAGING) * np.asarray(new), average, params
        )
    return {"params": params, "target": target, "average": average}


@pytest.mark.parametrize(
    ("optimiser", "shared", "rates_end"),
    [("adam", False, math.inf), ("momentum", True, 7), ("sgd", False, len(MIXED))],
)
def test_the_loop_does_what_a_plain_loop_with_optax_does(
    optimiser: Optimiser, shared: bool, rates_end: float, data: ExpertData, plain: Transition
) -> None:
    """Parameters, slow copy and average, over steps of both kinds; rates that fall or do not."""
    recipe = recipe_of(optimiser=optimiser, shared_optimiser=shared)
    run = run_of(0, rates_end=rates_end)
    ours = trained(recipe, [run], MIXED, data, plain)
    for name, wanted in by_hand(recipe, run, data, plain).items():
        nearly_the_same(jax.tree.map(lambda leaf: leaf[0], getattr(ours, name)), wanted)


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
    assert plain_moments.count.tolist() == [(schedule == Kind.PLAIN).sum()]
    assert private_moments.count.tolist() == [(schedule == Kind.PRIVATE).sum()]
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
    kind: Kind, various: list[Run], data: ExpertData, plain: Transition
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
    saved: list[Standing] = []

    def after_chunk(standing: Standing, done: int) -> None:
        if done == stop:
            saved.append(kept(standing))

    runs = various if schedule.ndim == 2 else various[:1]
    whole = trained(recipe_of(), runs, schedule, data, plain, after_chunk=after_chunk)
    for _ in range(2):
        same_bits(trained(recipe_of(), runs, schedule, data, plain, start=saved[0]), whole)


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

    def moves(run: Run, schedule: list[Kind]) -> list[npt.NDArray[np.float32]]:
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
