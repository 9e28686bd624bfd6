"""How long experts agree: what the release can give, measured on private data.

A diagnostic for research on synthetic experts. It looks at private data without noise and without
a ledger, so nothing it returns may be published about real ones.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from quorum_rl.errors import QuorumError, at_least, require
from quorum_rl.experts import LoggedExperts
from quorum_rl.logs.demonstrations import Demonstrations

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)


@dataclass(frozen=True)
class AgreementCurve:
    """count_τ(Π)/m by the length of the prefix τ, over sampled trajectories that are as long.

    Shapes: `mean` and `trajectories` (lengths,), `quantiles` (lengths, len(QUANTILES)); entry k is
    for prefixes of k + 1 steps.
    """

    mean: npt.NDArray[np.float64]
    quantiles: npt.NDArray[np.float64]
    trajectories: npt.NDArray[np.int64]


def agreement_curve(
    experts: LoggedExperts, demonstrations: Demonstrations, *, trajectories: int, seed: int = 0
) -> AgreementCurve:
    """The agreement of `experts` on randomly drawn trajectories of `demonstrations`.

    NOT private: see the module's text.

    Raises:
        QuorumError: if there is nothing to sample.
    """
    require("trajectories", trajectories, at_least(1))
    if not len(demonstrations):
        raise QuorumError("there are no demonstrations: collect some first.")
    rng = np.random.default_rng(seed)
    count = min(trajectories, len(demonstrations))
    chosen = np.sort(rng.choice(len(demonstrations), count, replace=False))
    shares = prefix_counts(experts, demonstrations.select(chosen)) / len(experts)
    lengths = demonstrations.episodes.length[chosen]
    longest = int(lengths.max())
    alive = [shares[lengths > k, k] for k in range(longest)]
    return AgreementCurve(
        mean=np.array([part.mean() for part in alive]),
        quantiles=np.array([np.quantile(part, QUANTILES) for part in alive]),
        trajectories=np.array([len(part) for part in alive]),
    )


def prefix_counts(
    experts: LoggedExperts, demonstrations: Demonstrations
) -> npt.NDArray[np.float64]:
    """count_τ(Π) = Σ_i Π_j π_i(a_j|s_j) for every prefix of every episode; 0 beyond its end.

    Shapes: `(episodes, longest episode)`.
    """
    lengths = np.asarray(demonstrations.episodes.length)
    taken = demonstrations.transitions(np.arange(demonstrations.transition_count))
    states, actions = np.asarray(taken.observation), np.asarray(taken.action)
    offsets = np.asarray(demonstrations.transition_offsets)
    episode = np.repeat(np.arange(len(lengths)), lengths)
    time = np.arange(len(actions)) - offsets[episode]
    shape = (len(lengths), int(lengths.max()))
    total = np.zeros(shape)
    for _, probabilities in experts.probabilities_in_chunks(states):
        steps = np.zeros((len(probabilities), *shape))
        steps[:, episode, time] = probabilities[:, np.arange(len(actions)), actions]
        total += steps.cumprod(axis=2).sum(axis=0)
    return total
