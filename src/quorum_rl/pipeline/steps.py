"""Stage 2 of a run: its steps, where they stand in between, and its curve on released data."""

import time
from dataclasses import dataclass
from typing import Final

import numpy as np

from quorum_rl.budget import Ledger
from quorum_rl.errors import Interrupted
from quorum_rl.logs import Demonstrations
from quorum_rl.pipeline.curve import LossCurve
from quorum_rl.pipeline.distributed import let_others_train
from quorum_rl.pipeline.driver import Keys, fresh, runs_of, steps_of, train_runs
from quorum_rl.pipeline.folder import RunFolder
from quorum_rl.pipeline.options import ReportLine, StepProgress
from quorum_rl.pipeline.plan import FitPlan
from quorum_rl.privacy import Event
from quorum_rl.training import TrainState, expert_data, private_source
from quorum_rl.types import Released

SECONDS_BETWEEN_SAVES: Final = 10.0


@dataclass(frozen=True)
class Work:
    """What the stages of one run share."""

    place: RunFolder
    plan: FitPlan
    keys: dict[str, list[int]]
    report: ReportLine
    progress: StepProgress | None

    @property
    def name(self) -> str:
        """What the ledger calls this run."""
        return self.place.name()

    def charged(self, opened: Ledger, event: Event) -> bool:
        """Whether this run has paid for this stage already."""
        return any(
            charge.run == self.name and charge.event == event for charge in opened.record.charges
        )


def take_steps(work: Work, remaining: Demonstrations, released: Released | None) -> TrainState:
    """All steps of the plan that an interrupted run has not taken yet.

    Raises:
        QuorumError: if there is nothing to learn from, or training diverges.
        Interrupted: if `progress` asked for it; what was done is kept.
    """
    place, plan, declared = work.place, work.plan, remaining.declared
    private = None if plan.private is None else private_source(remaining)
    free = plan.settings.method == "non-private"
    steps = steps_of(
        plan,
        1,
        work.keys["public"][0],
        [] if released is None else [released],
        expert_data(remaining).transitions if free else None,
    )
    if plan.plain_steps and steps.plain is None:
        work.report("nothing was released, so only the private steps are taken")
    total = len(steps.schedule)
    runs = runs_of([plan], Keys(*(np.array([work.keys[one]]) for one in Keys._fields)), steps)
    sizes = declared.observation_size, declared.action_count
    standing = place.resumed(fresh(plan, runs, sizes))
    curve = None
    if released is not None and len(released):
        curve = LossCurve(place.metrics, plan.recipe, released, begun_at=int(standing.step[0]))
    saved = time.monotonic()
    stopped_after = None

    def after_chunk(standing: TrainState, done: int) -> bool:
        nonlocal saved
        if curve is not None:
            curve.add(standing, done)
        if time.monotonic() - saved > SECONDS_BETWEEN_SAVES:
            place.save(standing)
            saved = time.monotonic()
        return asked_to_stop(standing, done)

    def asked_to_stop(standing: TrainState, done: int) -> bool:
        nonlocal stopped_after
        if work.progress is not None and work.progress(done, total):
            place.save(standing)
            stopped_after = done
        return stopped_after is not None

    last = standing
    if not asked_to_stop(standing, int(standing.step[0])):
        if private is not None:
            let_others_train(remaining, steps)
        last = train_runs(plan, runs, steps, standing, private, after_chunk)
    if stopped_after is not None:
        raise Interrupted(
            f"stopped after {stopped_after} of {total} steps; {str(place.path)!r} keeps them."
        )
    return last
