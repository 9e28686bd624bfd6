"""What the judges of a run say: their part, its payment, and their answers in the run's folder."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from quorum_rl.budget import Ledger, SplitKey, jax_key_data
from quorum_rl.dictionary import Dictionary
from quorum_rl.judging import (
    Candidate,
    Verdict,
    ask,
    best_of,
    fitted_values,
    told_by,
    value_step,
    verdicts,
)
from quorum_rl.logs import Demonstrations
from quorum_rl.pipeline.context import RunContext
from quorum_rl.pipeline.export import policy_of
from quorum_rl.pipeline.plan import FitPlan
from quorum_rl.pipeline.training_stage import pay_for
from quorum_rl.policy import Policy, learner_name


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


class Judged(NamedTuple):
    """What the judges say of the policy that they chose, its number, and the plan as it turned out:
    that policy's learner is its first."""

    plan: FitPlan
    chosen: int
    verdict: Verdict


def judged(run: RunContext, parts: Parts, learnt: Sequence[Any], ledger: Ledger) -> Judged:
    """Pay for the values of the policies with these parameters, and for the judges' answers; ask,
    and write down. An interrupted run gets the same again, for nothing.

    Guarantee: policies are those of the run's keys and all noise follows from them too, so whoever
    asks twice hears the same. Which is chosen follows from the answers alone.
    """
    learners = run.plan.candidates
    declared = parts.judges.declared
    sizes = declared.observation_size, declared.action_count
    bounds = Dictionary(action_bounds=declared.action_bounds) if declared.continuous else None
    policies = [
        policy_of(one, params, dictionary=bounds, sizes=sizes)
        for one, params in zip(learners, learnt, strict=True)
    ]
    said = _answers(run, parts, policies, ledger)
    chosen = best_of(said)
    named = declared.dictionary
    _say(run, said, chosen, () if named is None else named.action_labels)
    others = tuple(one for number, one in enumerate(learners) if number != chosen)
    plan = replace(run.plan, learner=learners[chosen], others=others)
    return Judged(plan, chosen, said[chosen])


def _answers(
    run: RunContext, parts: Parts, policies: Sequence[Policy], ledger: Ledger
) -> tuple[Verdict, ...]:
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


def _say(run: RunContext, said: Sequence[Verdict], chosen: int, labels: Sequence[str]) -> None:
    """The answers in the run's folder, and in a few lines; actions by their labels, if any."""
    plan, verdict = run.plan.judging, said[chosen]
    assert plan is not None  # there are judges
    facts = {"judges": plan.to_json(), **verdict.to_json()}
    if run.plan.others:
        names = [learner_name(learner) for learner in run.plan.candidates]
        each = [{"learner": name} | one.to_json() for name, one in zip(names, said, strict=True)]
        facts |= {"chosen": chosen, "candidates": each}
        for name, one in zip(names, said, strict=True):
            run.report(f"{name}: {one.what_it_earns()}")
        run.report(f"the judges choose {names[chosen]}")
    run.folder.write_json("judging.json", facts)
    run.report(verdict.describe(labels))
