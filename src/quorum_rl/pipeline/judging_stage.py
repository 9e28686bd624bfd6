"""What the judges of a run say: their part, its payment, and their answers in the run's folder."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from quorum_rl.budget import Ledger, SplitKey, jax_key_data
from quorum_rl.distributed import is_single_process
from quorum_rl.errors import QuorumError
from quorum_rl.judging import (
    Candidate,
    Judges,
    Verdict,
    ask,
    fitted_values,
    told_by,
    value_step,
    verdicts,
)
from quorum_rl.logs import Demonstrations
from quorum_rl.pipeline.context import RunContext
from quorum_rl.pipeline.training_stage import pay_for
from quorum_rl.policy import Policy


def judges_of(share: float | None, return_bounds: Sequence[float] | None) -> Judges | None:
    """The judges that were asked for, if any.

    Raises:
        QuorumError: for numbers that are none, or in a fit of several processes.
    """
    if share is None:
        if return_bounds is not None:
            raise QuorumError(
                "return_bounds are for judges: say which share of the experts judges."
            )
        return None
    if not is_single_process():
        raise QuorumError("a fit with judges is for one process: start it by itself.")
    return Judges(share=share, return_bounds=return_bounds)


class Parts(NamedTuple):
    """Whom is learned from, and who judges; either may be nobody. SENSITIVE."""

    others: Demonstrations
    judges: Demonstrations


def split_in_run(run: RunContext, ledger: Ledger) -> SplitKey | None:
    """What tells the judges from the others, where the plan has some. SECRET.

    Raises:
        QuorumError: if the ledger was split otherwise, or its key is not there.
    """
    plan = run.plan.judging
    return None if plan is None else ledger.split(plan.judges.share, run.entropy)


def judged(
    run: RunContext, parts: Parts, policies: Sequence[Policy], ledger: Ledger
) -> tuple[Verdict, ...]:
    """Pay for the policies' values and for the judges' answers, and ask. An interrupted run gets
    the same again, for nothing.

    Guarantee: policies are those of the run's keys and all noise follows from them too, so whoever
    asks twice hears the same.
    """
    plan = run.plan.judging
    assert plan is not None  # there are judges
    candidates = [Candidate(policy) for policy in policies]
    if plan.values is not None:
        pay_for(run, "values", parts.others, ledger)
        step = value_step(plan.values.noise_multiplier, plan.values.expected)
        learner, size = run.plan.learner, parts.others.declared.observation_size
        centre = getattr(learner, "observation_centre", ())
        units = plan.values.units(centre, getattr(learner, "observation_scale", ()), size)
        candidates = [
            Candidate(
                policy,
                fitted_values(parts.others, policy, units, step, _key(run, f"values {number}")),
            )
            for number, policy in enumerate(policies)
        ]
    pay_for(run, "judges", parts.judges, ledger)
    sums = ask(told_by(parts.judges, candidates, plan), plan, _key(run, "judges"))
    return verdicts(sums, plan)


def _key(run: RunContext, what: str) -> npt.NDArray[np.uint32]:
    """The words of the key of the noise of something. SECRET."""
    return np.asarray(jax_key_data(run.release_entropy, f"noise of the {what}"))


def say(run: RunContext, said: Verdict, labels: Sequence[str]) -> None:
    """The answers in the run's folder, and in a few lines; actions by their labels, if any."""
    plan = run.plan.judging
    assert plan is not None  # there are judges
    run.folder.write_json("judging.json", {"judges": plan.to_json(), **said.to_json()})
    run.report(said.describe(labels, continuous=bool(plan.action_bounds)))
