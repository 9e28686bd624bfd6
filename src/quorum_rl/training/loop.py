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
from quorum_rl.training.chunks import OWN, STEPS_AT_ONCE, chunk_inputs, most_at_once
from quorum_rl.training.contributions import mean_gradient
from quorum_rl.training.data import ChosenData, ExpertData, plain_batch
from quorum_rl.training.mechanism import private_mean
from quorum_rl.training.randomness import Array, key_of, keys_of, step_key
from quorum_rl.training.recipe import Recipe, Run, Schedule, StepKind, TrainState
from quorum_rl.training.sources import PrivateData, SpreadData, everywhere
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

    def of_run(public_key: Array) -> TrainState:
        key = jax.random.fold_in(key_of(public_key), 0)
        params = recipe.learner.init(key, observation_size, action_count)
        return TrainState(
            params=params,
            target=recipe.learner.init_target(params),
            optimisers=(optimiser.init(params), optimiser.init(params)),
            average=params,
            step=jnp.zeros((), jnp.int32),
        )

    return jax.jit(jax.vmap(of_run))


def train(
    recipe: Recipe,
    runs: Run,
    state: TrainState,
    schedule: Schedule,
    *,
    private: PrivateData | None,
    plain: Transition | None,
    after_chunk: Callable[[TrainState, int], bool | None] | None = None,
    steps_at_once: int = STEPS_AT_ONCE,
) -> TrainState:
    """Take the steps of `schedule` that `state` has not taken yet.

    A schedule is `(steps,)`, shared by all runs, or `(steps, runs)`. With the latter every kind
    that some run takes at a step is computed for all, and what a run does not take is dropped.

    `after_chunk` sees the state of the runs and how many steps are done; it may save that, evaluate
    it, or stop the training by returning True. The next chunk takes its arrays over: copy what you
    keep. So it does with `state`.

    Where private data lie (on a device, in a mapped file) changes no bit (tests/test_spread.py); on
    several devices chunks of experts may be smaller, which rounds otherwise. On many devices of
    several processes, all processes call this, and all train as the first one's runs, state,
    schedule and released data say: its noise keys count, and no others. It alone can stop them.

    Guarantee: if the ledger was charged for the schedule's private steps, and the noise keys are
    fresh and secret, every state is private at that cost as far as `private` is concerned.
    Steps already taken are not taken again, so going on repeats no noise.

    Raises:
        QuorumError: if a kind of step has no data, or parameters stop being numbers.
    """
    _check_data(recipe, schedule, private, plain)
    # Data that no step may read does not enter the program at all.
    private = private if (schedule == StepKind.PRIVATE).any() else None
    plain = plain if (schedule == StepKind.PLAIN).any() else None
    is_spread = isinstance(private, SpreadData)
    if is_spread:
        runs, state, schedule, plain = broadcast((runs, state, schedule, plain))
        state = everywhere(state)  # as it comes back, or the program is compiled again
    program = _compiled(recipe, AXIS if is_spread else None)
    most = most_at_once(recipe, runs, state, private)
    at_once = min(steps_at_once, most, len(schedule))
    done = int(np.asarray(state.step)[0])
    inputs = chunk_inputs(recipe, runs, state, schedule, done, at_once, private)
    while done < len(schedule):
        chunk = schedule[done : done + at_once]
        filled = np.full((at_once, *schedule.shape[1:]), StepKind.NOTHING, np.int8)
        filled[: len(chunk)] = chunk
        state = program(state, runs, filled, *inputs, plain)
        done += len(chunk)
        # While the devices are at work: what their next steps will read.
        inputs = chunk_inputs(recipe, runs, state, schedule, done, at_once, private)
        # Not counted within: padding, and what one of the runs skips, must not shift the others.
        state = replace(state, step=jnp.full_like(state.step, done))
        if not _finite(state.params):
            raise QuorumError(
                f"the parameters stopped being numbers before step {done}: lower the learning rate "
                "or the clip norm."
            )
        stop = after_chunk is not None and bool(after_chunk(_here(state), done))
        if broadcast(np.array(stop)) if is_spread else stop:
            break
    return _here(state)


def _here(state: TrainState) -> TrainState:
    """The same as this process has it: it can use that without the others."""
    if is_single_process():
        return state

    def own(leaf: Any) -> Any:  # no step was left to take if it is still as it was sent
        return leaf.addressable_data(0) if isinstance(leaf, jax.Array) else leaf

    made: TrainState = jax.tree.map(own, state)
    return made


def result_of(recipe: Recipe, state: TrainState) -> Any:
    """What training returns: the average of the parameters if there is one, else the last ones."""
    return state.average if recipe.averaging else state.params


