"""The one training loop: steps on released data without noise, private steps with it.

Selective training mixes both, expert-level DP-SGD has only private steps, and the non-private upper
bound only plain ones, on all the data. Many runs (seeds, learning rates, noise multipliers, clip
norms) are one program. The loop is cut into chunks so that it can be watched, stopped and resumed:
every step's randomness follows from the run's keys and the step's number alone.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from quorum_rl.errors import QuorumError
from quorum_rl.pytree import pytree
from quorum_rl.training.expert_data import Array, ExpertData
from quorum_rl.training.mechanism import private_gradient
from quorum_rl.training.plain import plain_batch, plain_gradient
from quorum_rl.training.recipe import Recipe, Run
from quorum_rl.training.schedule import Kind, Schedule
from quorum_rl.types import Transition

STEPS_AT_ONCE: Final = 250


@pytree
class Standing:
    """Where some runs stand; every leaf has a first axis of runs.

    `optimisers` has the state of the one for plain and of the one for private steps. `step` is how
    far into the schedule the runs are, places with nothing to do included.

    Parameters that private steps have touched are as private as the ledger says they are.
    """

    params: Any
    target: Any
    optimisers: tuple[Any, Any]
    average: Any
    step: Array


def begin(recipe: Recipe, runs: Run, observation_size: int, action_count: int) -> Standing:
    """Runs before their first step. `runs` are stacked."""
    standing: Standing = _beginning(recipe, observation_size, action_count)(runs)
    return standing


@lru_cache(maxsize=16)
def _beginning(recipe: Recipe, observation_size: int, action_count: int) -> Callable[..., Standing]:
    def one(run: Run) -> Standing:
        key = jax.random.fold_in(_key(run.public_key), 0)
        params = recipe.learner.init(key, observation_size, action_count)
        return Standing(
            params=params,
            target=recipe.learner.init_target(params),
            optimisers=(recipe.update().init(params), recipe.update().init(params)),
            average=params,
            step=jnp.zeros((), jnp.int32),
        )

    return jax.jit(jax.vmap(one))


def train(
    recipe: Recipe,
    runs: Run,
    standing: Standing,
    schedule: Schedule,
    *,
    private: ExpertData | None,
    plain: Transition | None,
    after_chunk: Callable[[Standing, int], bool | None] | None = None,
    steps_at_once: int = STEPS_AT_ONCE,
) -> Standing:
    """Take the steps of `schedule` that `standing` has not taken yet.

    A schedule is `(steps,)`, shared by all runs, or `(steps, runs)`; the latter computes both kinds
    of step for every run, and keeps one.

    `after_chunk` sees where the runs stand and how many steps are done; it may save that, evaluate
    it, or stop the training by returning True. The next chunk takes its arrays over: copy what you
    keep. So it does with `standing`.

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
    done = int(np.asarray(standing.step)[0])
    while done < len(schedule):
        chunk = schedule[done : done + steps_at_once]
        filled = np.full((steps_at_once, *schedule.shape[1:]), Kind.NOTHING, np.int8)
        filled[: len(chunk)] = chunk
        standing = _compiled(recipe)(standing, runs, filled, private, plain)
        done += len(chunk)
        # Not counted within: padding, and what one of the runs skips, must not shift the others.
        standing = replace(standing, step=jnp.full_like(standing.step, done))
        if not _finite(standing.params):
            raise QuorumError(
                f"the parameters stopped being numbers before step {done}: lower the learning rate "
                "or the clip norm."
            )
        if after_chunk is not None and after_chunk(standing, done):
            break
    return standing


def result_of(recipe: Recipe, standing: Standing) -> Any:
    """What training returns: the average of the parameters if there is one, else the last ones."""
    return standing.average if recipe.averaging else standing.params


