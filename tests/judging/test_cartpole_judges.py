"""Judges of a CartPole policy: intervals cover what all drivers together would say.

The table of docs/judging.md has these numbers. 1000 runs of each size: in each the experts are
drawn from 1000 drivers, coins and noise anew.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from cartpole_crowd import LIMIT, cartpole_crowd, mean_driver
from scipy.stats import binomtest

from quorum_rl.judging import (
    Candidate,
    Judges,
    Values,
    ValueUnits,
    plan_judging,
    plan_values,
    told_by,
    verdicts,
)
from quorum_rl.logs import Demonstrations

RUNS, SHARE = 1000, 0.15
UNITS = ValueUnits((0.0,) * 4, (1.0,) * 4, LIMIT, LIMIT, (0.0, 1.0), 2)
NOTHING = Values(UNITS, np.zeros(UNITS.weights, np.float32))  # what values are is not asked
FALSE_ALARM = 1e-4  # of each of four tests a size
SIZES = [(150, 1.0), (150, 3.0), (300, 1.0), (300, 3.0), (1000, 1.0), (1000, 3.0)]


@pytest.fixture(scope="module")
def drivers() -> Demonstrations:
    return cartpole_crowd(1000)


class Measured(NamedTuple):
    """Of the mean return, the agreement, and that for each action: how many intervals cover the
    truth, how many tell something, and half their width in parts of the bounds."""

    covered: npt.NDArray[np.int64]
    tells: npt.NDArray[np.int64]
    width: npt.NDArray[np.float64]


def measured(drivers: Demonstrations, experts: int, epsilon: float) -> Measured:
    judges = Judges(share=SHARE, return_bounds=(0, LIMIT))
    declared = replace(drivers.declared, minimum_experts=experts)
    cost: Any = {"epsilon": epsilon, "delta": 1 / experts}
    planned = plan_values(declared, (0, LIMIT), **cost)
    plan = plan_judging(declared, judges, **cost, values=planned)
    told = told_by(drivers, [Candidate(mean_driver(), NOTHING)], plan)
    weights = np.concatenate([np.full(block.size, block.weight) for block in plan.blocks.values()])
    blocks = {name: told[:, block.place] / block.weight for name, block in plan.blocks.items()}
    same, other = np.split(blocks["actions"].mean(axis=0), 2)
    returns = [episode.rewards.sum() for episode in drivers]
    truths = [np.mean(returns), (blocks["agreement"].mean() + 1) / 2, *same / (same + other)]
    rng = np.random.default_rng(experts)
    covered, tells, widths = np.zeros(4, int), np.zeros(4, int), []
    for _ in range(RUNS):
        who = rng.integers(0, len(told), experts)[rng.random(experts) < SHARE]
        noise = plan.noise_multiplier * rng.standard_normal(plan.size)
        found = verdicts((told[who].sum(axis=0) + noise) / weights, plan)[0]
        assert found.mean_return is not None
        answers = (found.mean_return, found.agreement, *found.agreement_by_action)
        covered += [a.low <= truth <= a.high for a, truth in zip(answers, truths, strict=True)]
        tells += [answer.tells for answer in answers]
        widths.append([(a.high - a.low) / 2 / (a.bounds[1] - a.bounds[0]) for a in answers])
    return Measured(covered, tells, np.median(widths, axis=0))


@pytest.mark.parametrize(("experts", "epsilon"), SIZES)
def test_intervals_cover_what_all_drivers_would_say(
    drivers: Demonstrations, experts: int, epsilon: float
) -> None:
    found = measured(drivers, experts, epsilon)
    for times in found.covered:
        assert binomtest(int(times), RUNS, 0.95, alternative="less").pvalue > FALSE_ALARM
    if (experts, epsilon) == (150, 1.0):
        assert (found.tells < 0.05 * RUNS).all()
    if experts * epsilon >= 900:
        assert (found.tells[:2] > 0.9 * RUNS).all()
        assert (found.width[:2] < 0.11).all()
