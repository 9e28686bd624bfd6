"""Stage 2 of a run: its payment, its steps, and its curve on released data."""

import json
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from quorum_rl.budget import Ledger
from quorum_rl.errors import Interrupted, QuorumError
from quorum_rl.files import replacing
from quorum_rl.logs import Demonstrations
from quorum_rl.pipeline.context import RunContext
from quorum_rl.pipeline.distributed import let_others_train
from quorum_rl.pipeline.driver import Keys, fresh, runs_of, steps_of, train_runs
from quorum_rl.pipeline.plan import published_budget
from quorum_rl.privacy import Event
from quorum_rl.release import REPRODUCIBLE_NOISE, accepted_assumptions, marked_as_trained
from quorum_rl.training import (
    Recipe,
    TrainState,
    at,
    expert_data,
    flat_transitions,
    nobody,
    private_source,
    result_of,
)
from quorum_rl.types import Released

SECONDS_BETWEEN_SAVES: Final = 10.0
MOST_TRANSITIONS: Final = 4096  # of a curve; of more, so many evenly spaced


def charge_training(
    ledger: Ledger,
    event: Event,
    log: Demonstrations,
    *,
    run: str,
    accepted: Sequence[str],
    whole_log: bool,
    facts: dict[str, Any] | None = None,
    marks: Sequence[str] = (),
) -> None:
    """Charge an event of training to the ledger, with `marks` that its certificates must mention.

    `whole_log` says that no release has kept a pool apart: the log is then closed for releases.

    Raises:
        QuorumError: if the ledger refuses, or an assumption was not accepted.
    """
    identity = log.declared.identity
    held = accepted_assumptions(event, accepted, ledger.record.kind, by_making=False)
    said: dict[str, Any] = {"accepted": list(held), **(facts or {})}
    if not whole_log:
        ledger.charge(event, run=run, facts=said, marks=marks)
        return
    with marked_as_trained(log.source, identity, ledger):
        ledger.charge(event, run=run, facts=said | {"whole_log": identity}, marks=marks)


def pay_for_steps(run: RunContext, demonstrations: Demonstrations, ledger: Ledger) -> None:
    """Charge all private steps of a run before the first, unless it has paid for them."""
    plan = run.plan
    if plan.private is None:
        return
    event = plan.training_event
    if not run.charged(ledger, event):
        facts: dict[str, Any] = dict(run.committed)
        if plan.settings.mode == "paper":
            epsilon, delta = published_budget(plan)
            facts["published"] = {"epsilon": epsilon, "delta": delta}
        charge_training(
            ledger,
            event,
            demonstrations,
            run=run.name,
            accepted=run.options.accepted,
            whole_log=plan.release is None,
            facts=facts,
            marks=[REPRODUCIBLE_NOISE] * run.entropy.reproducible,
        )


def take_steps(run: RunContext, remaining: Demonstrations, released: Released | None) -> TrainState:
    """All steps of the plan that an interrupted run has not taken yet.

    Raises:
        QuorumError: if there is nothing to learn from, or training diverges.
        Interrupted: if `progress` asked for it; what was done is kept.
    """
    folder, plan, declared = run.folder, run.plan, remaining.declared
    private = None
    if plan.private is not None:  # where everybody judges there is nobody, and noise alone
        private = private_source(remaining) if remaining.expert_count else nobody(declared)
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
    total = len(steps.schedule)
    runs = runs_of([plan], Keys(*(np.array([run.keys[name]]) for name in Keys._fields)), steps)
    sizes = declared.observation_size, declared.action_count
    start = folder.resumed(fresh(plan, runs, sizes))
    curve = None
    if released is not None and len(released):
        curve = LossCurve(folder.metrics, plan.recipe, released, begun_at=int(start.step[0]))
    saved = time.monotonic()
    stopped_after = None
    progress = run.options.progress

    def after_chunk(state: TrainState, done: int) -> bool:
        nonlocal saved
        if curve is not None:
            curve.add(state, done)
        if time.monotonic() - saved > SECONDS_BETWEEN_SAVES:
            folder.save(state)
            saved = time.monotonic()
        return asked_to_stop(state, done)

    def asked_to_stop(state: TrainState, done: int) -> bool:
        nonlocal stopped_after
        if progress is not None and progress(done, total):
            folder.save(state)
            stopped_after = done
        return stopped_after is not None

    last = start
    if not asked_to_stop(start, int(start.step[0])):
        if private is not None:
            let_others_train(remaining, steps)
        last = train_runs(plan, runs, steps, start, private, after_chunk)
    if stopped_after is not None:
        raise Interrupted(
            f"stopped after {stopped_after} of {total} steps; {str(folder.path)!r} keeps them."
        )
    return last


class LossCurve:
    """A file with a line of JSON for every chunk: `step` and `loss_on_released`.

    The loss is that of the parameters which training would return then.

    Guarantee: a function of released data and of parameters that the guarantee covers at every
    step, so it may be shown and costs nothing.
    """

    def __init__(self, path: Path, recipe: Recipe, released: Released, *, begun_at: int) -> None:
        """Go on with a curve whose training goes on at a step: later lines are taken again."""
        self._path, self._recipe = path, recipe
        count = int(released.offsets[-1])
        chosen = np.linspace(0, count - 1, min(count, MOST_TRANSITIONS)).round().astype(int)
        self._transitions = at(flat_transitions(released), jnp.asarray(chosen))
        with replacing(path) as temporary:
            temporary.write_text("".join(_lines_until(path, begun_at)))

    def add(self, state: TrainState, step: int) -> None:
        """Write down the loss after so many steps."""
        params, target = jax.tree.map(
            lambda leaf: leaf[0], (result_of(self._recipe, state), state.target)
        )
        learner: Any = self._recipe.learner
        loss = float(_mean_loss(learner)(params, target, self._transitions))
        line = json.dumps({"step": step, "loss_on_released": loss}) + "\n"
        try:
            with self._path.open("a") as file:
                file.write(line)
        except OSError as error:
            raise QuorumError(
                f"{str(self._path)!r} cannot be written: {error.strerror}."
            ) from error


def _lines_until(path: Path, step: int) -> list[str]:
    """The whole lines of a curve up to a step; the last one may have been cut off."""
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
