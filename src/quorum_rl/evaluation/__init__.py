"""How good a learned policy is, measured where there is a simulator.

Nothing here touches what is private. Policies may be run as often as one likes once they have been
released.
"""

from typing import TYPE_CHECKING

from quorum_rl.lazy import load_when_used

if TYPE_CHECKING:
    from quorum_rl.evaluation.in_gymnasium import (
        gymnasium_returns as gymnasium_returns,
        same_world as same_world,
    )
    from quorum_rl.evaluation.protocol import PROTOCOLS as PROTOCOLS, Protocol as Protocol
    from quorum_rl.evaluation.returns import (
        GreedyPolicy as GreedyPolicy,
        as_fraction_of as as_fraction_of,
        evaluation_params as evaluation_params,
        greedy_policy as greedy_policy,
        policy_returns as policy_returns,
        returns_of as returns_of,
        scores_of as scores_of,
    )
    from quorum_rl.evaluation.summary import (
        Interval as Interval,
        Scores as Scores,
        Summary as Summary,
        interquartile_mean as interquartile_mean,
        paired_difference as paired_difference,
        summarise as summarise,
    )
else:
    __all__, __getattr__ = load_when_used(__name__)
