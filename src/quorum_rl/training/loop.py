"""The one training loop: steps on released data without noise, private steps with it.

Selective training mixes both, expert-level DP-SGD has only private steps, and the non-private upper
bound only plain ones, on all the data. Many runs (seeds, learning rates, noise multipliers, clip
norms) are one program. The loop is cut into chunks so that it can be watched, stopped and resumed:
every step's randomness follows from the run's keys and the step's number alone.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from quorum_rl.distributed import AXIS, broadcast, is_single_process, on_every_device
from quorum_rl.errors import QuorumError
from quorum_rl.training.coming import (
    OWN,
    STEPS_AT_ONCE,
    PrivateData,
    TrainState,
    coming,
    most_at_once,
)
from quorum_rl.training.contributions import mean_gradient
from quorum_rl.training.data import Array, ChosenData, ExpertData, plain_batch
from quorum_rl.training.keys import key_of, keys_of, step_key
from quorum_rl.training.mechanism import (
    private_mean,
)
from quorum_rl.training.recipe import Recipe, Run
from quorum_rl.training.schedule import Kind, Schedule
from quorum_rl.training.spread import SpreadData, everywhere
from quorum_rl.types import Transition


def begin(recipe: Recipe, runs: Run, observation_size: int, action_count: int) -> TrainState:
    """Runs before their first step. `runs` are stacked."""
    # Recipes that differ in how they go on share the program of their beginning.
    alike = Recipe(learner=recipe.learner, private_shape=None, optimiser=recipe.optimiser)
    begun: TrainState = _beginning(alike, observation_size, action_count)(runs.public_key)
    return begun


@lru_cache(maxsize=16)
def _beginning(
    recipe: Recipe, observation_size: int, action_count: int
) -> Callable[..., TrainState]:
    optimiser = recipe.optimiser.transformation

    def one(public_key: Array) -> TrainState:
        key = jax.random.fold_in(key_of(public_key), 0)
        params = recipe.learner.init(key, observation_size, action_count)
        return TrainState(
            params=params,
            target=recipe.learner.init_target(params),
            optimisers=(optimiser.init(params), optimiser.init(params)),
            average=params,
            step=jnp.zeros((), jnp.int32),
        )

    return jax.jit(jax.vmap(one))


def train(
    recipe: Recipe,
    runs: Run,
    standing: TrainState,
    schedule: Schedule,
    *,
    private: PrivateData | None,
    plain: Transition | None,
    after_chunk: Callable[[TrainState, int], bool | None] | None = None,
    steps_at_once: int = STEPS_AT_ONCE,
) -> TrainState:
    """Take the steps of `schedule` that `standing` has not taken yet.

    A schedule is `(steps,)`, shared by all runs, or `(steps, runs)`. With the latter every kind
    that some run takes at a step is computed for all, and what a run does not take is dropped.

    `after_chunk` sees where the runs stand and how many steps are done; it may save that, evaluate
    it, or stop the training by returning True. The next chunk takes its arrays over: copy what you
    keep. So it does with `standing`.

    Where private data lie (on a device, in a mapped file) changes no bit (tests/test_spread.py); on
    several devices chunks of experts may be smaller, which rounds otherwise. On many devices of
    several processes, all processes call this, and all train as the first one's runs, standing,
    schedule and released data say: its noise keys count, and no others. It alone can stop them.

    Guarantee: if the ledger was charged for the schedule's private steps, and the noise keys are
    fresh and secret, every standing is private at that cost as far as `private` is concerned.
    Steps already taken are not taken again, so going on repeats no noise.

    Raises:
        QuorumError: if a kind of step has no data, or parameters stop being numbers.
    """
    _check_data(recipe, schedule, private, plain)
    # Data that no step may read does not enter the program at all.
    private = private if (schedule == Kind.PRIVATE).any() else None
    plain = plain if (schedule == Kind.PLAIN).any() else None
    if isinstance(private, SpreadData):
        runs, standing, schedule, plain = broadcast((runs, standing, schedule, plain))
        standing = everywhere(standing)  # as it comes back, or the program is compiled again
    program = _compiled(recipe, AXIS if isinstance(private, SpreadData) else None)
    most = most_at_once(recipe, runs, standing, private)
    at_once = min(steps_at_once, most, len(schedule))
    done = int(np.asarray(standing.step)[0])
    read = coming(recipe, runs, standing, schedule, done, at_once, private)
    while done < len(schedule):
        chunk = schedule[done : done + at_once]
        filled = np.full((at_once, *schedule.shape[1:]), Kind.NOTHING, np.int8)
        filled[: len(chunk)] = chunk
        standing = program(standing, runs, filled, *read, plain)
        done += len(chunk)
        # While the devices are at work: what their next steps will read.
        read = coming(recipe, runs, standing, schedule, done, at_once, private)
        # Not counted within: padding, and what one of the runs skips, must not shift the others.
        standing = replace(standing, step=jnp.full_like(standing.step, done))
        if not _finite(standing.params):
            raise QuorumError(
                f"the parameters stopped being numbers before step {done}: lower the learning rate "
                "or the clip norm."
            )
        stop = after_chunk is not None and bool(after_chunk(_here(standing), done))
        if broadcast(np.array(stop)) if isinstance(private, SpreadData) else stop:
            break
    return _here(standing)


def _here(standing: TrainState) -> TrainState:
    """The same as this process has it: it can use that without the others."""
    if is_single_process():
        return standing

    def own(leaf: Any) -> Any:  # no step was left to take if it is still as it was sent
        return leaf.addressable_data(0) if isinstance(leaf, jax.Array) else leaf

    made: TrainState = jax.tree.map(own, standing)
    return made


def result_of(recipe: Recipe, standing: TrainState) -> Any:
    """What training returns: the average of the parameters if there is one, else the last ones."""
    return standing.average if recipe.averaging else standing.params


@lru_cache(maxsize=16)
def _compiled(recipe: Recipe, axis: str | None) -> Callable[..., TrainState]:
    """A chunk of steps of many runs, as one program; on all devices, if `axis` is theirs."""

    def chunk(
        standing: TrainState,
        runs: Run,
        kinds: Array,
        private: ExpertData | ChosenData | None,
        noise: Array | None,
        before: Any,
        plain: Transition | None,
    ) -> TrainState:
        def step(
            standing: TrainState, now: tuple[Array, Array | None, Transition | None]
        ) -> tuple[TrainState, None]:
            kind, noise_now, chosen_now = now
            data = private
            if isinstance(private, ChosenData):
                assert chosen_now is not None
                data = replace(private, transitions=chosen_now)
            ways: tuple[Callable[[], TrainState], ...] = (
                lambda: replace(standing, step=standing.step + 1),
                lambda: _stepped(recipe, standing, runs, None, None, None, plain, axis),
                lambda: _stepped(recipe, standing, runs, data, noise_now, before, None, axis),
            )
            nothing, without_noise, with_noise = ways
            if kind.ndim == 0:  # all runs share the kind
                return jax.lax.switch(kind + 1, ways), None
            each = (
                nothing(),
                jax.lax.cond((kind == Kind.PLAIN).any(), without_noise, nothing),
                jax.lax.cond((kind == Kind.PRIVATE).any(), with_noise, nothing),
            )

            def chosen(nothing: Array, without_noise: Array, with_noise: Array) -> Array:
                which = kind.reshape(-1, *[1] * (nothing.ndim - 1))
                made: Array = jnp.where(which == Kind.PLAIN, without_noise, nothing)
                return jnp.where(which == Kind.PRIVATE, with_noise, made)

            return jax.tree.map(chosen, *each), None

        of_steps = private.transitions if isinstance(private, ChosenData) else None
        last, _ = jax.lax.scan(step, standing, (kinds.astype(jnp.int32), noise, of_steps))
        return last

    if axis is not None:
        return on_every_device(chunk, split=3, donate=True)
    return jax.jit(chunk, donate_argnums=0)


def _stepped(
    recipe: Recipe,
    standing: TrainState,
    runs: Run,
    private: ExpertData | ChosenData | None,
    noise: Array | None,
    before: Any,
    plain: Transition | None,
    axis: str | None,
) -> TrainState:
    """One step of every run, on the data that it is given; nothing without data."""
    if private is None and plain is None:
        return standing
    own = OWN if isinstance(private, ChosenData) else None

    def one(at: TrainState, run: Run, private: Any, noise: Array | None, before: Any) -> TrainState:
        if private is not None:
            gradient = _private_mean(recipe, at, run, private, noise, before, axis)
        else:
            gradient = _plain_gradient(recipe, at, run, plain)
        return _after(recipe, at, run, gradient, is_private=private is not None)

    return jax.vmap(one, (0, 0, own, 0, 0))(standing, runs, private, noise, before)


def _private_mean(
    recipe: Recipe,
    at: TrainState,
    run: Run,
    private: ExpertData | ChosenData,
    noise: Array | None,
    before: Any,
    axis: str | None,
) -> Any:
    assert recipe.private_shape is not None  # checked before the loop
    assert noise is not None  # made with the data
    return private_mean(
        recipe.learner,
        at.params,
        at.target,
        private,
        keys_of(step_key(run.noise_key, at.step + 1)),
        noise,
        run.numbers,
        recipe.private_shape,
        axis,
        before,
    )


def _plain_gradient(recipe: Recipe, at: TrainState, run: Run, plain: Transition | None) -> Any:
    assert plain is not None  # checked before the loop
    chosen, own = jax.random.split(jax.random.fold_in(key_of(run.public_key), at.step + 1))
    first, end = run.plain_part
    part = (first, jnp.where(end == 0, len(plain.reward), end))
    batch = plain_batch(plain, chosen, recipe.batch_size, part)
    return mean_gradient(recipe.learner, at.params, at.target, batch, own)


def _after(
    recipe: Recipe, at: TrainState, run: Run, gradient: Any, *, is_private: bool
) -> TrainState:
    """Where a run stands after a step in the direction of a gradient."""
    which = 1 if is_private and not recipe.shared_optimiser else 0
    rate = run.private_learning_rate if is_private else run.learning_rate
    rate *= jnp.clip(1 - at.step / run.rates_end, 0)
    optimisers, number = list(at.optimisers), at.step + 1
    change, optimisers[which] = recipe.optimiser.transformation.update(
        gradient, optimisers[which], at.params
    )
    params = jax.tree.map(lambda old, by: old - rate * by, at.params, change)
    # The plain mean of the first parameters, and later one that forgets.
    weight = jnp.maximum(1 - recipe.averaging, 1 / jnp.maximum(number - run.average_from, 1))
    return TrainState(
        params=params,
        target=recipe.learner.update_target(params, at.target, number),
        optimisers=(optimisers[0], optimisers[1]),
        average=jax.tree.map(lambda old, new: old + weight * (new - old), at.average, params),
        step=number,
    )


def _finite(tree: Any) -> bool:
    return all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(tree))


def _check_data(
    recipe: Recipe, schedule: Schedule, private: PrivateData | None, plain: Transition | None
) -> None:
    if (schedule == Kind.PRIVATE).any() and (private is None or recipe.private_shape is None):
        raise QuorumError("there are private steps but no private data or no step for them.")
    if (
        (schedule == Kind.PRIVATE).any()
        and not is_single_process()
        and not isinstance(private, SpreadData)
    ):
        raise QuorumError(
            "there are several processes, and noise of its own in each would be as many trainings: "
            "spread the private data over them (spread_data)."
        )
    if (schedule == Kind.PLAIN).any() and plain is None:
        raise QuorumError(
            "there are steps without noise but nothing was released for them: make every step "
            "private, or give the release more of the budget."
        )
