"""Stage 2 of a run: its payment and its steps."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import jax
import numpy as np

from quorum_rl.budget import Ledger, jax_key_data
from quorum_rl.errors import Interrupted
from quorum_rl.logs import Demonstrations
from quorum_rl.pipeline.context import RunContext
from quorum_rl.pipeline.distributed import let_others_train
from quorum_rl.pipeline.driver import Keys, fresh, runs_of, steps_of, train_runs
from quorum_rl.pipeline.metrics import RunMetrics
from quorum_rl.pipeline.plan import Stage, published_budget
from quorum_rl.policy import learner_name
from quorum_rl.privacy import Event
from quorum_rl.release import REPRODUCIBLE_NOISE, acceptance, charge_log
from quorum_rl.training import (
    PrivateData,
    TrainState,
    expert_data,
    nobody,
    private_source,
    result_of,
)
from quorum_rl.types import Released

SECONDS_BETWEEN_SAVES: Final = 10.0


def charge_training(
    ledger: Ledger,
    event: Event,
    log: Demonstrations,
    *,
    run: str,
    accepted: Sequence[str],
    accepted_by: str | None = None,
    whole_log: bool,
    facts: dict[str, Any] | None = None,
    marks: Sequence[str] = (),
) -> None:
    """Charge an event of training to the ledger, with `marks` that its certificates must mention.

    `whole_log` says that no release has kept a pool apart: the log is then closed for releases.

    Raises:
        QuorumError: if the ledger refuses, or an assumption was not accepted.
    """
    facts = facts or {}
    at_sites = "sites" in facts
    held = acceptance(event, accepted, accepted_by, ledger.record.kind, at_sites=at_sites)
    said: dict[str, Any] = {**held, **facts}
    if whole_log:
        said["whole_log"] = log.declared.identity
    charge_log(ledger, event, log, run=run, facts=said, marks=marks)


def pay_for(
    run: RunContext,
    stage: Stage,
    log: Demonstrations,
    ledger: Ledger,
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Charge a stage of a run before it looks, unless it has paid."""
    if not run.charged(ledger, stage):
        charge_training(
            ledger,
            run.plan.stages[stage],
            log,
            run=run.name,
            accepted=run.options.accepted,
            accepted_by=run.options.accepted_by,
            whole_log=run.plan.release is None,
            facts={**run.committed, **(facts or {})},
            marks=[REPRODUCIBLE_NOISE] * run.entropy.reproducible,
        )


def pay_for_steps(run: RunContext, demonstrations: Demonstrations, ledger: Ledger) -> None:
    """Charge all private steps of a run before the first, unless it has paid for them."""
    plan = run.plan
    if plan.private is None:
        return
    facts = run.options.at_sites
    if plan.others:
        facts["candidates"] = [learner_name(learner) for learner in plan.candidates]
    if plan.settings.mode == "paper":
        epsilon, delta = published_budget(plan)
        facts["published"] = {"epsilon": epsilon, "delta": delta}
    pay_for(run, "steps", demonstrations, ledger, facts)


def _source(run: RunContext, remaining: Demonstrations) -> PrivateData:
    elsewhere = run.options.elsewhere
    if elsewhere is not None:
        return elsewhere.source(run)
    return private_source(remaining) if remaining.expert_count else nobody(remaining.declared)


def of_candidate(run: RunContext, number: int) -> RunContext:
    """The run as it trains the candidate of this number, with noise of its own.

    Guarantee: the noise of different candidates is that of different keys, which follow from those
    of the run.
    """
    learner = run.plan.candidates[number]
    if number == 0:
        return run
    words = jax_key_data(run.release_entropy, f"noise of candidate {number}")
    plan = replace(run.plan, learner=learner)
    return replace(run, plan=plan, keys=run.keys | {"noise": words.tolist()})


def learned(
    run: RunContext, remaining: Demonstrations, released: Released | None
) -> tuple[Any, ...]:
    """Stage 2: the parameters of every candidate, one trained after the other."""
    found = []
    for number in range(len(run.plan.candidates)):
        one = of_candidate(run, number)
        state = take_steps(one, remaining, released, number)
        found.append(jax.tree.map(lambda leaf: leaf[0], result_of(one.plan.recipe, state)))
    return tuple(found)


def take_steps(
    run: RunContext, remaining: Demonstrations, released: Released | None, candidate: int = 0
) -> TrainState:
    """All steps of one candidate that an interrupted run has not taken yet.

    Raises:
        QuorumError: if there is nothing to learn from, or training diverges.
        Interrupted: if `progress` asked for it; what was done is kept.
    """
    folder, plan, declared = run.folder, run.plan, remaining.declared
    private = None
    if plan.private is not None:  # where everybody judges there is nobody, and noise alone
        private = _source(run, remaining)
    free = plan.settings.method == "non-private"
    steps = steps_of(
        plan,
        1,
        run.keys["public"][0],
        [] if released is None else [released],
        expert_data(remaining).transitions if free else None,
    )
    if plan.plain_steps and steps.plain is None:
        run.report("nothing was released, so only the private steps are taken")
    own = len(steps.schedule)
    before, total = candidate * own, own * len(plan.candidates)
    runs = runs_of([plan], Keys(*(np.array([run.keys[name]]) for name in Keys._fields)), steps)
    sizes = declared.observation_size, declared.action_count
    start = folder.resumed(fresh(plan, runs, sizes), candidate)
    begun_at = int(start.step[0])
    if plan.others and begun_at == own:  # the metrics have all of it, and of those behind it
        return start
    metrics = RunMetrics(
        folder.metrics, plan, steps.schedule, released, run.options.track, begun_at, candidate
    )
    saved = time.monotonic()
    stopped_after = None
    progress = run.options.progress

    def after_chunk(state: TrainState, done: int) -> bool:
        nonlocal saved
        metrics.add(state, done)
        last = plan.others and done == own
        if last or time.monotonic() - saved > SECONDS_BETWEEN_SAVES:
            folder.save(state, candidate)
            saved = time.monotonic()
        return asked_to_stop(state, done)

    def asked_to_stop(state: TrainState, done: int) -> bool:
        nonlocal stopped_after
        if progress is not None and progress(before + done, total):
            folder.save(state, candidate)
            stopped_after = before + done
        return stopped_after is not None

    last = start
    if not asked_to_stop(start, begun_at):
        if private is not None:
            let_others_train(remaining, steps)
        last = train_runs(plan, runs, steps, start, private, after_chunk)
    if stopped_after is not None:
        raise Interrupted(
            f"stopped after {stopped_after} of {total} steps; {str(folder.path)!r} keeps them."
        )
    return last