@lru_cache(maxsize=16)
def _compiled(recipe: Recipe) -> Callable[..., Standing]:
    """A chunk of steps of many runs, as one program."""

    def chunk(
        standing: Standing,
        runs: Run,
        kinds: Array,
        private: ExpertData | None,
        plain: Transition | None,
    ) -> Standing:
        def step(standing: Standing, kind: Array) -> tuple[Standing, None]:
            ways: tuple[Callable[[], Standing], ...] = (
                lambda: replace(standing, step=standing.step + 1),
                lambda: _stepped(recipe, standing, runs, None, plain),
                lambda: _stepped(recipe, standing, runs, private, None),
            )
            if kind.ndim == 0:  # all runs share the kind: only that way is computed
                return jax.lax.switch(kind + 1, ways), None
            nothing, without_noise, with_noise = (way() for way in ways)

            def chosen(*each: Array) -> Array:
                which = kind.reshape(-1, *[1] * (each[0].ndim - 1))
                made: Array = jnp.where(which == Kind.PLAIN, each[1], each[0])
                return jnp.where(which == Kind.PRIVATE, each[2], made)

            return jax.tree.map(chosen, nothing, without_noise, with_noise), None

        last, _ = jax.lax.scan(step, standing, kinds.astype(jnp.int32))
        return last

    return jax.jit(chunk, donate_argnums=0)


def _stepped(
    recipe: Recipe,
    standing: Standing,
    runs: Run,
    private: ExpertData | None,
    plain: Transition | None,
) -> Standing:
    """One step of every run, on the data that it is given; nothing without data."""
    if private is None and plain is None:
        return standing
    return jax.vmap(lambda at, run: _one_step(recipe, at, run, private, plain))(standing, runs)


def _one_step(
    recipe: Recipe,
    standing: Standing,
    run: Run,
    private: ExpertData | None,
    plain: Transition | None,
) -> Standing:
    learner, number = recipe.learner, standing.step + 1
    params, target = standing.params, standing.target
    if private is not None:
        assert recipe.private_shape is not None  # checked before the loop
        key = jax.random.fold_in(_key(run.noise_key), number)
        gradient = private_gradient(
            learner, params, target, private, key, run.numbers, recipe.private_shape
        )
    else:
        assert plain is not None
        chosen, own = jax.random.split(jax.random.fold_in(_key(run.public_key), number))
        first, end = run.plain_part
        part = (first, jnp.where(end == 0, len(plain.reward), end))
        batch = plain_batch(plain, chosen, recipe.batch_size, part)
        keys = jax.random.split(own, recipe.batch_size)
        gradient = plain_gradient(learner, params, target, batch, keys)
    which = 0 if recipe.shared_optimiser or private is None else 1
    rate = run.learning_rate if private is None else run.private_learning_rate
    rate *= jnp.clip(1 - standing.step / run.rates_end, 0)
    optimisers = list(standing.optimisers)
    change, optimisers[which] = recipe.update().update(gradient, optimisers[which], params)
    params = jax.tree.map(lambda old, by: old - rate * by, params, change)
    return Standing(
        params=params,
        target=learner.update_target(params, target, number),
        optimisers=(optimisers[0], optimisers[1]),
        average=_averaged(recipe.averaging, standing.average, params),
        step=number,
    )


def _averaged(decay: float, average: Any, params: Any) -> Any:
    return jax.tree.map(lambda old, new: decay * old + (1 - decay) * new, average, params)


def _key(words: Array) -> Array:
    key: Array = jax.random.wrap_key_data(words, impl="threefry2x32")
    return key


def _finite(tree: Any) -> bool:
    return all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(tree))


def _check_data(
    recipe: Recipe, schedule: Schedule, private: ExpertData | None, plain: Transition | None
) -> None:
    if (schedule == Kind.PRIVATE).any() and (private is None or recipe.private_shape is None):
        raise QuorumError("there are private steps but no private data or no step for them.")
    if (schedule == Kind.PLAIN).any() and plain is None:
        raise QuorumError(
            "there are steps without noise but nothing was released for them: make every step "
            "private, or give the release more of the budget."
        )
