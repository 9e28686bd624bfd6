"""What the private steps of a chunk will read, and their noise: made before they are taken."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from quorum_rl.pytree import pytree
from quorum_rl.training.data import Array, ChosenData, ExpertData
from quorum_rl.training.keys import keys_of, step_key
from quorum_rl.training.mapped import MappedData, numbers_read
from quorum_rl.training.mechanism import sum_over_drawn, trained_count, who_is_drawn
from quorum_rl.training.noise import rounded_noise
from quorum_rl.training.recipe import Recipe, Run, noise_scales
from quorum_rl.training.schedule import Kind, Schedule
from quorum_rl.training.spread import SpreadData

STEPS_AT_ONCE: Final = 250
MOST_NUMBERS: Final = 2**26  # of noise and of transitions, in a chunk

PrivateData = ExpertData | SpreadData | MappedData
# Runs share the data of all experts; but each has chosen its own.
OWN: Final[Any] = ChosenData(0, None, None)  # type: ignore[arg-type]


@pytree
class TrainState:
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


def most_at_once(
    recipe: Recipe, runs: Run, standing: TrainState, private: PrivateData | None
) -> int:
    """How many steps a chunk may have: what is made for it fits, and it can be saved in time.

    By declared numbers, wherever the data lie: after which steps a run is saved and watched is seen
    by others, and how many experts there are is not theirs to know.
    """
    shape = recipe.private_shape
    if private is None or shape is None:
        return STEPS_AT_ONCE
    numbers = len(runs.rates_end) * _noise_count(recipe, standing)
    numbers += numbers_read(shape, runs, _observation_size(private))
    return max(1, MOST_NUMBERS // max(numbers, 1))


def _observation_size(private: PrivateData) -> int:
    if isinstance(private, MappedData):
        return private.demonstrations.declared.observation_size
    whole = private.parts if isinstance(private, SpreadData) else private
    return int(whole.transitions.observation.shape[-1])


def _noise_count(recipe: Recipe, standing: TrainState) -> int:
    assert recipe.private_shape is not None  # checked before the loop
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), standing)
    return trained_count(recipe.learner, one.params, recipe.private_shape.contribution)


Coming = tuple[ExpertData | ChosenData | None, Any, Any]
"""What the private steps of a chunk read, their noise, and the sum over those read before."""


def coming(
    recipe: Recipe,
    runs: Run,
    standing: TrainState,
    schedule: Schedule,
    done: int,
    at_once: int,
    private: PrivateData | None,
) -> Coming:
    """For the chunk after the first `done` steps."""
    if private is None or done == len(schedule):
        return None, None, None
    count = _noise_count(recipe, standing)
    wanted = schedule[done : done + at_once] == Kind.PRIVATE
    noise: Any = np.zeros((at_once, len(runs.rates_end), count), np.int32)
    if wanted.any():
        noise = rounded_noise(runs.noise_key, noise_scales(runs), done + 1, at_once, count)
    if isinstance(private, SpreadData):
        return private.parts, np.asarray(noise), None
    if isinstance(private, MappedData):
        if wanted.ndim == 2:
            wanted = wanted.any(axis=1)
        return _from_file(recipe, runs, standing, private, wanted, done, at_once, noise)
    return private, noise, None


def _from_file(
    recipe: Recipe,
    runs: Run,
    standing: TrainState,
    private: MappedData,
    wanted: npt.NDArray[np.bool_],
    done: int,
    at_once: int,
    noise: Any,
) -> Coming:
    """What a chunk reads of a mapped log; of a step that is too large, the last part of it."""
    shape = recipe.private_shape
    assert shape is not None  # checked before the loop
    room = private.room(shape, runs, MOST_NUMBERS)
    if room is None:
        return private.chosen(shape, runs, wanted, done, at_once), noise, None
    before = None
    parts = private.parts(shape, runs, done, room)
    part = next(parts)
    for following in parts if wanted.any() else ():
        before = _summed(recipe)(standing, runs, part, before)
        part = following
    return part, noise, before


@lru_cache(maxsize=16)
def _summed(recipe: Recipe) -> Callable[..., Any]:
    """Of every run, the sum on the lattice over a part of a step's experts and those before."""

    def one(at: TrainState, run: Run, private: ChosenData, before: Any) -> Any:
        assert recipe.private_shape is not None  # checked before the loop
        keys = keys_of(step_key(run.noise_key, at.step + 1))
        drawn = who_is_drawn(private, keys.sampling, run.numbers.last_drawn)
        total = sum_over_drawn(
            recipe.learner, at.params, at.target, private, drawn, keys, run.numbers,
            recipe.private_shape,
        )  # fmt: skip
        return total if before is None else jax.tree.map(jnp.add, before, total)

    def every(standing: TrainState, runs: Run, private: ChosenData, before: Any) -> Any:
        now = replace(private, transitions=jax.tree.map(lambda leaf: leaf[0], private.transitions))
        return jax.vmap(one, (0, 0, OWN, 0))(standing, runs, now, before)

    return jax.jit(every)
