"""What a chunk of steps needs, made before the chunk runs: the data it reads and its noise."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from quorum_rl.training.data import ChosenData, ExpertData, nobody
from quorum_rl.training.mapped import MappedData, numbers_read
from quorum_rl.training.mechanism import StepShape, sum_over_drawn, trained_count, who_is_drawn
from quorum_rl.training.noise import rounded_noise
from quorum_rl.training.part import SummedElsewhere, asked_of_step
from quorum_rl.training.randomness import keys_of, step_key
from quorum_rl.training.recipe import Recipe, Run, Schedule, StepKind, TrainState, noise_scales
from quorum_rl.training.sources import PrivateData, SpreadData

STEPS_AT_ONCE: Final = 250
MOST_NUMBERS: Final = 2**26  # of noise and of transitions, in a chunk

# Runs share the data of all experts; but each has chosen its own.
OWN: Final[Any] = ChosenData(0, None, None)  # type: ignore[arg-type]


class ChunkInputs(NamedTuple):
    """What the private steps of a chunk read, and their noise. SENSITIVE.

    `earlier` is the sum over drawn experts who were read before, where a step is read in parts.
    """

    data: ExpertData | ChosenData | None = None
    noise: Any = None
    earlier: Any = None


def most_at_once(recipe: Recipe, runs: Run, state: TrainState, private: PrivateData | None) -> int:
    """How many steps a chunk may have: what is made for it fits, and it can be saved in time.

    By declared numbers, wherever the data lie: after which steps a run is saved and watched is seen
    by others, and how many experts there are is not theirs to know.
    """
    if private is None or recipe.private_shape is None:
        return STEPS_AT_ONCE
    if isinstance(private, SummedElsewhere):
        return 1  # for the next sum depends on what this one made
    numbers = len(runs.rates_end) * _noise_count(recipe, state)
    numbers += numbers_read(recipe.private_shape, runs, _observation_size(private))
    return max(1, MOST_NUMBERS // max(numbers, 1))


def _observation_size(private: ExpertData | SpreadData | MappedData) -> int:
    if isinstance(private, MappedData):
        return private.demonstrations.declared.observation_size
    whole = private.parts if isinstance(private, SpreadData) else private
    return int(whole.transitions.observation.shape[-1])


def _shape(recipe: Recipe) -> StepShape:
    assert recipe.private_shape is not None  # checked before the loop
    return recipe.private_shape


def _noise_count(recipe: Recipe, state: TrainState) -> int:
    params = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), state.params
    )
    return trained_count(recipe.learner, params, _shape(recipe).contribution)


def chunk_inputs(
    recipe: Recipe,
    runs: Run,
    state: TrainState,
    schedule: Schedule,
    done: int,
    at_once: int,
    private: PrivateData | None,
) -> ChunkInputs:
    """For the chunk after the first `done` steps."""
    if private is None or done == len(schedule):
        return ChunkInputs()
    count = _noise_count(recipe, state)
    wanted = schedule[done : done + at_once] == StepKind.PRIVATE
    noise: Any = np.zeros((at_once, len(runs.rates_end), count), np.int32)
    if wanted.any():
        noise = rounded_noise(runs.noise_key, noise_scales(runs), done + 1, at_once, count)
    if isinstance(private, SpreadData):
        return ChunkInputs(private.parts, np.asarray(noise))
    if isinstance(private, SummedElsewhere):
        sums = private.ask(asked_of_step(runs, state, done))
        return ChunkInputs(
            nobody(private.declared), noise, [jnp.asarray(leaf)[None] for leaf in sums]
        )
    if isinstance(private, MappedData):
        if wanted.ndim == 2:
            wanted = wanted.any(axis=1)
        data, earlier = _from_file(recipe, runs, state, private, wanted, done, at_once)
        return ChunkInputs(data, noise, earlier)
    return ChunkInputs(private, noise)


def _from_file(
    recipe: Recipe,
    runs: Run,
    state: TrainState,
    private: MappedData,
    wanted: npt.NDArray[np.bool_],
    done: int,
    at_once: int,
) -> tuple[ChosenData, Any]:
    """What a chunk reads of a mapped log.

    Of a step that is too large, its last part and the sum over the others.
    """
    shape = _shape(recipe)
    room = private.room(shape, runs, MOST_NUMBERS)
    if room is None:
        return private.chosen(shape, runs, wanted, done, at_once), None
    earlier = None
    parts = private.parts(shape, runs, done, room)
    part = next(parts)
    for following in parts if wanted.any() else ():
        earlier = _summed(recipe)(state, runs, part, earlier)
        part = following
    return part, earlier


@lru_cache(maxsize=16)
def _summed(recipe: Recipe) -> Callable[..., Any]:
    """Of every run, the sum on the lattice over a part of a step's experts and those before."""

    def of_run(state: TrainState, run: Run, data: ChosenData, earlier: Any) -> Any:
        keys = keys_of(step_key(run.noise_key, state.step + 1))
        drawn = who_is_drawn(data, keys.sampling, run.numbers.last_drawn)
        learner, shape = recipe.learner, _shape(recipe)
        total = sum_over_drawn(
            learner, state.params, state.target, data, drawn, keys, run.numbers, shape
        )
        return total if earlier is None else jax.tree.map(jnp.add, earlier, total)

    def of_all(state: TrainState, runs: Run, data: ChosenData, earlier: Any) -> Any:
        now = replace(data, transitions=jax.tree.map(lambda leaf: leaf[0], data.transitions))
        return jax.vmap(of_run, (0, 0, OWN, 0))(state, runs, now, earlier)

    return jax.jit(of_all)
