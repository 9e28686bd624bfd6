"""A user's own run as a case to audit: its events, its settings and its learner, on a chain of
synthetic experts of the same shape."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from quorum_rl.audit.cases import Case
from quorum_rl.audit.chain import Chain
from quorum_rl.budget import event_facts, read_certificate, read_ledger
from quorum_rl.errors import QuorumError
from quorum_rl.json_files import CONFIG, as_object, items, number, read_config, reading, whole
from quorum_rl.learners import Learner, learner_from_json
from quorum_rl.pipeline import FitPlan, FitSettings, private_step
from quorum_rl.privacy import (
    Event,
    ReleaseEvent,
    ReleasePlan,
    SelectionEvent,
    TrainingEvent,
    event_from_json,
    total_epsilon,
)
from quorum_rl.training import steps_at_share

LEAVES_AT: Final = 8  # the step at which the canary leaves, if episodes are that long
ROUNDING: Final = 1e-3  # of an ε, as between versions of the accounting
SWEPT: Final = ("choices", "search")  # what the configurations of a sweep and its winner have
SELECTED: Final = (
    "a policy that was selected among trials cannot be audited this way: audit a 'quorum fit' with "
    "the settings of one trial."
)
OWN_CONTRIBUTION: Final = (
    "the run's contribution is its user's own, and its code is not kept: audit it with "
    "quorum_rl.audit.audit_pipeline in Python."
)


def case_of_run(folder: Path, trainees: int | None = None) -> Case:
    """The configuration of a run, on as many synthetic experts as it declares at least.

    The same events, learner, optimiser, steps, horizon, actions and size of observations. Only
    the experts and their logs are made up. `trainees` as in `Case`. The claim is that of
    the run's certificate, if it has one of its own.

    Raises:
        QuorumError: if the folder holds no run that can be audited, or its configuration is not
            what was charged for.
    """
    path, configuration = folder / CONFIG, read_config(folder)
    if any(name in configuration for name in SWEPT):
        raise QuorumError(SELECTED)
    with reading(path, "quorum fit"):
        chain = _chain(as_object(configuration["declared"], "declared"))
        given = as_object(configuration["settings"], "settings")
        known = {field.name for field in fields(FitSettings)} - {"contribution"}
        settings = FitSettings(**{name: given[name] for name in given.keys() & known})
        events = items(configuration, "events")
        recorded = [event_from_json(as_object(facts, "event")) for facts in events]
        written = configuration["learner"]
    if "contribution" in given:
        raise QuorumError(OWN_CONTRIBUTION)
    _check_auditable(settings, recorded)
    learner = learner_written(written)
    with reading(path, "quorum fit"):
        plan = _plan(configuration, settings, learner, recorded, chain)
    for event in plan.events:
        if event not in recorded:
            raise QuorumError(
                f"the settings in {str(path)!r} give {event}, which is none of the events there: "
                "make the run again with 'quorum fit', for this is not what was charged."
            )
    _check_cost(path, plan, plan.epsilon)
    case = Case(chain, plan, certified=_certified(folder, plan))
    return case if trainees is None else case.with_trainees(trainees)


def _chain(declared: dict[str, Any]) -> Chain:
    horizon = whole(declared, "horizon")
    return Chain(
        others=whole(declared, "minimum_experts"),
        actions=whole(declared, "action_count"),
        horizon=horizon,
        p_min=0.0 if declared.get("p_min") is None else number(declared, "p_min"),
        leaves_at=min(LEAVES_AT, horizon - 1),
        observation_size=whole(declared, "observation_size"),
    )


def _check_auditable(settings: FitSettings, events: Sequence[Event]) -> None:
    if settings.mode == "paper":
        raise QuorumError("mode paper claims nothing that holds, so there is nothing to audit.")
    if not events:
        raise QuorumError("this run is not private, so that there is no claim to audit.")
    if any(isinstance(event, SelectionEvent) for event in events):
        raise QuorumError(SELECTED)
    releases, trainings = _stages(events)
    if len(releases) > 1 or len(trainings) > 1:
        raise QuorumError(
            f"this run has {len(releases)} releases and {len(trainings)} trainings: an audit is of "
            "one of each at most."
        )


def _stages(events: Sequence[Event]) -> tuple[list[ReleaseEvent], list[TrainingEvent]]:
    releases = [event for event in events if isinstance(event, ReleaseEvent)]
    return releases, [event for event in events if isinstance(event, TrainingEvent)]


def _plan(
    configuration: dict[str, Any],
    settings: FitSettings,
    learner: Learner,
    events: Sequence[Event],
    chain: Chain,
) -> FitPlan:
    """What the run was charged for, not what would be planned today."""
    epsilon, delta = number(configuration, "epsilon"), number(configuration, "delta")
    releases, trainings = _stages(events)
    release = ReleasePlan(releases[0], epsilon, delta, settings.agreement) if releases else None
    steps = trainings[0].steps if trainings else 0
    plain = steps_at_share(steps, settings.private_share) if steps and releases else 0
    private = None
    if trainings:
        private = private_step(settings, chain.declared, trainings[0].noise_multiplier)
    return FitPlan(
        settings=settings,
        learner=learner,
        epsilon=epsilon,
        delta=delta,
        release=release,
        private=private,
        private_steps=steps,
        plain_steps=plain if trainings else settings.release_only_steps,
        notes=(),
    )


def _certified(folder: Path, plan: FitPlan) -> float | None:
    """The ε that the run's certificate claims; None if it has none, or it is of other runs, too.

    Raises:
        QuorumError: if certificate or ledger do not hold the plan's events.
    """
    book, path = folder / "ledger.jsonl", folder / "certificate.json"
    if book.exists():
        charges = read_ledger(book).charges
        _check_charged(book, plan, [(charge.run, charge.event) for charge in charges])
    if not path.exists():
        return None
    made = read_certificate(path)
    with reading(path, "quorum fit"):
        charged = [
            (str(facts["run"]), event_from_json(event_facts(facts))) for facts in made.events
        ]
    _check_charged(path, plan, charged)
    if not (math.isfinite(made.epsilon) and made.delta == plan.delta):
        raise QuorumError(
            f"{str(path)!r} claims epsilon = {made.epsilon:g} at delta = {made.delta:g}, the run "
            f"is at delta = {plan.delta:g}: there is no claim to audit."
        )
    _check_cost(path, plan, made.epsilon)
    return made.epsilon if len(charged) == len(plan.events) else None


def _check_cost(path: Path, plan: FitPlan, epsilon: float) -> None:
    cost = total_epsilon(plan.events, plan.delta)
    if cost > epsilon * (1 + ROUNDING):
        raise QuorumError(
            f"{str(path)!r} says epsilon = {epsilon:g}, but the run's events cost {cost:.4f} at "
            f"delta = {plan.delta:g}: that is refuted without an audit, so correct it first."
        )


def _check_charged(path: Path, plan: FitPlan, charged: Sequence[tuple[str, Event]]) -> None:
    """All events of a plan are there; and of the run that took its last one, no others are."""
    own, every = Counter(plan.events), Counter(event for _, event in charged)
    runs = {run for run, event in charged if event == plan.events[-1]}
    mine = [Counter(event for payer, event in charged if payer == run) for run in runs]
    if own - every or not any(paid <= own for paid in mine):
        raise QuorumError(
            f"{str(path)!r} was not charged for just the events in this run's config.json: finish "
            "the run, or make it again, with 'quorum fit'."
        )


def learner_written(facts: Any) -> Learner:
    """A learner as a configuration has it.

    Raises:
        QuorumError: if it is none of ours, or the configuration is of an older version.
    """
    if not isinstance(facts, dict):
        raise QuorumError(
            f"the learner is written down as {facts!r}, as older versions did: make the run again "
            "with 'quorum fit'."
        )
    try:
        return learner_from_json(facts)
    except (QuorumError, TypeError) as error:
        raise QuorumError(
            f"{error} To audit a learner of your own, use quorum_rl.audit.audit_pipeline in Python."
        ) from error
