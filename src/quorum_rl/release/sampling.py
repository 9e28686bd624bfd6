"""Which trajectories a release looks at: private, and drawn before anything is counted."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from quorum_rl.budget import Entropy
from quorum_rl.logs import Demonstrations
from quorum_rl.release.mechanism import Integers


class Drawn(NamedTuple):
    """One trajectory for each iteration. SENSITIVE: who was drawn must not come out.

    Shapes: `episode` (iterations,), the number of an episode in the pool, −1 for none.
    """

    pool: Demonstrations
    episode: Integers

    def lengths(self) -> Integers:
        """How many steps each has; 0 for none."""
        steps = np.append(self.pool.episodes.length, 0)
        return steps[self.episode].astype(np.int64)

    def padded(self, steps: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]:
        """States and actions of the first `steps` steps, zeros where there are none.

        Shapes: `(iterations, steps, observation_size)` and `(iterations, steps)`.
        """
        width = self.pool.declared.observation_size
        states = np.zeros((len(self.episode), steps, width), np.float32)
        actions = np.zeros((len(self.episode), steps), np.int32)
        for iteration, number in enumerate(self.episode.tolist()):
            if number >= 0:
                episode = self.pool.episode(number)
                taken = min(len(episode.actions), steps)
                states[iteration, :taken] = episode.observations[:taken]
                actions[iteration, :taken] = episode.actions[:taken]
        return states, actions


def draw_fresh(pool: Demonstrations, iterations: int, entropy: Entropy) -> Drawn:
    """An expert uniformly with replacement, then its next trajectory; none if it has no more left.

    In a `pool` of R trajectories of every expert, this differs from drawing fresh trajectories
    without end only if some expert is drawn more than R times (Theorem 4 of docs/theory.md).
    """
    offsets = pool.expert_episode_offsets
    used = np.zeros(pool.expert_count, np.int64)
    episode = np.full(iterations, -1, np.int64)
    for iteration in range(iterations if pool.expert_count else 0):
        expert = entropy.stream("expert", iteration).below(pool.expert_count)
        following = int(offsets[expert] + used[expert])
        if following < offsets[expert + 1]:
            episode[iteration] = following
            used[expert] += 1
    return Drawn(pool, episode)


def draw_as_published(log: Demonstrations, iterations: int, entropy: Entropy) -> Drawn:
    """The first trajectories of the reshuffled log, as the paper's Algorithm 2 draws them."""
    order = np.arange(len(log))
    count = min(iterations, len(log))
    for place in range(count):
        other = place + entropy.stream("shuffle", place).below(len(log) - place)
        order[[place, other]] = order[[other, place]]
    episode = np.full(iterations, -1, np.int64)
    episode[:count] = order[:count]
    return Drawn(log, episode)
