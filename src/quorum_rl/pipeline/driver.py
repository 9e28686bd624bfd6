"""The one way to train: a fit, a comparison, a sweep and an audit all run plans through it.

Runs of one program differ in their keys, their noise, their rates and what was released to them.
A run here has the bits that a fit with its keys has, whoever trains beside it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from quorum_rl.errors import QuorumError
from quorum_rl.pipeline.plan import FitPlan
from quorum_rl.training import (
    STEPS_AT_ONCE,
    PrivateData,
    Run,
    Schedule,
    StepKind,
    TrainState,
    begin,
    new_run,
    shuffled_schedule,
    train,
)
from quorum_rl.types import Released, Transition

Span = tuple[int, int]


class Keys(NamedTuple):
    """The words of the keys of some runs, `noise` SECRET. Shapes: (runs, 2) each."""

    noise: Any
    public: Any


class Steps(NamedTuple):
    """What some runs do, and what their steps without noise learn from.

    `schedule` is shared, or has an axis of runs where only some of them have released data.
    `parts` are where each run's own released transitions lie in `plain`. `counts` are how many
    steps each run takes.
    """

    schedule: Schedule
    plain: Transition | None
    parts: Sequence[Span]
    counts: Sequence[int]


def steps_of(
    plan: FitPlan,
    runs: int,
    order: int,
    released: Sequence[Released] = (),
    everything: Transition | None = None,
) -> Steps:
    """The steps of runs by one plan, or by plans that are alike in their steps.

    `released` has what was released to each run, where the plan has a release; a run to which
    nothing was takes the private steps alone. `order` is the public seed of the order of steps.
    `everything` is what the non-private method learns from.

    Raises:
        QuorumError: if there is nothing to learn from.
    """
    whole: list[Span] = [(0, 0)] * runs
    if plan.settings.method == "non-private":
        schedule = shuffled_schedule(0, plan.plain_steps, order)
        return Steps(schedule, everything, whole, [len(schedule)] * runs)
    some = np.array([release.offsets[-1] > 0 for release in released], bool)
    if plan.private is None and not (len(some) and some.all()):
        raise QuorumError(
            "nothing was released and no private steps were planned, so there is nothing to "
            "learn from: give a larger epsilon, or method local, with new demonstrations."
        )
    if not some.any():
        schedule = shuffled_schedule(plan.private_steps, 0, order)
        return Steps(schedule, None, whole, [len(schedule)] * runs)
    plain, parts = joined(released)
    both = shuffled_schedule(plan.private_steps, plan.plain_steps, order)
    if some.all():
        return Steps(both, plain, parts, [len(both)] * runs)
    alone = shuffled_schedule(plan.private_steps, 0, order)
    filled = np.append(alone, np.full(len(both) - len(alone), StepKind.NOTHING, np.int8))
    schedule = np.where(some, both[:, None], filled[:, None])
    return Steps(
        schedule, plain, parts, [len(both if has_released else alone) for has_released in some]
    )


def runs_of(plans: Sequence[FitPlan], keys: Keys, steps: Steps) -> Run:
    """The runs of a program, stacked: one plan for all of them, or one for each.

    Plans of one program have the same recipe and as many steps.
    """
    each = list(plans) if len(plans) > 1 else [*plans] * len(keys.noise)
    distinct = {id(plan): plan for plan in each}  # few, of thousands of runs
    places = {identity: place for place, identity in enumerate(distinct)}
    which = np.array([places[id(plan)] for plan in each])
    no_key = np.zeros(2, np.uint32)
    made = [
        new_run(
            noise_key=no_key,
            public_key=no_key,
            learning_rate=plan.settings.learning_rate,
            private_learning_rate=plan.private_learning_rate,
            private=plan.private,
        )
        for plan in distinct.values()
    ]
    # In NumPy, which needs no program for it.
    stacked: Any = jax.tree.map(lambda *leaves: np.stack(leaves)[which], *made)
    ends = [plan.rates_end(count) for plan, count in zip(each, steps.counts, strict=True)]
    begins = [plan.average_from(count) for plan, count in zip(each, steps.counts, strict=True)]
    parts = np.asarray(steps.parts, np.int32).T
    whole: Run = replace(
        stacked,
        noise_key=np.asarray(keys.noise, np.uint32),
        public_key=np.asarray(keys.public, np.uint32),
        rates_end=np.asarray(ends, np.float32),
        average_from=np.asarray(begins, np.float32),
        plain_part=(parts[0], parts[1]),
    )
    on_device: Run = jax.device_put(whole)
    return on_device


def fresh(plan: FitPlan, runs: Run, sizes: tuple[int, int]) -> TrainState:
    """Runs before their first step; `sizes` are of an observation and of the set of actions."""
    return begin(plan.recipe, runs, *sizes)


def train_runs(
    plan: FitPlan,
    runs: Run,
    steps: Steps,
    state: TrainState,
    private: PrivateData | None,
    after_chunk: Callable[[TrainState, int], bool | None] | None = None,
    steps_at_once: int = STEPS_AT_ONCE,
) -> TrainState:
    """Take all steps that `state` has not taken yet; see `training.loop.train`."""
    return train(
        plan.recipe,
        runs,
        state,
        steps.schedule,
        private=None if plan.private is None else private,
        plain=steps.plain,
        after_chunk=after_chunk,
        steps_at_once=steps_at_once,
    )


def joined(parts: Sequence[Released]) -> tuple[Transition, list[Span]]:
    """All released transitions in a row, and where those of each release begin and end.

    Behind them zeros, up to a power of two: a program for so many is soon needed again.
    """
    sizes = np.array([int(part.offsets[-1]) for part in parts])
    after = np.cumsum(sizes)
    room = 1 << int(after[-1] - 1).bit_length() if after[-1] else 0

    def filled(*pieces: Any) -> jax.Array:
        zeros = np.zeros((room - int(after[-1]), *pieces[0].shape[1:]), pieces[0].dtype)
        made: jax.Array = jax.device_put(np.concatenate([*pieces, zeros]))
        return made

    whole = Transition(*map(filled, *(part.transitions for part in parts)))
    return whole, [(int(end - size), int(end)) for size, end in zip(sizes, after, strict=True)]
