"""What one judge tells: a vector no longer than 1, from its own log and the policy alone."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from quorum_rl.errors import QuorumError
from quorum_rl.judging.plan import JudgingPlan
from quorum_rl.logs import Demonstrations
from quorum_rl.policy import Policy

Floats = npt.NDArray[np.float64]


def told_by(judges: Demonstrations, policy: Policy, plan: JudgingPlan) -> Floats:
    """What every judge tells. SENSITIVE.

    Guarantee: a row is a function of that judge's log, the policy and the plan: the policy is asked
    about one judge's states at a time, for floats depend on what else is computed with them. Its
    norm is at most 1. Nothing in a log stops the others from telling.

    Shapes: (judges, plan.size).
    """
    rows = [_told(judges, position, policy, plan) for position in range(judges.expert_count)]
    return np.array(rows).reshape(len(rows), plan.size)


def _told(judges: Demonstrations, position: int, policy: Policy, plan: JudgingPlan) -> Floats:
    told = np.zeros(plan.size)

    def tell(name: str, what: npt.ArrayLike) -> None:
        if name in plan.blocks:
            block = plan.blocks[name]
            told[block.place] = block.weight * np.asarray(what)

    tell("judges", 1.0)
    if plan.judges.return_bounds is not None:
        returns = [
            float(judges.episode(e).rewards.sum(dtype=np.float64))
            for e in judges.episodes_of(position)
        ]
        low, high = plan.judges.return_bounds
        earned = 2 * (float(np.mean(returns)) - low) / (high - low) - 1
        _tell_both(tell, "mean_return", "spread_of_returns", earned)
    same, other = _by_action(judges, position, policy, plan.action_count)
    _tell_both(tell, "agreement", "spread_of_agreement", 2 * same.sum() - 1)
    tell("actions", np.concatenate([same, other]))
    return told


def _tell_both(
    tell: Callable[[str, npt.ArrayLike], None], name: str, spread: str, number: float
) -> None:
    """A number between −1 and 1, and twice its square less one: that lies between them too."""
    within = float(np.clip(number, -1, 1))
    tell(name, within)
    tell(spread, 2 * within**2 - 1)


def _by_action(
    judges: Demonstrations, position: int, policy: Policy, action_count: int
) -> tuple[Floats, Floats]:
    """Of a judge's steps, the shares by the action it took: where the policy does it, and not.

    All of them add up to 1, so their norm is at most 1. Shapes: (actions,) each.
    """
    steps = judges.transitions(np.array(judges.transitions_of(position)))
    taken = np.asarray(steps.action)
    try:
        agrees = policy.act(np.asarray(steps.observation)) == taken
    except QuorumError:  # an observation so large that the policy has no answer
        agrees = np.zeros(len(taken), bool)
    same = np.bincount(taken[agrees], minlength=action_count) / len(taken)
    other = np.bincount(taken[~agrees], minlength=action_count) / len(taken)
    return same, other
