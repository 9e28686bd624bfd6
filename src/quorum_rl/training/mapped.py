"""Logs larger than memory: they stay in their mapped file, and steps are brought what they read.

Who is drawn in a step, and which transitions they show, follows from the run's secret key and the
step's number, not from what was learned before. So the draws of a whole chunk of steps are made
first, by the functions that a step itself makes them by, and the host gathers what they name. The
step draws again, finds the same experts, and reads what was brought for each.

Memory: what a chunk reads, whatever the size of the log; twice, as the next chunk is gathered while
the devices work on one. A step that reads more than that is made of parts of the drawn experts.
Pages of the file that were read are the operating system's to take back.
"""

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from quorum_rl.distributed import usable_cores
from quorum_rl.errors import QuorumError
from quorum_rl.logs import Demonstrations
from quorum_rl.training.data import ChosenData, chosen_within
from quorum_rl.training.mechanism import StepShape, experts_at, poisson_sample
from quorum_rl.training.randomness import Array, keys_of, step_key
from quorum_rl.training.recipe import Run
from quorum_rl.types import Transition

DEVIATIONS = 6  # above the mean that there is room for in the beginning; more are made room for


@dataclass(frozen=True, eq=False, repr=False)
class MappedData:
    """The transitions of all experts where the log has them. SENSITIVE.

    Shapes: `counts` (experts,), how many transitions each expert has.
    """

    demonstrations: Demonstrations
    counts: Array

    def __repr__(self) -> str:
        return "MappedData(sensitive)"

    def chosen(
        self, shape: StepShape, runs: Run, wanted: npt.NDArray[np.bool_], done: int, steps: int
    ) -> ChosenData:
        """What the `wanted` steps after the first `done` read, padded to `steps` steps.

        Shapes: `wanted` (steps or fewer,); the fields of the result's `transitions`
        (steps, runs, drawn or more, per_expert, …).
        """
        filled = np.zeros(steps, np.bool_)
        filled[: len(wanted)] = wanted
        return self._gathered(shape, self._draws(shape, runs, filled, done), filled, 0)

    def parts(self, shape: StepShape, runs: Run, done: int, room: int) -> Iterator[ChosenData]:
        """What the step after the first `done` reads, `room` of the drawn experts at a time."""
        begin, most, wanted = 0, 1, np.ones(1, np.bool_)
        while begin < most:
            size = shape.contribution.transitions, room
            found = jax.tree.map(np.asarray, _drawn(size, self.counts, runs, wanted, done, begin))
            most = int(found.count.max())
            yield self._gathered(shape, found, wanted, begin)
            begin += room

    def _gathered(
        self, shape: StepShape, draws: "_Draws", wanted: npt.NDArray[np.bool_], begin: int
    ) -> ChosenData:
        """The transitions that these draws name, from the log's file."""
        first = self.demonstrations.expert_transition_offsets
        steps, runs_count, room = draws.expert.shape
        empty = self.demonstrations.transitions(np.zeros(0, np.int64))
        axes = (steps, runs_count, room, shape.contribution.transitions)
        made = Transition(*(np.empty((*axes, *field.shape[1:]), field.dtype) for field in empty))  # type: ignore[arg-type]

        def gather(place: tuple[int, int]) -> None:
            count = min(max(int(draws.count[place]) - begin, 0), room)
            numbers = first[draws.expert[place][:count], None] + draws.within[place][:count]
            for field, found in zip(made, self.demonstrations.transitions(numbers), strict=True):
                field[place][:count] = found
                field[place][count:] = 0

        places = [(step, run) for step in np.flatnonzero(wanted) for run in range(runs_count)]
        with ThreadPoolExecutor(usable_cores()) as workers:
            list(workers.map(gather, places))
        return ChosenData(made, self.counts, begin)

    def room(self, shape: StepShape, runs: Run, most: int) -> int | None:
        """How many experts a part of a step may have to read so many numbers; None if all fit."""
        size = self.demonstrations.declared.observation_size
        if numbers_read(shape, runs, size) <= most:
            return None
        return shape.size * max(1, most // _numbers_of_one(shape, runs, size) // shape.size)

    def _draws(
        self, shape: StepShape, runs: Run, wanted: npt.NDArray[np.bool_], done: int
    ) -> "_Draws":
        """The draws of some steps, with room for all who are drawn in any of them."""
        experts = len(self.counts)
        rate = (float(np.max(np.asarray(runs.numbers.last_drawn))) + 1) / 2**32
        usual = experts * rate + DEVIATIONS * math.sqrt(experts * rate * (1 - rate))
        room = min(8 * math.ceil((usual + 1) / 8), experts)
        while True:
            size = (shape.contribution.transitions, room)
            found: _Draws = jax.tree.map(
                np.asarray, _drawn(size, self.counts, runs, wanted, done, 0)
            )
            most = int(found.count.max())
            if most <= room:
                return found
            room = min(8 * math.ceil(most / 8), experts)


def numbers_read(shape: StepShape, runs: Run, observation_size: int) -> int:
    """About how many numbers a step of all runs reads, by the declared number of experts."""
    declared = float(np.max(np.asarray(runs.numbers.expected_batch)))
    return math.ceil(declared) * _numbers_of_one(shape, runs, observation_size)


def _numbers_of_one(shape: StepShape, runs: Run, observation_size: int) -> int:
    width = 2 * observation_size + 4
    return len(runs.rates_end) * shape.contribution.transitions * width


def mapped_data(demonstrations: Demonstrations) -> MappedData:
    """Demonstrations as they lie in their file, for training that reads a few at a time.

    Raises:
        QuorumError: if there is no expert, or one with more transitions than 32 bits can number.
    """
    counts = np.diff(demonstrations.expert_transition_offsets)
    if len(counts) == 0:
        raise QuorumError("there is no expert to learn from: give demonstrations that hold some.")
    if counts.max() >= 2**32:
        raise QuorumError("an expert has 2**32 transitions or more: give fewer of each.")
    return MappedData(demonstrations, jnp.asarray(counts.astype(np.uint32)))


class _Draws(NamedTuple):
    """Who is drawn, how many they are, and which of their transitions they show.

    Shapes: `count` (steps, runs); `expert` (steps, runs, room); `within` (…, room, per_expert).
    """

    count: Any
    expert: Any
    within: Any


@partial(jax.jit, static_argnums=0)
def _drawn(
    size: tuple[int, int], counts: Array, runs: Run, wanted: Array, done: Array, begin: Array
) -> _Draws:
    per_expert, room = size

    def of_run(run: Run, number: Array) -> _Draws:
        keys = keys_of(step_key(run.noise_key, number))
        drawn = poisson_sample(keys.sampling, len(counts), run.numbers.last_drawn) & (counts > 0)
        so_far = jnp.cumsum(drawn)
        experts = experts_at(so_far, begin + jnp.arange(1, room + 1))
        within = chosen_within(counts[experts], experts, keys.transitions, per_expert)
        return _Draws(so_far[-1], experts, within)

    def step(now: tuple[Array, Array]) -> _Draws:
        number, is_wanted = now
        made = jax.eval_shape(lambda: jax.vmap(of_run, (0, None))(runs, number))
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), made)
        drawn: _Draws = jax.lax.cond(
            is_wanted, lambda: jax.vmap(of_run, (0, None))(runs, number), lambda: nothing
        )
        return drawn

    every: _Draws = jax.lax.map(step, (done + 1 + jnp.arange(len(wanted)), wanted))
    return every
