"""Acting with what was learned: NumPy only, no JAX. A policy is a file that anyone may read."""

from typing import TYPE_CHECKING

from quorum_rl.lazy import load_when_used

if TYPE_CHECKING:
    from quorum_rl.nets import Layer as Layer, Network as Network
    from quorum_rl.policy.policy import Policy as Policy
else:
    __all__, __getattr__ = load_when_used(__name__)
