"""Quorum: one policy from the logs of many experts, private for each of them.

The whole flow is `fit`: from `Demonstrations` (what experts did) and an `ExpertSet` (who they are,
to be asked) to a `Policy` that may be published, within a `Budget` and with a `Certificate` of what
it really cost. Nothing heavy is imported before a name is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quorum_rl.budget import Budget, Certificate
    from quorum_rl.experts import ExpertSet
    from quorum_rl.fit import fit
    from quorum_rl.logs import Demonstrations
    from quorum_rl.policy import Policy

__version__ = "0.1.0"

__all__ = [
    "Budget",
    "Certificate",
    "Demonstrations",
    "ExpertSet",
    "Policy",
    "__version__",
    "fit",
]

_ROOMS = {
    "Budget": "budget",
    "Certificate": "budget",
    "Demonstrations": "logs",
    "ExpertSet": "experts",
    "Policy": "policy",
}


if not TYPE_CHECKING:  # a type checker knows the names, and no others

    def __getattr__(name: str) -> Any:
        if name == "fit":  # the room, which can be called
            return import_module("quorum_rl.fit")
        if name in _ROOMS:
            return getattr(import_module(f"quorum_rl.{_ROOMS[name]}"), name)
        raise AttributeError(f"module 'quorum_rl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
