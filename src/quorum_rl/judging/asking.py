"""Asking the judges: one noisy sum of what they tell."""

import numpy as np
import numpy.typing as npt

from quorum_rl.budget import SplitKey
from quorum_rl.judging.plan import JudgingPlan
from quorum_rl.logs import Demonstrations
from quorum_rl.training import noisy_sum

Floats = npt.NDArray[np.float64]


def parted(demonstrations: Demonstrations, key: SplitKey) -> tuple[Demonstrations, Demonstrations]:
    """Those to be learned from, and the judges; either may be nobody. SENSITIVE.

    Guarantee: an expert's whole log is in one of the two, by its own name and the key.
    """
    judging = key.judges(demonstrations.names)
    episodes = np.repeat(judging, np.diff(demonstrations.expert_episode_offsets))
    return demonstrations.select(~episodes), demonstrations.select(episodes)


def ask(told: Floats, plan: JudgingPlan, noise_key: npt.NDArray[np.uint32]) -> Floats:
    """The noisy sums of what the judges tell, in the units of each block.

    Guarantee: with a fresh secret key it is as private as `plan.event` says, for judges of whom one
    takes part or not: a row that is longer than 1 is clipped.

    Shapes: `told` (judges, size), `noise_key` (2,), words; (size,).
    """
    sums = noisy_sum(
        told,
        noise_multiplier=plan.noise_multiplier,
        expected=plan.expected,
        noise_key=noise_key,
    )
    weights = np.concatenate([np.full(block.size, block.weight) for block in plan.blocks.values()])
    made: Floats = sums / weights
    return made
