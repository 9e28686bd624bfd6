"""What a policy is worth from a state on: fitted values, and a log read beside the policy.

An action's value is what is earned from then on if the action is taken now and the policy decides
afterwards. It is a linear function of features that are public: of the observation in its units,
and of the time that remains of the declared horizon, with which all of them shrink to zero.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from quorum_rl.dictionary import Bounds
from quorum_rl.errors import QuorumError
from quorum_rl.logs import Demonstrations
from quorum_rl.policy import Policy

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

STEPS: Final = 60  # private ones, in which the values of a policy are fitted
HIDDEN: Final = 16
MOST_WEIGHTS: Final = 256  # an expert brings their square
MOST: Final = 5.0  # units that a standardised observation is cut to
WIDEST: Final = 1.5  # of the kinks' places
PIECE: Final = 2**14  # steps of an expert that are worked on at once


def feature_count(observation_size: int) -> int:
    """How many features there are: one, the observation, the remaining time, and kinks."""
    return 2 + observation_size + HIDDEN


def features(seen: Singles) -> Singles:
    """The features.

    Shapes: `seen` (…, observation_size + 1), standardised, the last being the remaining part of the
    horizon; (…, feature_count).
    """
    size, rng = seen.shape[-1], np.random.default_rng(0)  # public, and the same for everybody
    weight = rng.standard_normal((size, HIDDEN)).astype(np.float32) / np.float32(np.sqrt(size))
    bias = rng.uniform(-WIDEST, WIDEST, HIDDEN).astype(np.float32)
    kinks = np.maximum(seen @ weight + bias, 0)
    whole = np.concatenate([np.ones_like(seen[..., :1]), seen, kinks], axis=-1)
    found: Singles = whole * seen[..., -1:] / np.float32(np.sqrt(whole.shape[-1]))
    return found


@dataclass(frozen=True)
class ValueUnits:
    """The public numbers between logs and features.

    Observations are standardised by `centre` and `scale`; a value of 1 is `reward`, the width of
    the declared bounds of returns. Values are cut to `bounds`, in those units.
    """

    centre: tuple[float, ...]
    scale: tuple[float, ...]
    horizon: int
    reward: float
    bounds: tuple[float, float]

    def standardised(self, observations: npt.ArrayLike, time: npt.ArrayLike) -> Singles:
        """What features are made of. Shapes: (n, observation_size), (n,); (n, … + 1), float32."""
        with np.errstate(over="ignore"):
            moved = np.asarray(observations, np.float32) - np.asarray(self.centre, np.float32)
            seen = moved / np.asarray(self.scale, np.float32)
        remaining = 1 - np.asarray(time, np.float32) / np.float32(self.horizon)
        whole = np.concatenate([np.clip(seen, -MOST, MOST), remaining[:, None]], axis=1)
        made: Singles = whole.astype(np.float32)
        return made


@dataclass(frozen=True, eq=False)
class Values:
    """The fitted values of one policy. Shapes: `head` (actions, feature_count)."""

    units: ValueUnits
    head: Singles

    def of(self, observations: npt.ArrayLike, time: npt.ArrayLike) -> Floats:
        """The value of each action. Shapes: (n, observation_size), (n,); (n, actions)."""
        found = features(self.units.standardised(observations, time)).astype(
            np.float64
        ) @ self.head.T.astype(np.float64)
        made: Floats = np.clip(found, *self.units.bounds)
        return made


class Candidate(NamedTuple):
    """A policy that the judges are asked about, with its fitted values if there are some."""

    policy: Policy
    values: Values | None = None


class Beside(NamedTuple):
    """One expert's steps in their order, read beside a policy. SENSITIVE.

    `earned` is what the expert earned from a step on until the policy would have done otherwise for
    the first time after it: at step `following`, unless the episode is `over` before.

    Shapes: all (steps, …) but `first`, the place of each episode's first step, from which `time`
    counts.
    """

    observations: Singles
    time: Integers
    action: Integers
    preferred: Integers  # what the policy does
    agrees: Flags
    earned: Floats
    following: Integers
    over: Flags
    first: Integers


def beside(log: Demonstrations, expert: int, policy: Policy) -> Beside:
    """The steps of the expert at a position of the log beside the policy.

    Guarantee: a function of that expert's own log, to the bit. An observation so large that the
    policy has no answer is one where it does otherwise.
    """
    steps = log.transitions(np.array(log.transitions_of(expert)))
    episodes = log.episodes_of(expert)
    lengths = np.diff(log.transition_offsets[episodes.start : episodes.stop + 1])
    first = np.cumsum(lengths) - lengths
    observations, action = np.asarray(steps.observation), np.asarray(steps.action, np.int64)
    time = np.arange(len(action)) - np.repeat(first, lengths)
    try:
        asked = [policy.action_numbers(observations[some]) for some in pieces(len(action))]
        preferred = np.concatenate(asked)
        agrees = preferred == action
    except QuorumError:
        preferred, agrees = np.zeros_like(action), np.zeros(len(action), bool)
    place, last = np.arange(len(action)), np.repeat(first + lengths - 1, lengths)
    otherwise = np.append(np.where(agrees, len(action), place), len(action))
    following = np.minimum.accumulate(otherwise[::-1])[::-1][place + 1]
    over = following > last
    rewards = np.asarray(steps.reward, np.float64)
    so_far = np.append(0.0, np.cumsum(rewards))
    earned = so_far[np.where(over, last + 1, following)] - so_far[place]
    following = np.where(over, last, following)
    return Beside(observations, time, action, preferred, agrees, earned, following, over, first)


def nearness(log: Demonstrations, expert: int, policy: Policy, bounds: Bounds) -> Floats:
    """How near a policy comes to the continuous actions of the expert at a position of the log: 1
    is the same, 0 as far off as the bounds allow; the mean of its steps, for each number.

    Guarantee: as `beside`. Where the policy has no answer it is as far off as can be.

    Shapes: (action_count,).
    """
    steps = log.transitions(np.array(log.transitions_of(expert)))
    observations, done = np.asarray(steps.observation), np.asarray(steps.action, np.float64)
    low, high = np.asarray(bounds, np.float64).T
    try:
        asked = [policy.action_numbers(observations[some]) for some in pieces(len(done))]
    except QuorumError:
        return np.zeros(len(bounds))
    off = np.abs(np.concatenate(asked) - done) / (high - low)
    near: Floats = np.clip(1 - off.mean(axis=0), 0, 1)
    return near


def pieces(count: int) -> list[slice]:
    """So many steps, in pieces: no log is so long that there is no memory for what it takes."""
    return [slice(first, first + PIECE) for first in range(0, count, PIECE)]


def worth(row: Beside, values: Values) -> float:
    """What the policy would have earned in an expert's episodes, in the mean: what the expert
    earned until the policy would have done otherwise, and from there its fitted value.

    Exact values make it right in the mean: as long as both do the same, so does the world.
    """
    first, reward = row.first, values.units.reward
    preferred = np.empty(len(row.action))
    for some in pieces(len(row.action)):
        each = values.of(row.observations[some], row.time[some])
        preferred[some] = np.take_along_axis(each, row.preferred[some, None], axis=1)[:, 0]
    after = np.where(row.over[first], 0.0, reward * preferred[row.following[first]])
    goes_on = row.earned[first] + after
    return float(np.where(row.agrees[first], goes_on, reward * preferred[first]).mean())
