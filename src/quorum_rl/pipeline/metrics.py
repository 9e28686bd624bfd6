"""What may be shown of a run while it trains: a line for every chunk of steps."""

import json
import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeAlias

import jax
import numpy as np

from quorum_rl.errors import QuorumError
from quorum_rl.files import replacing
from quorum_rl.pipeline.plan import FitPlan
from quorum_rl.privacy import Event, total_epsilon
from quorum_rl.training import (
    Schedule,
    StepKind,
    TrainState,
    at,
    result_of,
)
from quorum_rl.types import Released

MOST_TRANSITIONS: Final = 4096  # of a loss; of more, so many evenly spaced

Track: TypeAlias = Callable[[Mapping[str, float]], None]
"""Hears the metrics of a run: `step`, and whatever there is beside it."""


class RunMetrics:
    """A file with a line of JSON for every chunk, which `track` hears too.

    - `step`: how many steps are done.
    - `epsilon`, `noise_over_signal`: what the run has spent so far, and its noise in the mean of
      the private steps so far; where it has any.
    - `candidate`: the number of the learner, where judges choose one.
    - `loss_on_released`: of the parameters that training would return then; where there is released
      data, and the loss is a number.

    Guarantee: a function of declared numbers, of released data and of parameters that the guarantee
    covers at every step, so it may be shown and costs nothing.
    """

    def __init__(
        self,
        path: Path,
        plan: FitPlan,
        schedule: Schedule,
        released: Released | None,
        track: Track | None,
        begun_at: int,
        candidate: int = 0,
    ) -> None:
        """Go on with the file of a run that goes on at a step of a candidate: later lines are taken
        again. Steps count through all candidates."""
        self._path, self._plan, self._track = path, plan, track
        self._candidate, self._before = candidate, candidate * len(schedule)
        self._private = np.asarray(schedule).reshape(len(schedule), -1)[:, 0] == StepKind.PRIVATE
        self._seen = None if released is None or not len(released) else _some_of(released)
        with replacing(path) as temporary:
            temporary.write_text("".join(_lines_until(path, self._before + begun_at)))

    def add(self, state: TrainState, step: int) -> None:
        """Write down, and tell, what may be known after so many steps of this candidate."""
        found: dict[str, float] = {"step": self._before + step}
        found |= self._spent(int(self._private[:step].sum()))
        if self._plan.others:
            found["candidate"] = self._candidate
        if self._seen is not None:
            learner: Any = self._plan.recipe.learner
            params, target = jax.tree.map(
                lambda leaf: np.asarray(leaf)[0],
                (result_of(self._plan.recipe, state), state.target),
            )
            loss = float(_mean_loss(learner)(params, target, self._seen))
            found |= {"loss_on_released": loss} if math.isfinite(loss) else {}
        try:
            with self._path.open("a") as file:
                file.write(json.dumps(found) + "\n")
        except OSError as error:
            raise QuorumError(
                f"{str(self._path)!r} cannot be written: {error.strerror}."
            ) from error
        if self._track is not None:
            self._track(found)

    def _spent(self, private_steps: int) -> dict[str, float]:
        plan = self._plan
        events: list[Event] = [] if plan.release is None else [plan.release.event]
        if plan.private is None or not private_steps:
            return {"epsilon": total_epsilon(events, plan.delta)} if events else {}
        earlier = self._candidate * plan.private_steps
        events.append(plan.private.event(earlier + private_steps))
        return {
            "epsilon": total_epsilon(events, plan.delta),
            "noise_over_signal": plan.noise * math.sqrt(plan.private_steps / private_steps),
        }


def _some_of(released: Released) -> Any:
    count = int(released.offsets[-1])
    chosen: Any = np.linspace(0, count - 1, min(count, MOST_TRANSITIONS)).round().astype(int)
    return at(released.transitions, chosen)


def _lines_until(path: Path, step: int) -> list[str]:
    """The whole lines of a file up to a step; the last one may have been cut off."""
    if not path.exists():
        return []
    lines = path.read_text().splitlines(keepends=True)
    whole = [line for line in lines if line.endswith("\n")]
    return [line for line in whole if json.loads(line)["step"] <= step]


@lru_cache(maxsize=16)
def _mean_loss(learner: Any) -> Callable[..., Any]:
    def mean(params: Any, target: Any, transitions: Any) -> Any:
        keys = jax.random.split(jax.random.key(0), len(transitions.reward))
        return jax.vmap(learner.loss, (None, None, 0, 0))(params, target, transitions, keys).mean()

    return jax.jit(mean)
