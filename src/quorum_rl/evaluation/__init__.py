"""How good a learned policy is: measured where there is a simulator, estimated where there is none.

Nothing here touches what is private. Policies may be run as often as one likes once they have been
released, and the estimate takes `Released` prefixes only.
"""

from quorum_rl.evaluation.fitted_q import FittedQEstimate, fitted_q_estimate
from quorum_rl.evaluation.in_gymnasium import gymnasium_returns, same_world
from quorum_rl.evaluation.policies import policy_returns
from quorum_rl.evaluation.protocol import PROTOCOLS, Protocol, get_protocol
from quorum_rl.evaluation.returns import (
    GreedyPolicy,
    as_fraction_of,
    evaluation_params,
    greedy_policy,
    returns_of,
    scores_of,
)
from quorum_rl.evaluation.summary import (
    Interval,
    Summary,
    interquartile_mean,
    paired_difference,
    summarise,
)

__all__ = [
    "PROTOCOLS",
    "FittedQEstimate",
    "GreedyPolicy",
    "Interval",
    "Protocol",
    "Summary",
    "as_fraction_of",
    "evaluation_params",
    "fitted_q_estimate",
    "get_protocol",
    "greedy_policy",
    "gymnasium_returns",
    "interquartile_mean",
    "paired_difference",
    "policy_returns",
    "returns_of",
    "same_world",
    "scores_of",
    "summarise",
]
