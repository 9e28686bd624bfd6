"""What a policy is worth from a state on: fitted values, and a log read beside the policy.

An action's value is what is earned from then on if the action is taken now and the policy decides
afterwards. It is a linear function of features that are public: of the observation in its units,
and of the time that remains of the declared horizon, with which all of them shrink to zero. Each
finite action has weights of its own; the numbers of a continuous one are seen as the observation's.
"""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

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


def weight_count(observation_size: int, action_count: int, *, continuous: bool) -> int:
    """How many weights values have."""
    if continuous:
        return feature_count(observation_size + action_count)
    return action_count * feature_count(observation_size)


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
    action_count: int
    action_bounds: Bounds = ()

    @property
    def weights(self) -> int:
        """How many weights there are."""
        continuous = bool(self.action_bounds)
        return weight_count(len(self.centre), self.action_count, continuous=continuous)

    def features_of(
        self, observations: npt.ArrayLike, time: npt.ArrayLike, action: npt.ArrayLike
    ) -> Floats:
        """The features of actions: of finite ones at the places of their own weights, else zeros.

        Shapes: (n, observation_size), (n,), and (n,) or (n, action_count); (n, weights).
        """
        if self.action_bounds:
            low, high = np.asarray(self.action_bounds, np.float64).T
            parts = 2 * (np.asarray(action, np.float64) - low) / (high - low) - 1
            numbers = np.clip(np.nan_to_num(parts), -1, 1)
            return features(self._standardised(observations, time, numbers)).astype(np.float64)
        seen = features(self._standardised(observations, time))
        made = np.zeros((len(seen), self.action_count, seen.shape[1]))
        made[np.arange(len(seen)), np.asarray(action, np.int64)] = seen
        return made.reshape(len(seen), self.weights)

    def _standardised(
        self, observations: npt.ArrayLike, time: npt.ArrayLike, *others: Floats
    ) -> Singles:
        """What features are made of."""
        with np.errstate(over="ignore"):
            moved = np.asarray(observations, np.float32) - np.asarray(self.centre, np.float32)
            seen = moved / np.asarray(self.scale, np.float32)
        remaining = 1 - np.asarray(time, np.float32) / np.float32(self.horizon)
        whole = np.concatenate([np.clip(seen, -MOST, MOST), *others, remaining[:, None]], axis=1)
        made: Singles = whole.astype(np.float32)
        return made


@dataclass(frozen=True, eq=False)
class Values:
    """The fitted values of one policy. Shapes: `weights` (units.weights,)."""

    units: ValueUnits
    weights: Singles

    def of(self, observations: npt.ArrayLike, time: npt.ArrayLike, action: npt.ArrayLike) -> Floats:
        """The value of an action in each state; shapes as of `ValueUnits.features_of`, (n,)."""
        found = self.units.features_of(observations, time, action) @ self.weights.astype(np.float64)
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
    counts. Continuous actions have an axis of numbers.
    """

    observations: Singles
    time: Integers
    action: npt.NDArray[Any]
    preferred: npt.NDArray[Any]  # what the policy does; NaN of a continuous action: no answer
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
    observations, action = np.asarray(steps.observation), np.asarray(steps.action)
    continuous = action.dtype.kind == "f"
    time = np.arange(len(action)) - np.repeat(first, lengths)
    try:
        asked = [policy.action_numbers(observations[some]) for some in pieces(len(action))]
        preferred = np.concatenate(asked)
        agrees = (preferred == action).all(axis=1) if continuous else preferred == action
    except QuorumError:
        preferred = np.full_like(action, np.nan if continuous else 0)
        agrees = np.zeros(len(action), bool)
    place, last = np.arange(len(action)), np.repeat(first + lengths - 1, lengths)
    otherwise = np.append(np.where(agrees, len(action), place), len(action))
    following = np.minimum.accumulate(otherwise[::-1])[::-1][place + 1]
    over = following > last
    rewards = np.asarray(steps.reward, np.float64)
    so_far = np.append(0.0, np.cumsum(rewards))
    earned = so_far[np.where(over, last + 1, following)] - so_far[place]
    following = np.where(over, last, following)
    return Beside(observations, time, action, preferred, agrees, earned, following, over, first)


def nearness(row: Beside, bounds: Bounds) -> Floats:
    """How near a policy comes to an expert's continuous actions: 1 is the same, 0 as far off as the
    bounds allow, and where the policy has no answer; the mean of the steps, for each number.

    Shapes: (action_count,).
    """
    low, high = np.asarray(bounds, np.float64).T
    off = np.abs(row.preferred.astype(np.float64) - row.action) / (high - low)
    near: Floats = np.clip(1 - np.nan_to_num(off, nan=1.0).mean(axis=0), 0, 1)
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
        preferred[some] = values.of(row.observations[some], row.time[some], row.preferred[some])
    after = np.where(row.over[first], 0.0, reward * preferred[row.following[first]])
    goes_on = row.earned[first] + after
    return float(np.where(row.agrees[first], goes_on, reward * preferred[first]).mean())
