"""Acting with what was learned: NumPy only, no JAX. A policy is a file that anyone may read."""

from quorum_rl.policy.networks import Layer, Network
from quorum_rl.policy.policy import Policy

__all__ = ["Layer", "Network", "Policy"]
