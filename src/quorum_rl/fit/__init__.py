"""Both stages in one call: from logs and experts to a policy, its ledger and its certificate.

Only the settings are loaded at once, for the command line; the rest, and JAX, when it is used.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from quorum_rl.fit.settings import FitSettings

if TYPE_CHECKING:
    from quorum_rl.fit.distributed import help_fit
    from quorum_rl.fit.plan import FitPlan, plan_fit
    from quorum_rl.fit.run import Fitted, fit, fit_after_release

__all__ = ["FitPlan", "FitSettings", "Fitted", "fit", "fit_after_release", "help_fit", "plan_fit"]

_MODULES = {
    "FitPlan": "plan",
    "Fitted": "run",
    "fit": "run",
    "fit_after_release": "run",
    "help_fit": "distributed",
    "plan_fit": "plan",
}


if not TYPE_CHECKING:  # a type checker knows the names, and no others

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


class _Fit(ModuleType):
    """This room, which can also be called: `quorum_rl.fit(...)` is `quorum_rl.fit.fit(...)`.

    Python binds a room's name in the package when it is first imported, in place of the function
    of that name which the package offers.
    """

    def __call__(self, *words: Any, **options: Any) -> Any:
        return import_module(f"{__name__}.run").fit(*words, **options)


sys.modules[__name__].__class__ = _Fit
