"""An audit of the judged sum: an adversary who knows all others looks for one judge in it."""

from contextlib import nullcontext

import numpy as np
import pytest

from quorum_rl.audit.bounds import gaussian_lower_bound
from quorum_rl.audit.planted_bugs import planted
from quorum_rl.judging import Judges, JudgingPlan, ask
from quorum_rl.privacy import total_epsilon

RUNS, DELTA = 400, 0.01


def found_and_claimed(bug: str | None) -> tuple[float, float]:
    """The ε that the adversary proves, with 95% confidence or so, and the one that is charged.

    The judge tells far more than it may, in a direction of its own.
    """
    plan = JudgingPlan(
        judges=Judges(share=0.5, return_bounds=(0, 1)),
        action_count=2,
        expected=10,
        noise_multiplier=1.0,
    )
    others = np.random.default_rng(0).dirichlet(np.ones(plan.size), 10)
    own = np.full((1, plan.size), 5.0)
    weights = np.concatenate([np.full(block.size, block.weight) for block in plan.blocks.values()])
    keys = np.random.default_rng(1).integers(0, 2**32, (2, RUNS, 2), dtype=np.uint32)
    with nullcontext() if bug is None else planted(bug):
        present, absent = (
            [float((ask(told, plan, key) * weights).sum()) for key in keys[side]]
            for side, told in enumerate((np.vstack([others, own]), others))
        )
    found = gaussian_lower_bound(present, absent, DELTA)
    return found.epsilon, total_epsilon([plan.event], DELTA)


def test_no_more_is_found_than_is_charged_and_not_much_less() -> None:
    found, claimed = found_and_claimed(None)
    assert 0.6 * claimed < found <= claimed


@pytest.mark.parametrize("bug", ["noise-halved", "clipping-off"])
def test_a_planted_bug_is_found(bug: str) -> None:
    found, claimed = found_and_claimed(bug)
    assert found > claimed
