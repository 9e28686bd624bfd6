"""Who pays for a sweep whose selection is accounted: all of it, before the first trial runs.

The release is made once and shared. With public scores every trial's training is charged, and
choosing among what was paid for costs nothing. With private selection the geometric number of
trainings is one event: nothing comes out but the best. docs/sweeps.md has the derivation.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from quorum_rl.budget import Budget, Certificate, Entropy, Ledger
from quorum_rl.errors import QuorumError
from quorum_rl.pipeline import RunFolder, charge_training
from quorum_rl.privacy import Event, ReleasePlan, SelectionEvent, event_to_json
from quorum_rl.release import (
    REPRODUCIBLE_NOISE,
    read_released,
    recall,
    release,
    save_released,
)
from quorum_rl.sweep.judge import PAID_ELSEWHERE, paid_elsewhere
from quorum_rl.sweep.options import SweepOptions
from quorum_rl.sweep.trials import FREE, Trial
from quorum_rl.types import Released

PRIVATE_NAMES: Final = (*FREE, "reward_scale")
NOT_ACCOUNTED: Final = (
    "selection not accounted: this is the best of several trials on these experts' data, and only "
    "its own events are charged"
)


def check_accountable(asked: SweepOptions, trials: Sequence[Trial]) -> None:
    """Fail unless what these trials cost together is known.

    Raises:
        QuorumError: naming what stands in the way.
    """
    for trial in trials:
        said = ", ".join(f"{name} = {value}" for name, value in trial.choices.items())
        if trial.plan is None:
            raise QuorumError(
                f"trial {trial.number} ({said}) cannot be run: {trial.reason} Every trial is paid "
                "for before the first, so take it out."
            )
        settings = trial.plan.settings
        if settings.method == "non-private" or settings.mode == "paper":
            raise QuorumError(
                f"trial {trial.number} ({said}) is not private, so no selection among the trials "
                "can be accounted: leave --select out, for synthetic experts."
            )
    if len({trial.feasible.release for trial in trials}) > 1:
        raise QuorumError(
            "the trials plan different releases, and stage 1 runs once: with --select sweep only "
            "what leaves the release as it is, such as learning rates, clip norm or batch size."
        )
    if asked.select == "private":
        _check_one_training(trials[0])
    if asked.judge == "released" and shared_release(trials) is None:
        raise QuorumError(
            "the trials plan no release that they could be judged by: give the release a share, or "
            "judge them in a world."
        )


def _check_one_training(first: Trial) -> None:
    """Fail unless all trials have the training of the first one."""
    for name in first.choices:
        if name not in PRIVATE_NAMES:
            allowed = ", ".join(each.replace("_", "-") for each in PRIVATE_NAMES)
            raise QuorumError(
                f"--select private needs trials of the same cost, and {name.replace('_', '-')} may "
                f"change it: sweep only {allowed}."
            )
    if first.feasible.private is None:
        raise QuorumError(
            "the trials take no private steps, so choosing among them by public scores costs "
            "nothing: say --select public."
        )


def shared_release(trials: Sequence[Trial]) -> ReleasePlan | None:
    return trials[0].feasible.release


def events_of(asked: SweepOptions, trials: Sequence[Trial]) -> list[Event]:
    """What is charged for these trials: their one release, then their trainings."""
    plans = [trial.feasible for trial in trials]
    trainings = [
        plan.private.event(plan.private_steps) for plan in plans if plan.private is not None
    ]
    shared = shared_release(trials)
    release_events = [] if shared is None else [shared.event]
    if asked.select == "private":
        return [*release_events, SelectionEvent.of(trainings[0], asked.mean_trials)]
    return [*release_events, *trainings]


def pay(
    asked: SweepOptions,
    trials: Sequence[Trial],
    place: RunFolder,
    opened: Ledger,
    entropy: Entropy,
    committed: Mapping[str, str],
) -> Released | None:
    """Charge what this sweep has not paid yet, and make its release; all that it released.

    That is None where no release is planned.

    Guarantee: called again it charges nothing again and releases the same, whoever was interrupted
    when: every charge holds what is `committed`, which fixes the `entropy`.

    Raises:
        QuorumError: if the ledger refuses, before anything is charged.
    """
    recall(opened, asked.log, asked.accepted)
    shared, name = shared_release(trials), place.name()
    paid = Counter(charge.event for charge in opened.record.charges if charge.run == name)
    missing = Counter(events_of(asked, trials)) - paid
    opened.check_affordable(list(missing.elements()))
    if missing:
        needed = trials[0].feasible.trajectories_needed  # they share their release
        asked.log.check_usable(asked.log.declared.minimum_experts, needed)
    if shared is not None and (missing.pop(shared.event, 0) or not place.released.exists()):
        assert asked.experts is not None  # or no release would have been planned
        made = release(
            asked.experts,
            asked.log,
            shared,
            opened,
            run=name,
            accepted=asked.accepted,
            accepted_by=asked.accepted_by,
            entropy=entropy,
            committed=committed,
        ).released
        facts = {"ledger": opened.record.identity, **event_to_json(shared.event)}
        save_released(made, place.released, facts)
    for event in missing.elements():
        charge_training(
            opened,
            event,
            asked.log,
            run=name,
            accepted=asked.accepted,
            accepted_by=asked.accepted_by,
            whole_log=shared is None,
            facts=dict(committed),
        )
    mark_judge(asked, opened)
    return None if shared is None else read_released(place.released)


def mark_judge(asked: SweepOptions, opened: Ledger) -> None:
    if paid_elsewhere(asked.judge, asked.judge_facts, opened.record):
        opened.mark(PAID_ELSEWHERE)


def certified(
    asked: SweepOptions, trial: Trial, place: RunFolder, book: Path
) -> Certificate | None:
    """The winner's certificate; of a selection that is not accounted it says so."""
    plan, delta = trial.feasible, asked.common.delta
    if plan.settings.method == "non-private":
        return None
    if asked.select is None:
        if not book.exists():
            Budget.create(book, epsilon=None, delta=delta, kind="research")
        with Ledger.open(book) as opened:
            for event in plan.events:
                if event not in opened.record.events:  # as after an interrupted end
                    pool = {"pool": asked.log.declared.identity}
                    opened.charge(event, run=place.name(), facts=pool)
            opened.mark(NOT_ACCOUNTED)
            opened.mark(REPRODUCIBLE_NOISE)
            mark_judge(asked, opened)
    return Budget(book).finite_certificate(delta)
