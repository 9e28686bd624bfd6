"""A log in which every state is a number of its own, so that one sees where anything came from."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from tree_logs import table_experts
from trees import Floats

from quorum_rl.budget import ASSUMPTIONS, Ledger, SeededEntropy
from quorum_rl.budget.certificates import AT_SITES, OF_PARTS
from quorum_rl.experts import LoggedExperts, UnloggedExperts
from quorum_rl.logs import Declared, Demonstrations, from_episodes
from quorum_rl.privacy.planner import ReleasePlan
from quorum_rl.release import release
from quorum_rl.types import Released

HORIZON = 6
TRAJECTORIES = 5
EVERYTHING = tuple(name for name in ASSUMPTIONS if name not in (*OF_PARTS, *AT_SITES))


class Scene(NamedTuple):
    """Experts who always prefer action 0, and what they did."""

    experts: LoggedExperts
    log: Demonstrations


def scene(trajectories: list[int], experts: int | None = None, seed: int = 0) -> Scene:
    """Expert i with so many episodes, of one to HORIZON steps; those below HORIZON terminate.

    The state of row r is r, the reward of step t is t/2, and every action is 0.
    """
    rng = np.random.default_rng(seed)
    expert = np.repeat(np.arange(len(trajectories)), trajectories)
    length = rng.integers(1, HORIZON + 1, size=len(expert))
    length[::2] = HORIZON
    steps = int(length.sum())
    declared = Declared(2, 1, HORIZON, p_min=0.1)
    log = from_episodes(
        declared,
        expert=expert,
        length=length,
        observations=np.arange(steps + len(expert))[:, None],
        actions=np.zeros(steps, np.int64),
        rewards=np.arange(steps) / 2,
        terminated=length < HORIZON,
        truncated=length == HORIZON,
    )
    count = len(trajectories) if experts is None else experts
    tables = np.broadcast_to([0.9, 0.1], (count, steps + len(expert), 2))
    return Scene(table_experts(tables, 0.1), log)


@dataclass(frozen=True, kw_only=True, eq=False)
class WatchedExperts(UnloggedExperts):
    """Other experts, and somebody who hears of every query before it is answered."""

    original: LoggedExperts = field(repr=False)
    heard: Callable[[], None]

    def __len__(self) -> int:
        return len(self.original)

    def probabilities_of(self, experts: slice, observations: npt.ArrayLike) -> Floats:
        self.heard()
        return self.original.probabilities_of(experts, observations)


def watched(experts: LoggedExperts, heard: Callable[[], None]) -> LoggedExperts:
    return LoggedExperts(
        WatchedExperts(
            observation_size=experts.observation_size,
            action_count=experts.action_count,
            p_min=experts.p_min,
            original=experts,
            heard=heard,
        )
    )


def seeded(
    scene: Scene,
    plan: ReleasePlan,
    path: Path,
    seed: int = 0,
) -> Released:
    """The release with noise from a seed, under all assumptions there are."""
    with Ledger.open(path) as ledger:
        return release(
            scene.experts,
            scene.log,
            plan,
            ledger,
            accepted=EVERYTHING,
            entropy=SeededEntropy(seed),
        ).released


def states(released: Released) -> list[int]:
    """The number of every state in which somebody acted."""
    return [int(state) for state in np.asarray(released.transitions.observation)[:, 0]]
