"""Stage 2 of a run: its steps, where they stand in between, and its curve on released data."""

import time
from dataclasses import dataclass
from typing import Final

import jax

from quorum_rl.budget import Ledger
from quorum_rl.errors import Interrupted, QuorumError
from quorum_rl.fit.curve import LossCurve
from quorum_rl.fit.folder import RunFolder
from quorum_rl.fit.helping import let_others_train
from quorum_rl.fit.options import Progress, Report
from quorum_rl.fit.plan import FitPlan
from quorum_rl.logs import Demonstrations
from quorum_rl.privacy import Event
from quorum_rl.training.expert_data import expert_data, flat_transitions
from quorum_rl.training.loop import Standing, begin, train
from quorum_rl.training.schedule import shuffled_schedule
from quorum_rl.training.source import private_source
from quorum_rl.types import Released, Transition

SECONDS_BETWEEN_SAVES: Final = 10.0


@dataclass(frozen=True)
class Work:
    """What the stages of one run share."""

    place: RunFolder
    plan: FitPlan
    keys: dict[str, list[int]]
    report: Report
    progress: Progress | None

    @property
    def name(self) -> str:
        """What the ledger calls this run."""
        return self.place.name()

    def charged(self, opened: Ledger, event: Event) -> bool:
        """Whether this run has paid for this stage already."""
        return any(
            charge.run == self.name and charge.event == event for charge in opened.record.charges
        )


def take_steps(work: Work, remaining: Demonstrations, released: Released | None) -> Standing:
    """All steps of the plan that an interrupted run has not taken yet.

    Raises:
        QuorumError: if there is nothing to learn from, or training diverges.
        Interrupted: if `progress` asked for it; what was done is kept.
    """
    place, plan, declared = work.place, work.plan, remaining.declared
    private = None if plan.private is None else private_source(remaining)
    plain, plain_steps = _without_noise(work, remaining, released)
    schedule = shuffled_schedule(plan.private_steps, plain_steps, work.keys["public"][0])
    run = plan.new_run(work.keys["noise"], work.keys["public"], len(schedule))
    runs = jax.tree.map(lambda leaf: leaf[None], run)
    fresh = begin(plan.recipe, runs, declared.observation_size, declared.action_count)
    standing = place.resumed(fresh)
    curve = None
    if released is not None and len(released):
        curve = LossCurve(place.metrics, plan.recipe, released, begun_at=int(standing.step[0]))
    saved = time.monotonic()
    stopped_after = None

    def after_chunk(standing: Standing, done: int) -> bool:
        nonlocal saved
        if curve is not None:
            curve.add(standing, done)
        if time.monotonic() - saved > SECONDS_BETWEEN_SAVES:
            place.save(standing)
            saved = time.monotonic()
        return asked_to_stop(standing, done)

    def asked_to_stop(standing: Standing, done: int) -> bool:
        nonlocal stopped_after
        if work.progress is not None and work.progress(done, len(schedule)):
            place.save(standing)
            stopped_after = done
        return stopped_after is not None

    last = standing
    if not asked_to_stop(standing, int(standing.step[0])):
        if private is not None:
            let_others_train(remaining, schedule, plain)
        last = train(
            plan.recipe,
            runs,
            standing,
            schedule,
            private=private,
            plain=plain,
            after_chunk=after_chunk,
        )
    if stopped_after is not None:
        raise Interrupted(
            f"stopped after {stopped_after} of {len(schedule)} steps; {str(place.path)!r} keeps "
            "them."
        )
    return last


def _without_noise(
    work: Work, remaining: Demonstrations, released: Released | None
) -> tuple[Transition | None, int]:
    """What steps without noise learn from, and how many there can be."""
    plan = work.plan
    if plan.settings.method == "non-private":
        return expert_data(remaining).transitions, plan.plain_steps
    if released is not None and len(released):
        return flat_transitions(released), plan.plain_steps
    if plan.private is None:
        raise QuorumError(
            "nothing was released and no private steps were planned, so there is nothing to "
            "learn from: give a larger epsilon, or method dp-sgd, with new demonstrations."
        )
    if plan.plain_steps:
        work.report("nothing was released, so only the private steps are taken")
    return None, 0