@lru_cache(maxsize=16)
def _compiled(recipe: Recipe, axis: str | None) -> Callable[..., TrainState]:
    """A chunk of steps of many runs, as one program; on all devices, if `axis` is theirs."""

    def chunk(
        state: TrainState,
        runs: Run,
        kinds: Array,
        private: ExpertData | ChosenData | None,
        noise: Array | None,
        earlier: Any,
        plain: Transition | None,
    ) -> TrainState:
        def step(
            state: TrainState, now: tuple[Array, Array | None, Transition | None]
        ) -> tuple[TrainState, None]:
            kind, noise_now, chosen_now = now
            data = private
            if isinstance(private, ChosenData):
                assert chosen_now is not None
                data = replace(private, transitions=chosen_now)
            ways: tuple[Callable[[], TrainState], ...] = (
                lambda: replace(state, step=state.step + 1),
                lambda: _plain_step(recipe, state, runs, plain),
                lambda: _private_step(recipe, state, runs, data, noise_now, earlier, axis),
            )
            nothing, without_noise, with_noise = ways
            if kind.ndim == 0:  # all runs share the kind
                return jax.lax.switch(kind + 1, ways), None
            each = (
                nothing(),
                jax.lax.cond((kind == StepKind.PLAIN).any(), without_noise, nothing),
                jax.lax.cond((kind == StepKind.PRIVATE).any(), with_noise, nothing),
            )

            def chosen(nothing: Array, without_noise: Array, with_noise: Array) -> Array:
                which = kind.reshape(-1, *[1] * (nothing.ndim - 1))
                made: Array = jnp.where(which == StepKind.PLAIN, without_noise, nothing)
                return jnp.where(which == StepKind.PRIVATE, with_noise, made)

            return jax.tree.map(chosen, *each), None

        of_steps = private.transitions if isinstance(private, ChosenData) else None
        last, _ = jax.lax.scan(step, state, (kinds.astype(jnp.int32), noise, of_steps))
        return last

    if axis is not None:
        return on_every_device(chunk, split=3, donate=True)
    return jax.jit(chunk, donate_argnums=0)


def _private_step(
    recipe: Recipe,
    state: TrainState,
    runs: Run,
    private: ExpertData | ChosenData | None,
    noise: Array | None,
    earlier: Any,
    axis: str | None,
) -> TrainState:
    """One private step of every run; nothing without data, where no step is private."""
    if private is None or noise is None:
        return state

    def of_run(
        state: TrainState, run: Run, data: ExpertData | ChosenData, noise: Array, earlier: Any
    ) -> TrainState:
        assert recipe.private_shape is not None  # checked before the loop
        gradient = private_mean(
            recipe.learner,
            state.params,
            state.target,
            data,
            keys_of(step_key(run.noise_key, state.step + 1)),
            noise,
            run.numbers,
            recipe.private_shape,
            axis,
            earlier,
        )
        return _server_step(recipe, state, run, gradient, is_private=True)

    own = OWN if isinstance(private, ChosenData) else None
    return jax.vmap(of_run, (0, 0, own, 0, 0))(state, runs, private, noise, earlier)


def _plain_step(
    recipe: Recipe, state: TrainState, runs: Run, plain: Transition | None
) -> TrainState:
    """One step without noise of every run; nothing without data, where every step is private.

    Beside private steps, one that would leave parameters without numbers is not taken: a released
    prefix of states beyond measure is one expert's, and must not end what is paid for.
    """
    if plain is None:
        return state

    def of_run(state: TrainState, run: Run) -> TrainState:
        chosen, own = jax.random.split(jax.random.fold_in(key_of(run.public_key), state.step + 1))
        first, end = run.plain_part
        part = (first, jnp.where(end == 0, len(plain.reward), end))
        batch = plain_batch(plain, chosen, recipe.batch_size, part)
        gradient = mean_gradient(recipe.learner, state.params, state.target, batch, own)
        made = _server_step(recipe, state, run, gradient, is_private=False)
        if recipe.private_shape is None:
            return made
        sound = jnp.array([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(made.params)]).all()
        stays = replace(state, step=made.step)
        taken: TrainState = jax.tree.map(lambda new, old: jnp.where(sound, new, old), made, stays)
        return taken

    return jax.vmap(of_run)(state, runs)


def _server_step(
    recipe: Recipe, state: TrainState, run: Run, gradient: Any, *, is_private: bool
) -> TrainState:
    """The state of a run after a step in the direction of a gradient."""
    which = 1 if is_private and not recipe.shared_optimiser else 0
    rate = run.private_learning_rate if is_private else run.learning_rate
    rate *= jnp.clip(1 - state.step / run.rates_end, 0)
    optimisers, number = list(state.optimisers), state.step + 1
    change, optimisers[which] = recipe.optimiser.transformation.update(
        gradient, optimisers[which], state.params
    )
    params = jax.tree.map(lambda old, by: old - rate * by, state.params, change)
    # The plain mean of the first parameters, and later one that forgets.
    weight = jnp.maximum(1 - recipe.averaging, 1 / jnp.maximum(number - run.average_from, 1))
    return TrainState(
        params=params,
        target=recipe.learner.update_target(params, state.target, number),
        optimisers=(optimisers[0], optimisers[1]),
        average=jax.tree.map(lambda old, new: old + weight * (new - old), state.average, params),
        step=number,
    )


def _finite(tree: Any) -> bool:
    return bool(_all_finite(tree))


@jax.jit
def _all_finite(tree: Any) -> Array:
    return jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(tree)]).all()


def _check_data(
    recipe: Recipe, schedule: Schedule, private: PrivateData | None, plain: Transition | None
) -> None:
    if (schedule == StepKind.PLAIN).any() and plain is None:
        raise QuorumError(
            "there are steps without noise but nothing was released for them: make every step "
            "private, or give the release more of the budget."
        )
    if not (schedule == StepKind.PRIVATE).any():
        return
    if private is None or recipe.private_shape is None:
        raise QuorumError("there are private steps but no private data or no step for them.")
    if not is_single_process() and not isinstance(private, SpreadData):
        raise QuorumError(
            "there are several processes, and noise of its own in each would be as many trainings: "
            "spread the private data over them (spread_data)."
        )
