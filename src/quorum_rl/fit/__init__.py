"""Both stages in one call: from logs and experts to a policy, its ledger and its certificate."""

import sys
from types import ModuleType

from quorum_rl.fit.helping import help_fit
from quorum_rl.fit.plan import FitPlan, plan_fit
from quorum_rl.fit.run import Fitted, fit, fit_after_release
from quorum_rl.fit.settings import FitSettings

__all__ = ["FitPlan", "FitSettings", "Fitted", "fit", "fit_after_release", "help_fit", "plan_fit"]


class _Fit(ModuleType):
    """This room, which can also be called: `quorum_rl.fit(...)` is `quorum_rl.fit.fit(...)`.

    Python binds a room's name in the package when it is first imported, in place of the function
    of that name which the package offers.
    """

    __call__ = staticmethod(fit)


sys.modules[__name__].__class__ = _Fit
