"""Worlds small enough to enumerate: trees, whose states are the histories that led to them.

A node is a state; a prefix of a trajectory *is* the node where it ends. Experts are tables of
action probabilities at every node, given as a few kinds of expert with so many copies of each.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]

Step: TypeAlias = tuple[int, int]  # an action and which of its successors came


@dataclass(frozen=True)
class Tree:
    """A world without loops; parents come before children, node 0 is a start state.

    Shapes:
        All fields: one entry per node. At a start state `parent` and `action` are −1, and
        `chance` is the probability to start there; elsewhere it is that of this successor.
    """

    actions: int
    parent: Ints
    action: Ints
    chance: Floats
    depth: Ints

    @property
    def nodes(self) -> int:
        return len(self.parent)

    @property
    def terminal(self) -> Flags:
        """Where episodes end, as everybody knows."""
        return ~np.isin(np.arange(self.nodes), self.parent)


@dataclass(frozen=True)
class Experts:
    """Kinds of experts, so many of each, and what their logs are like.

    Sound logs come from the policy itself (`logged` is None), end where the world ends them
    (`cut` is None) and fill everybody's pool (`pooled` is None): the rest are hazards.

    Shapes:
        policy, logged: (kinds, nodes, actions); copies, pooled: (kinds,); cut: (kinds, nodes),
        true where the logs of a kind end although the world goes on.
    """

    policy: Floats
    copies: Ints
    logged: Floats | None = None
    cut: Flags | None = None
    pooled: Flags | None = None


def grow(
    actions: int,
    depth: int,
    starts: Sequence[float] = (1.0,),
    successors: Sequence[float] = (1.0,),
    ends: Callable[[tuple[Step, ...]], bool] = lambda _: False,
) -> Tree:
    """The tree of all histories of `depth` steps, cut short after the steps that `ends` names."""
    parent, action, chance = [-1] * len(starts), [-1] * len(starts), list(starts)
    layer: list[tuple[int, tuple[Step, ...]]] = [(start, ()) for start in range(len(starts))]
    depths = [0] * len(starts)
    for level in range(1, depth + 1):
        grown: list[tuple[int, tuple[Step, ...]]] = []
        for node, steps in layer:
            if ends(steps):
                continue
            for taken in range(actions):
                for successor, probability in enumerate(successors):
                    grown.append((len(parent), (*steps, (taken, successor))))
                    parent.append(node)
                    action.append(taken)
                    chance.append(probability)
                    depths.append(level)
        layer = grown
    return Tree(
        actions, np.array(parent), np.array(action), np.array(chance, float), np.array(depths)
    )


def chain(depth: int, actions: int = 2, starts: Sequence[float] = (1.0,)) -> Tree:
    """A tree where action 0 goes on, for `depth` steps, and every other ends the episode."""
    return grow(actions, depth, starts, ends=lambda steps: bool(steps) and steps[-1][0] != 0)


def always(tree: Tree, action: int, floor: float) -> Floats:
    """The table of an expert who takes `action` as often as the floor allows."""
    table = np.full((tree.nodes, tree.actions), floor)
    table[:, action] = 1 - (tree.actions - 1) * floor
    return table


def along(tree: Tree, actions: Sequence[int], floor: float) -> Floats:
    """The table of an expert who takes the action listed for each depth, and then the last one."""
    which = np.array(actions)[np.minimum(tree.depth, len(actions) - 1)]
    table = np.full((tree.nodes, tree.actions), floor)
    table[np.arange(tree.nodes), which] = 1 - (tree.actions - 1) * floor
    return table


def experts(*kinds: tuple[int, Floats]) -> Experts:
    """So many copies of each table."""
    return Experts(np.stack([table for _, table in kinds]), np.array([many for many, _ in kinds]))


def reach(tree: Tree, policy: Floats) -> Floats:
    """The probability of every node under each kind's policy.

    Shapes:
        policy: (kinds, nodes, actions) to (kinds, nodes).
    """
    reached = np.empty(policy.shape[:2])
    for node in range(tree.nodes):
        before, action = tree.parent[node], tree.action[node]
        came = 1.0 if before < 0 else reached[:, before] * policy[:, before, action]
        reached[:, node] = came * tree.chance[node]
    return reached


def trajectory_ends(tree: Tree, who: Experts) -> Floats:
    """The probability that a logged trajectory of each kind ends at each node: (kinds, nodes)."""
    policy = who.policy if who.logged is None else who.logged
    cut = np.zeros(policy.shape[:2], bool) if who.cut is None else who.cut
    reached = reach(tree, policy)
    gone = np.zeros_like(cut)  # below a cut: never in the log
    for node in range(tree.nodes):
        if (before := tree.parent[node]) >= 0:
            gone[:, node] = gone[:, before] | cut[:, before]
    return np.where((tree.terminal | cut) & ~gone, reached, 0.0)
