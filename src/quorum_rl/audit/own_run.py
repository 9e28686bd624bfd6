"""A user's own run as a case to audit: its events, its settings and its learner, on a chain of
synthetic experts of the same shape."""

import ast
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from quorum_rl.audit.chain import Chain
from quorum_rl.audit.pipeline import PipelineCase
from quorum_rl.errors import QuorumError
from quorum_rl.fit import FitPlan, FitSettings
from quorum_rl.fit.stages import private_step
from quorum_rl.learners import Learner
from quorum_rl.learners.registry import LEARNERS
from quorum_rl.privacy import ReleaseEvent, ReleasePlan, TrainingEvent, event_from_json
from quorum_rl.report.reading import as_object, items, number, read_object, reading, text, whole
from quorum_rl.training.schedule import steps_at_share

LEAVES_AT: Final = 8  # the step at which the canary leaves, if episodes are that long


def case_of_run(folder: Path, trainees: int | None = None) -> PipelineCase:
    """The configuration of a run, on as many synthetic experts as it declares at least.

    The same events, learner, optimiser, steps, horizon, actions and size of observations. Only
    the experts and their logs are made up. `trainees` as in `PipelineCase`.

    Raises:
        QuorumError: if the folder holds no run that can be audited.
    """
    path = folder / "config.json"
    if not path.is_file():
        raise QuorumError(f"{str(folder)!r} holds no run: give a folder that 'quorum fit' wrote.")
    with reading(path, "quorum fit"):
        configuration = read_object(path)
        chain = _chain(as_object(configuration["declared"], "declared"))
        plan = _plan(configuration, chain)
    case = PipelineCase(chain, plan)
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


def _plan(configuration: dict[str, Any], chain: Chain) -> FitPlan:
    """What the run was charged for, not what would be planned today."""
    known = {field.name for field in fields(FitSettings)}
    given = as_object(configuration["settings"], "settings")
    settings = FitSettings(**{name: given[name] for name in given.keys() & known})
    epsilon, delta = number(configuration, "epsilon"), number(configuration, "delta")
    events = [event_from_json(as_object(one, "event")) for one in items(configuration, "events")]
    if settings.mode == "paper":
        raise QuorumError("mode paper claims nothing that holds, so there is nothing to audit.")
    releases = [event for event in events if isinstance(event, ReleaseEvent)]
    trainings = [event for event in events if isinstance(event, TrainingEvent)]
    if not events or len(releases) > 1 or len(trainings) > 1:
        raise QuorumError("this run is not private, so that there is no claim to audit.")
    release = ReleasePlan(releases[0], epsilon, delta, settings.agreement) if releases else None
    steps = trainings[0].steps if trainings else 0
    plain = steps_at_share(steps, settings.private_share) if steps and releases else 0
    return FitPlan(
        settings=settings,
        learner=learner_named(text(configuration, "learner")),
        epsilon=epsilon,
        delta=delta,
        release=release,
        private=private_step(settings, chain.declared, trainings[0].noise_multiplier)
        if trainings
        else None,
        private_steps=steps,
        plain_steps=plain if trainings else settings.release_only_steps,
        notes=(),
    )


def learner_named(said: str) -> Learner:
    """A learner from how it is written in a configuration, such as `Cql(hidden_sizes=(4,))`.

    Raises:
        QuorumError: if it is none of ours.
    """
    kinds = {kind.__name__: kind for kind in LEARNERS.values()}
    try:
        call = ast.parse(said, mode="eval").body
        assert isinstance(call, ast.Call)
        assert isinstance(call.func, ast.Name)
        assert not call.args
        values = {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
        return kinds[call.func.id](**values)
    except (SyntaxError, AssertionError, KeyError, TypeError, ValueError) as error:
        raise QuorumError(
            f"the learner {said!r} is none of {', '.join(kinds)}: audit it in Python, with "
            "quorum_rl.audit.audit_pipeline."
        ) from error
