"""What the judges of a run say: their part, its payment, and their answers in the run's folder."""

from collections.abc import Sequence

import numpy as np

from quorum_rl.budget import Ledger, SplitKey, jax_key_data
from quorum_rl.distributed import is_single_process
from quorum_rl.errors import QuorumError
from quorum_rl.judging import Judges, Verdict, ask, told_by, verdict
from quorum_rl.logs import Demonstrations
from quorum_rl.pipeline.context import RunContext
from quorum_rl.pipeline.training_stage import charge_training
from quorum_rl.policy import Policy
from quorum_rl.release import REPRODUCIBLE_NOISE


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


def split_in_run(run: RunContext, ledger: Ledger) -> SplitKey | None:
    """What tells the judges from the others, where the plan has some. SECRET.

    Raises:
        QuorumError: if the ledger was split otherwise, or its key is not there.
    """
    plan = run.plan.judging
    return None if plan is None else ledger.split(plan.judges.share, run.entropy)


def judged(run: RunContext, judges: Demonstrations, policy: Policy, ledger: Ledger) -> Verdict:
    """Pay for the judges' answers, and ask. An interrupted run gets the same again, for nothing.

    Guarantee: the policy is that of the run's keys and the noise follows from them too, so whoever
    asks twice hears the same.
    """
    plan = run.plan.judging
    assert plan is not None  # there are judges
    if not run.charged(ledger, plan.event):
        charge_training(
            ledger,
            plan.event,
            judges,
            run=run.name,
            accepted=run.options.accepted,
            accepted_by=run.options.accepted_by,
            whole_log=run.plan.release is None,
            facts=dict(run.committed),
            marks=[REPRODUCIBLE_NOISE] * run.entropy.reproducible,
        )
    noise_key = jax_key_data(run.release_entropy, "noise of the judges")
    sums = ask(told_by(judges, policy, plan), plan, np.asarray(noise_key))
    answers = verdict(sums, plan)
    run.folder.write_json("judging.json", {"judges": plan.to_json(), **answers.to_json()})
    run.report(answers.describe())
    return answers
