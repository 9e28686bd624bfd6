"""A fit from logs that are not here: the plan, the ledger and the folder are, and the noise."""

from pathlib import Path

import numpy as np

from quorum_rl.budget import Budget
from quorum_rl.logs import Columns, Declared, Demonstrations, Episodes
from quorum_rl.pipeline.context import Elsewhere, ReportLine, RunOptions, StepProgress
from quorum_rl.pipeline.metrics import Track
from quorum_rl.pipeline.plan import FitPlan
from quorum_rl.pipeline.run import Fitted, carried_out


def fit_elsewhere(
    plan: FitPlan,
    declared: Declared,
    elsewhere: Elsewhere,
    *,
    budget: Budget | None,
    folder: str | Path,
    accepted: tuple[str, ...],
    accepted_by: str | None,
    seed: int | None,
    report: ReportLine,
    progress: StepProgress | None,
    track: Track | None,
    command: str | None,
) -> Fitted:
    """Carry out a plan whose every step is private, with sums that `elsewhere` asks for.

    All else is as in `fit`: the ledger is charged before the first sum is asked for.
    """
    options = RunOptions(
        folder, accepted, accepted_by, seed, report, progress, track, command, elsewhere
    )
    log = _nobodys(declared)
    return carried_out(plan, log, lambda _run, _ledger: (None, log), budget, options)


def _nobodys(declared: Declared) -> Demonstrations:
    """What is declared of logs, and none of them."""
    seen, none = np.zeros((0, declared.observation_size), np.float32), np.zeros(0, np.int64)
    columns = Columns(seen, none, none.astype(np.float32))
    episodes = Episodes(none, none, none, none, none > 0, none > 0)
    return Demonstrations(declared, columns, episodes)
