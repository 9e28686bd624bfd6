"""Experts in trees and their logs, as the product takes them: a state is the number of its node."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from trees import Floats, Ints, Tree

from quorum_rl.experts import LoggedExperts, UnloggedExperts
from quorum_rl.experts.checks import checked_observations
from quorum_rl.logs import Declared, Demonstrations, from_padded


@dataclass(frozen=True, kw_only=True, eq=False)
class TableExperts(UnloggedExperts):
    """Experts whose probabilities are looked up; the observation is the number of a state.

    Shapes: `tables` (experts, states, action_count).
    """

    tables: Floats = field(repr=False)

    def __len__(self) -> int:
        return len(self.tables)

    def probabilities_of(self, experts: slice, observations: npt.ArrayLike) -> Floats:
        states = checked_observations(observations, 1)[:, 0].astype(np.int64)
        return self.tables[experts][:, states]


def table_experts(tables: Floats, p_min: float = 0.0) -> LoggedExperts:
    """Experts with these tables who have acted."""
    actions = tables.shape[-1]
    return LoggedExperts(
        TableExperts(observation_size=1, action_count=actions, p_min=p_min, tables=tables)
    )


def random_tables(tree: Tree, experts: int, floor: float, seed: int) -> Floats:
    """So many experts, each with random probabilities above the floor at every node."""
    rng = np.random.default_rng(seed)
    drawn = rng.dirichlet(np.ones(tree.actions), size=(experts, tree.nodes))
    return np.asarray(floor + (1 - tree.actions * floor) * drawn)


def tree_logs(
    tree: Tree, experts: LoggedExperts, trajectories: npt.ArrayLike, seed: int = 0
) -> Demonstrations:
    """What the experts do in the tree, so many trajectories of each; a step's reward is the number
    of the node it leads to."""
    rng = np.random.default_rng(seed)
    many = np.broadcast_to(np.asarray(trajectories), len(experts))
    expert = np.repeat(np.arange(len(experts)), many)
    tables = experts.probabilities(np.arange(tree.nodes)[:, None])
    horizon = int(tree.depth.max())
    nodes = np.zeros((len(expert), horizon + 1), np.int64)
    actions = np.zeros((len(expert), horizon), np.int64)
    starts = np.flatnonzero(tree.parent < 0)
    nodes[:, 0] = rng.choice(starts, size=len(expert), p=tree.chance[starts])
    for time in range(horizon):
        before = nodes[:, time]
        edges = tables[expert, before].cumsum(axis=1)[:, :-1]
        actions[:, time] = (rng.random(len(expert))[:, None] >= edges).sum(axis=1)
        after = _successors(tree, before, actions[:, time], rng.random(len(expert)))
        nodes[:, time + 1] = np.where(tree.terminal[before], before, after)
    length = tree.depth[nodes[:, -1]]
    p_min = experts.p_min or None
    return from_padded(
        Declared(tree.actions, 1, horizon, p_min=p_min, world="tree"),
        expert=expert,
        length=length,
        observations=nodes[..., None],
        actions=actions,
        rewards=nodes[:, 1:],
        terminated=length < horizon,
        truncated=length == horizon,
    )


def _successors(tree: Tree, before: Ints, action: Ints, uniform: Floats) -> Ints:
    """Where an action leads, by inversion of one uniform number each; 0 where nowhere."""
    after = np.zeros(len(before), np.int64)
    passed = np.zeros((tree.nodes, tree.actions))  # the chance of the successors seen so far
    for node in np.flatnonzero(tree.parent >= 0):
        way = tree.parent[node], tree.action[node]
        here = (before == way[0]) & (action == way[1]) & (uniform >= passed[way])
        after[here] = node  # a later successor takes over if the number reaches it, too
        passed[way] += tree.chance[node]
    return after
