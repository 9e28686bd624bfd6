"""Both stages in one call: from logs and experts to a policy, its ledger and its certificate."""

from quorum_rl.fit.plan import FitPlan, plan_fit
from quorum_rl.fit.run import Fitted, fit
from quorum_rl.fit.settings import FitSettings

__all__ = ["FitPlan", "FitSettings", "Fitted", "fit", "plan_fit"]
