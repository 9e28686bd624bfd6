"""Which steps are private: drawn before training, from public randomness, and exactly so many.

The paper tosses a coin at every step and accounts as if nobody saw it fall. A step on released data
has no noise, so whoever sees the iterates does see it. Here the order of the steps is public, and
the account is of the private steps that are really taken.
"""

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from quorum_rl.errors import QuorumError

Schedule = npt.NDArray[np.int8]


class Kind(IntEnum):
    """What a step does."""

    NOTHING = -1  # padding behind the last step, or a step that only other runs take
    PLAIN = 0
    PRIVATE = 1


def shuffled_schedule(private_steps: int, plain_steps: int, seed: int) -> Schedule:
    """So many steps of either kind, in random order. `seed` is public.

    Raises:
        QuorumError: if there is no step, or a number is negative.
    """
    if min(private_steps, plain_steps) < 0 or private_steps + plain_steps == 0:
        raise QuorumError(
            f"there are {private_steps} private and {plain_steps} plain steps: give at least one."
        )
    steps = np.full(private_steps + plain_steps, Kind.PLAIN, np.int8)
    steps[:private_steps] = Kind.PRIVATE
    return np.random.default_rng(seed).permutation(steps)


def steps_at_share(private_steps: int, private_share: float) -> int:
    """How many plain steps make the private ones the given share of all.

    Raises:
        QuorumError: if the share is not above 0 and at most 1.
    """
    if not 0 < private_share <= 1:
        raise QuorumError(
            f"the private share is {private_share}: give a number above 0 and at most 1."
        )
    return round(private_steps * (1 / private_share - 1))
