"""Quorum: one policy from the logs of many experts, private for each of them.

The whole flow is `fit`: from `Demonstrations` (what experts did) and an `ExpertSet` (who they are,
to be asked) to a `Policy` that may be published, within a `Budget` and with a `Certificate` of what
it really cost. Nothing heavy is imported before a name is used.
"""

from typing import TYPE_CHECKING

from quorum_rl.lazy import load_when_used

if TYPE_CHECKING:
    from quorum_rl.budget import Budget as Budget, Certificate as Certificate
    from quorum_rl.experts import ExpertSet as ExpertSet
    from quorum_rl.logs import Demonstrations as Demonstrations
    from quorum_rl.pipeline import fit as fit
    from quorum_rl.policy import Policy as Policy
else:
    __all__, __getattr__ = load_when_used(__name__)

    def __dir__() -> list[str]:
        return sorted([*__all__, "__version__"])


__version__ = "0.2.0"
