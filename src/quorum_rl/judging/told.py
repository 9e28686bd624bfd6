"""What one judge tells: a vector no longer than 1, from its own log and the policy alone."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from quorum_rl.judging.plan import JudgingPlan
from quorum_rl.judging.values import Beside, Candidate, beside, nearness, worth
from quorum_rl.logs import Demonstrations

Floats = npt.NDArray[np.float64]


def told_by(judges: Demonstrations, candidates: Sequence[Candidate], plan: JudgingPlan) -> Floats:
    """What every judge tells of the policies. SENSITIVE.

    Guarantee: a row is a function of that judge's log, the policies, their values and the plan: a
    policy is asked about one judge's states at a time, for floats depend on what else is computed
    with them. Its norm is at most 1. Nothing in a log stops the others from telling.

    Shapes: (judges, plan.size).
    """
    rows = [_told(judges, expert, candidates, plan) for expert in range(judges.expert_count)]
    return np.array(rows).reshape(len(rows), plan.size)


def _told(
    judges: Demonstrations, expert: int, candidates: Sequence[Candidate], plan: JudgingPlan
) -> Floats:
    told: dict[str, list[Floats]] = {name: [] for name in plan.blocks}

    def tell(name: str, what: float | Floats) -> None:
        told[name].append(np.atleast_1d(np.asarray(what, np.float64)))

    tell("judges", 1.0)
    earned, bounds = 0.0, plan.judges.return_bounds
    if bounds is not None:
        returns = [
            float(judges.episode(e).rewards.sum(dtype=np.float64))
            for e in judges.episodes_of(expert)
        ]
        earned = _within(float(np.mean(returns)), bounds)
        tell("mean_return", earned)
        tell("spread_of_returns", _square(earned))
    for candidate in candidates:
        row = beside(judges, expert, candidate.policy)
        if plan.action_bounds:
            same, other = _by_number(nearness(row, plan.action_bounds))
        else:
            same, other = _by_action(row, plan.action_count)
        agreement = 2 * same.sum() - 1
        tell("agreement", agreement)
        tell("spread_of_agreement", _square(agreement))
        tell("actions", np.concatenate([same, other]))
        if candidate.values is not None and bounds is not None:
            value = _within(worth(row, candidate.values), bounds)
            tell("value", value)
            tell("spread_of_value", _square(value))
            tell("spread_of_gain", _square((value - earned) / 2))
    whole = [plan.blocks[name].weight * np.concatenate(parts) for name, parts in told.items()]
    return np.concatenate(whole)


def _within(number: float, bounds: Sequence[float]) -> float:
    """A number between the bounds as one between −1 and 1; cut to that, and −1 where it is none."""
    low, high = bounds
    return float(np.clip(np.nan_to_num(2 * (number - low) / (high - low) - 1, nan=-1.0), -1, 1))


def _square(number: float) -> float:
    """Twice the square less one: that lies between −1 and 1 too."""
    return 2 * number**2 - 1


def _by_number(near: Floats) -> tuple[Floats, Floats]:
    """How near the policy comes to what a judge did, for each number of an action, and how far off.

    As those of `_by_action`, they add up to 1. Shapes: (action_count,) each.
    """
    return near / len(near), (1 - near) / len(near)


def _by_action(row: Beside, action_count: int) -> tuple[Floats, Floats]:
    """Of a judge's steps, the shares by the action it took: where the policy does it, and not.

    All of them add up to 1, so their norm is at most 1. Shapes: (actions,) each.
    """
    steps = len(row.action)
    same = np.bincount(row.action[row.agrees], minlength=action_count) / steps
    other = np.bincount(row.action[~row.agrees], minlength=action_count) / steps
    return same, other
