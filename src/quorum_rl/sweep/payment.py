"""Who pays for a sweep whose selection is accounted: all of it, before the first trial runs.

The release is made once and shared. With public scores every trial's training is charged, and
choosing among what was paid for costs nothing. With private selection the geometric number of
trainings is one event: nothing comes out but the best. docs/sweeps.md has the derivation.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final, Literal

import numpy as np

from quorum_rl.budget import Entropy, Ledger
from quorum_rl.errors import QuorumError
from quorum_rl.experts import LoggedExperts
from quorum_rl.logs import Demonstrations
from quorum_rl.pipeline import RunFolder, charge_training
from quorum_rl.privacy import Event, ReleasePlan, SelectionEvent, event_to_json
from quorum_rl.release import read_released, release, save_released
from quorum_rl.sweep.trials import FREE, Trial
from quorum_rl.types import Released

Select = Literal["public", "private"]

PRIVATE_NAMES: Final = (*FREE, "reward_scale")
NOT_ACCOUNTED: Final = (
    "selection not accounted: this is the best of several trials on these experts' data, and only "
    "its own events are charged"
)


def check_accountable(trials: Sequence[Trial], select: Select) -> None:
    """Fail unless what these trials cost together is known.

    Raises:
        QuorumError: naming what stands in the way.
    """
    for trial in trials:
        if trial.plan is None:
            raise QuorumError(
                f"trial {trial.number} ({_said(trial)}) cannot be run: {trial.reason} Every trial "
                "is paid for before the first, so take it out."
            )
        settings = trial.plan.settings
        if settings.method == "non-private" or settings.mode == "paper":
            raise QuorumError(
                f"trial {trial.number} ({_said(trial)}) is not private, so no selection among the "
                "trials can be accounted: leave --select out, for synthetic experts."
            )
    if len({trial.plan.release for trial in trials if trial.plan is not None}) > 1:
        raise QuorumError(
            "the trials plan different releases, and stage 1 runs once: with --select sweep only "
            "what leaves the release as it is, such as learning rates, clip norm or batch size."
        )
    if select == "private":
        _check_one_training(trials)


def _check_one_training(trials: Sequence[Trial]) -> None:
    allowed = ", ".join(name.replace("_", "-") for name in PRIVATE_NAMES)
    for name in trials[0].choices:
        if name not in PRIVATE_NAMES:
            raise QuorumError(
                f"--select private needs trials of the same cost, and {name.replace('_', '-')} may "
                f"change it: sweep only {allowed}."
            )
    plan = trials[0].plan
    assert plan is not None  # checked before
    if plan.private is None:
        raise QuorumError(
            "the trials take no private steps, so choosing among them by public scores costs "
            "nothing: say --select public."
        )


def _said(trial: Trial) -> str:
    return ", ".join(f"{name} = {value}" for name, value in trial.choices.items())


def shared_release(trials: Sequence[Trial]) -> ReleasePlan | None:
    plan = trials[0].plan
    assert plan is not None  # checked before
    return plan.release


def training_events(trials: Sequence[Trial], select: Select, mean_trials: int) -> list[Event]:
    """What is charged beside the release."""
    plans = [trial.plan for trial in trials if trial.plan is not None]
    trainings = [
        plan.private.event(plan.private_steps) for plan in plans if plan.private is not None
    ]
    if select == "public":
        return list(trainings)
    return [SelectionEvent.of(trainings[0], mean_trials)]


def pay(
    trials: Sequence[Trial],
    trainings: Sequence[Event],
    log: Demonstrations,
    experts: LoggedExperts | None,
    place: RunFolder,
    opened: Ledger,
    accepted: Sequence[str],
    entropy: Entropy,
) -> Released | None:
    """Charge what this sweep has not paid yet, and make its release; all that it released.

    That is None where no release is planned, and nothing at all where it was interrupted: what it
    would have given is lost, and its pool stays out of training.

    Guarantee: called again it charges nothing again, whoever was interrupted when.

    Raises:
        QuorumError: if the ledger refuses, before anything is charged.
    """
    shared = shared_release(trials)
    wanted: list[Event] = [] if shared is None else [shared.event]
    paid = Counter(one.event for one in opened.record.charges if one.run == place.name())
    missing = Counter([*wanted, *trainings]) - paid
    opened.check_affordable(list(missing.elements()))
    released = None
    if shared is not None:
        released = _released(shared, missing, log, experts, place, opened, accepted, entropy)
    for event in trainings:
        if not missing[event]:
            continue
        missing[event] -= 1
        charge_training(
            opened, event, log, run=place.name(), accepted=accepted, whole_log=shared is None
        )
    return released


def _released(
    shared: ReleasePlan,
    missing: Counter[Event],
    log: Demonstrations,
    experts: LoggedExperts | None,
    place: RunFolder,
    opened: Ledger,
    accepted: Sequence[str],
    entropy: Entropy,
) -> Released:
    """The one release, or what it gave before the sweep was interrupted."""
    if missing[shared.event]:
        assert experts is not None  # or no release would have been planned
        made = release(
            experts, log, shared, opened, run=place.name(), accepted=accepted, entropy=entropy
        )
        facts = {"ledger": opened.record.identity, **event_to_json(shared.event)}
        save_released(made, place.released, facts)
    return read_released(place.released) if place.released.exists() else _nothing(log)


def _nothing(log: Demonstrations) -> Released:
    """What comes out of a release that was lost."""
    declared, no_one = log.declared, np.zeros(0, np.int64)
    return Released(
        log.transitions(no_one),
        np.zeros(1, np.int64),
        declared.observation_size,
        declared.action_count,
        declared.horizon,
    )
