"""An adversary: hill-climbing over neighbouring expert sets for the largest share of a claim."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
from claims import Both, both_outputs, claimed, spent
from enumeration import SOUND, Faults, needed_epsilon
from trees import Experts, Floats, Tree, along

from quorum_rl.privacy.events import ReleaseEvent
from quorum_rl.privacy.pairs import pair_of

NEGLIGIBLE: Final = 1e-9  # the lattice is taken as the real line, which is right to 2**-32
WATCHED: Final = (0.0, 0.2, 0.4, 0.6, 0.8, 0.95, 1.0)  # ε, as shares of the largest losses


class Shares(NamedTuple):
    """How much of what is claimed a case uses, three ways, each at most 1 if the claim holds.

    `distance`: the total variation distance. `remove` and `add`: the ε needed when an expert is
    removed and when one is added, at the δ claimed for the largest loss: an addition has none.
    """

    distance: float
    remove: float
    add: float


@dataclass(frozen=True)
class Neighbours:
    """Kinds of experts with their copies, and the one who comes or goes."""

    others: Experts
    newcomer: Floats

    @property
    def together(self) -> Experts:
        return Experts(
            np.concatenate([self.others.policy, self.newcomer[None]]),
            np.append(self.others.copies, 1),
        )


class Finding(NamedTuple):
    """The largest shares found, and by how much any claim was exceeded at any watched ε."""

    shares: Shares
    excess: float


class Claims(NamedTuple):
    """What is claimed for an event, computed once."""

    largest: Both  # losses that happen but with the δ at them
    deltas: dict[float, Both]  # at the watched ε

    @classmethod
    def of(cls, event: ReleaseEvent) -> "Claims":
        pair, many = pair_of(event), event.iterations
        largest = Both(many * pair.epsilon_remove, many * pair.epsilon_add)
        watched = {share * loss for share in WATCHED for loss in largest}
        return cls(largest, {epsilon: claimed(event, epsilon) for epsilon in watched})


def attack(
    tree: Tree,
    event: ReleaseEvent,
    steps: int,
    seed: int,
    mechanism: ReleaseEvent | None = None,
    faults: Faults = SOUND,
) -> Finding:
    """Climb towards each of the shares in turn, watching all claims of `event` at every step.

    Starts at the best of a few plain cases: all agree, and the one leaves them at some depth. What
    runs is `mechanism`, if it is not `event` itself.
    """
    runs = mechanism or event
    rng = np.random.default_rng(seed)
    claims = Claims.of(event)
    tried: list[tuple[Shares, float]] = []

    def judged(case: Neighbours) -> tuple[Neighbours, Shares]:
        tried.append(_judge(both_outputs(tree, case.together, case.others, runs, faults), claims))
        return case, tried[-1][0]

    plain = [judged(case) for case in _plain_cases(tree, event)]
    for goal in range(len(Shares._fields)):
        best = max(plain, key=lambda found: found[1][goal])
        for _ in range(steps):
            moved = judged(_moved(tree, event, best[0], rng))
            if moved[1][goal] >= best[1][goal]:
                best = moved
    largest = Shares(*(max(shares[goal] for shares, _ in tried) for goal in range(3)))
    return Finding(largest, max(excess for _, excess in tried))


def _judge(outputs: tuple[Floats, Floats], claims: Claims) -> tuple[Shares, float]:
    """What one case uses of the claims, and by how much it exceeds one."""
    excess = -np.inf
    for epsilon, claim in claims.deltas.items():
        true = spent(outputs, epsilon)
        excess = max(excess, true.remove - claim.remove, true.add - claim.add)
    with_expert, without = outputs
    removed = claims.deltas[claims.largest.remove].remove + NEGLIGIBLE
    added = claims.deltas[claims.largest.add].add + NEGLIGIBLE
    shares = Shares(
        spent(outputs, 0.0).remove / claims.deltas[0.0].remove,
        needed_epsilon(with_expert, without, removed) / claims.largest.remove,
        needed_epsilon(without, with_expert, added) / claims.largest.add,
    )
    return shares, float(excess - NEGLIGIBLE)


def _plain_cases(tree: Tree, event: ReleaseEvent) -> Iterator[Neighbours]:
    """Most take action 0, some the last; the one is with either, or leaves at some depth."""
    depth = int(tree.depth.max())
    last = tree.actions - 1
    agree, apart = along(tree, [0], event.p_min), along(tree, [last], event.p_min)
    for few in sorted({0, 1, event.experts // 3, event.experts // 2}):
        others = Experts(np.stack([agree, apart]), np.array([event.experts - few, few]))
        for leaves in range(depth + 1):
            yield Neighbours(others, along(tree, [0] * leaves + [last], event.p_min))


def _moved(
    tree: Tree, event: ReleaseEvent, case: Neighbours, rng: np.random.Generator
) -> Neighbours:
    """The case with one thing changed: some rows of a table, or who is of which kind."""
    if rng.random() < 0.3:
        copies = case.others.copies.copy()
        giver, taker = rng.permutation(len(copies))[:2]
        many = min(int(copies[giver]), int(rng.integers(1, 1 + max(1, event.experts // 5))))
        copies[giver] -= many
        copies[taker] += many
        return replace(case, others=replace(case.others, copies=copies))
    tables = np.concatenate([case.others.policy, case.newcomer[None]])
    which = rng.integers(len(tables))
    node = rng.integers(tree.nodes)
    rows = tree.depth == tree.depth[node] if rng.random() < 0.5 else np.arange(tree.nodes) == node
    tables[which, rows] = _new_row(event, tables[which, node], rng)
    return Neighbours(replace(case.others, policy=tables[:-1]), tables[-1])


def _new_row(event: ReleaseEvent, old: Floats, rng: np.random.Generator) -> Floats:
    """Probabilities above the floor: an extreme point, a mixture, or the old ones shifted."""
    extreme = np.full(event.actions, event.p_min)
    extreme[rng.integers(event.actions)] = event.p_max
    chosen = rng.random()
    if chosen < 0.5:
        return extreme
    mixed = event.p_min + (1 - event.actions * event.p_min) * rng.dirichlet(np.ones(event.actions))
    towards, weight = (mixed, 1.0) if chosen < 0.7 else (extreme, 0.3 * rng.random())
    row: Floats = (1 - weight) * old + weight * towards
    return row
