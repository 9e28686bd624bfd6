"""The private units of a run: their payment, and what was found, in the run's folder."""

from dataclasses import replace

import numpy as np

from quorum_rl.budget import Ledger, jax_key_data
from quorum_rl.logs import Demonstrations
from quorum_rl.pipeline.context import RunContext
from quorum_rl.pipeline.plan import units_in_words
from quorum_rl.pipeline.training_stage import pay_for
from quorum_rl.pipeline.units import in_units
from quorum_rl.training import ask_units, told_units


def with_units(
    run: RunContext, everyone: Demonstrations, others: Demonstrations, ledger: Ledger
) -> RunContext:
    """The run with learners that have private units, where the plan asks for some.

    Pays for them first, and asks those `others` of everyone who are learned from. An interrupted
    run finds the same again, for nothing.

    Guarantee: the noise follows from the run's keys, so whoever asks twice hears the same.
    """
    plan = run.plan.units
    if plan is None:
        return run
    pay_for(run, "units", everyone, ledger)
    noise_key = jax_key_data(run.release_entropy, "noise of the units")
    found = ask_units(told_units(others, plan), plan, np.asarray(noise_key))
    learners = [in_units(one, plan.asked, found) for one in run.plan.candidates]
    said = units_in_words(*learners)
    units = [None if unit is None else unit._asdict() for unit in found]
    run.folder.write_json("units.json", {**plan.to_json(), "units": units, "said": said})
    for line in said:
        run.report(f"private units: {line}")
    return replace(run, plan=replace(run.plan, learner=learners[0], others=tuple(learners[1:])))
