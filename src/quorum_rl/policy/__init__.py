"""Acting with what was learned: a policy is a file that anyone may read. NumPy only, no JAX, but
where a policy acts by code of the user's own."""

from typing import TYPE_CHECKING

from quorum_rl.lazy import load_when_used

if TYPE_CHECKING:
    from quorum_rl.nets import Layer as Layer, Network as Network
    from quorum_rl.policy.by_code import (
        ByCode as ByCode,
        acting_by_code as acting_by_code,
        learner_name as learner_name,
    )
    from quorum_rl.policy.policy import Policy as Policy
else:
    __all__, __getattr__ = load_when_used(__name__)
