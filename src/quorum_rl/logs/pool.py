"""The release pool: which episodes stage 1 may release from, so that stage 2 never sees them.

The two stages compose only if they use different trajectories (gap G2 of the privacy analysis).
Which is which must not depend on what is in them: position alone decides.
"""

from typing import NamedTuple

import numpy as np

from quorum_rl.errors import QuorumError
from quorum_rl.logs.demonstrations import Demonstrations


class ReleaseSplit(NamedTuple):
    """The episodes of stage 1 and those of stage 2.

    Both have the same experts if `per_expert` and `training_minimum` were at least 1; a part that
    was allowed to have 0 episodes of an expert may lack it. An expert keeps its identity in both:
    in collected logs that is its index in the expert set, however many experts were left out.
    """

    pool: Demonstrations
    training: Demonstrations


def split_release_pool(
    demonstrations: Demonstrations, *, per_expert: int, training_minimum: int = 1
) -> ReleaseSplit:
    """Give the first `per_expert` episodes of every expert to the pool, the rest to training.

    An expert with fewer than `per_expert` + `training_minimum` episodes is left out of both, before
    anything is counted or drawn. Both parts are views: nothing is copied.

    Guarantee: whether an expert is kept, and where each of its episodes goes, depends on that
    expert's own number of episodes and on the two declared numbers, on nobody else and on no value.

    Raises:
        QuorumError: if a number is negative. Never because of how many experts remain: that is
            private.
    """
    for name, value in (("per_expert", per_expert), ("training_minimum", training_minimum)):
        if value < 0:
            raise QuorumError(f"{name} is {value}: give a number of episodes, 0 or more.")
    offsets = demonstrations.expert_episode_offsets
    counts = np.diff(offsets)
    position = np.arange(len(demonstrations)) - np.repeat(offsets[:-1], counts)
    kept = np.repeat(counts >= per_expert + training_minimum, counts)
    return ReleaseSplit(
        pool=demonstrations.select(kept & (position < per_expert)),
        training=demonstrations.select(kept & (position >= per_expert)),
    )
