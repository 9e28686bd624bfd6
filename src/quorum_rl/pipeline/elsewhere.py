"""A fit from logs that are not here: the plan, the ledger and the folder are, and the noise."""

import numpy as np

from quorum_rl.budget import Budget
from quorum_rl.logs import Columns, Declared, Demonstrations, Episodes
from quorum_rl.pipeline.context import RunOptions
from quorum_rl.pipeline.plan import FitPlan
from quorum_rl.pipeline.run import Fitted, carried_out


def fit_elsewhere(
    plan: FitPlan, declared: Declared, budget: Budget | None, options: RunOptions
) -> Fitted:
    """Carry out a plan whose every step is private, with sums that `options.elsewhere` asks for.

    All else is as in `fit`: the ledger is charged before the first sum is asked for.
    """
    log = _nobodys(declared)
    return carried_out(plan, log, lambda _run, _ledger: (None, log), budget, options)


def _nobodys(declared: Declared) -> Demonstrations:
    """What is declared of logs, and none of them."""
    seen, none = np.zeros((0, declared.observation_size), np.float32), np.zeros(0, np.int64)
    columns = Columns(seen, none, none.astype(np.float32))
    episodes = Episodes(none, none, none, none, none > 0, none > 0)
    return Demonstrations(declared, columns, episodes)
