"""What a policy may be worth where there is no simulator: an estimate, from released data alone.

Fitted-Q evaluation (Le et al. 2019) of a policy π, one regression for each step to go:

    Q₀ = 0,    Q_k(s, a) fits  r + γ Q_{k−1}(s', π(s'))  over the released (s, a, r, s'),

without the second term where the world ended. After k regressions Q_k is the return of the next k
steps, so with γ = 1 it estimates what a simulator would measure with that time limit.

Each regression is a ridge regression for each action on fixed random features of the observation,
and therefore exact and cheap: no learning rate, no training that may have stopped too early.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from quorum_rl.errors import SHARE, QuorumError, at_least, require
from quorum_rl.evaluation.returns import GreedyPolicy
from quorum_rl.types import Released

Floats: TypeAlias = npt.NDArray[np.float64]

FEATURES = 128
RIDGE = 1e-6  # relative to the mean of the Gram matrix's diagonal
RESAMPLES = 20


@dataclass(frozen=True)
class FittedQEstimate:
    """An estimate of a policy's return. Nobody has run the policy.

    Look at what it rests on before you trust it. It knows nothing of states that no released
    prefix reached: if no prefix saw the world end, it believes that the world never ends. Where the
    policy differs from the released actions (`agreement` below 1) it extrapolates.

    `standard_error` is over prefixes drawn anew; it leaves out both of these.
    """

    value: float  # mean over the first states of the prefixes
    standard_error: float
    steps: int
    discount: float
    prefixes: int
    transitions: int
    longest_prefix: int
    terminations: int
    agreement: float  # share of released steps in which the policy does what was released

    def __str__(self) -> str:
        return (
            f"estimated, not measured: return {self.value:.4g} over {self.steps} steps, discount "
            f"{self.discount:g} (error from resampling alone {self.standard_error:.2g}), fitted to "
            f"{self.transitions} released transitions (longest prefix {self.longest_prefix}, "
            f"agreement {self.agreement:.0%}, ends seen {self.terminations})"
        )


def fitted_q_estimate(
    released: Released,
    policy: GreedyPolicy,
    *,
    steps: int | None = None,
    discount: float = 1.0,
    seed: int = 0,
) -> FittedQEstimate:
    """Estimate the return of `policy` over `steps` steps from released prefixes.

    Guarantee: only released data is looked at, so the estimate is post-processing and costs no
    privacy. Demonstrations are refused.

    `steps` is the declared horizon of the release unless told otherwise; the mean is over the
    first states of the prefixes; `seed` draws the features and the prefixes for the error.

    Raises:
        QuorumError: for anything but `Released`, an empty release, no steps, a discount outside
            (0, 1], a policy that does not return an action for each observation, or one that
            takes an action which was never released.
    """
    data = _checked(released)
    steps = data.horizon if steps is None else steps
    require("steps", steps, at_least(1))
    require("discount", discount, SHARE)
    feature_rng, resample_rng = np.random.default_rng(seed).spawn(2)
    problem = _problem(data, policy, discount, feature_rng)
    prefixes = int(problem.prefix[-1]) + 1
    redrawn = resample_rng.multinomial(prefixes, np.full(prefixes, 1 / prefixes), size=RESAMPLES)
    weights = np.concatenate([np.ones((1, prefixes)), redrawn]).T
    value, *values = _fitted_values(problem, weights, steps)
    return FittedQEstimate(
        value=float(value),
        standard_error=float(np.std(values, ddof=1)),
        steps=steps,
        discount=discount,
        prefixes=prefixes,
        transitions=len(problem.reward),
        longest_prefix=int(data.lengths.max()),
        terminations=int(np.sum(data.transitions.terminated)),
        agreement=problem.agreement,
    )


def _checked(released: object) -> Released:
    if not isinstance(released, Released):
        raise QuorumError(
            f"fitted-Q evaluation got {type(released).__name__}: it takes Released prefixes only, "
            "because an estimate from private data would not be private."
        )
    if len(released.transitions.reward) == 0:
        raise QuorumError(
            "the release is empty: there is nothing to estimate a return from; release more "
            "(a larger epsilon, more iterations), or evaluate in a simulator."
        )
    return released


# --- the regressions ---


class _Group(NamedTuple):
    """The transitions that share an action: their numbers, and the features of their states."""

    rows: npt.NDArray[np.intp]
    features: Floats  # (rows, features)


@dataclass(frozen=True, eq=False)
class _Problem:
    """What every regression needs, computed once.

    Shapes: one group for each action; the rest (transitions,), `first` as a mask.
    """

    taken: tuple[_Group, ...]  # by the action that was released
    preferred: tuple[_Group, ...]  # by what the policy does instead
    preferred_next: tuple[_Group, ...]  # and by what it does in the next states
    reward: Floats
    discount_after: Floats  # 0 where the world ended
    prefix: npt.NDArray[np.int64]  # counting those that are not empty
    first: npt.NDArray[np.bool_]
    agreement: float


def _problem(
    data: Released, policy: GreedyPolicy, discount: float, rng: np.random.Generator
) -> _Problem:
    seen = data.transitions
    observation = np.asarray(seen.observation, np.float32)
    next_observation = np.asarray(seen.next_observation, np.float32)
    lengths = data.lengths[data.lengths > 0]
    prefix = np.repeat(np.arange(len(lengths)), lengths)
    centre, scale = observation.mean(axis=0), observation.std(axis=0)
    scale = np.where(scale > 0, scale, 1)
    weights = rng.standard_normal((data.observation_size, FEATURES))
    biases = rng.standard_normal(FEATURES)

    def features(observations: npt.NDArray[np.float32]) -> Floats:
        scaled = ((observations - centre) / scale).astype(np.float64)
        hidden = np.maximum(scaled @ weights + biases, 0)
        return np.concatenate([np.ones((len(scaled), 1)), scaled, hidden], axis=1)

    def by_action(
        observations: npt.NDArray[np.float32], actions: npt.NDArray[np.integer[Any]]
    ) -> tuple[_Group, ...]:
        groups = [np.flatnonzero(actions == action) for action in range(data.action_count)]
        return tuple(_Group(rows, features(observations[rows])) for rows in groups)

    action = np.asarray(seen.action)
    own_action = _actions(policy, observation, data.action_count)
    own_next_action = _actions(policy, next_observation, data.action_count)
    unknown = np.setdiff1d(np.union1d(own_action, own_next_action), action)
    if len(unknown):
        raise QuorumError(
            f"the policy takes action {unknown[0]}, which no released transition takes: nothing "
            "is known of what follows; release more, or evaluate in a simulator."
        )
    return _Problem(
        taken=by_action(observation, action),
        preferred=by_action(observation, own_action),
        preferred_next=by_action(next_observation, own_next_action),
        reward=np.asarray(seen.reward, np.float64),
        discount_after=np.where(np.asarray(seen.terminated), 0.0, discount),
        prefix=prefix,
        first=np.diff(prefix, prepend=-1) > 0,
        agreement=float(np.mean(own_action == action)),
    )


def _actions(
    policy: GreedyPolicy, observations: npt.NDArray[np.float32], action_count: int
) -> npt.NDArray[np.integer[Any]]:
    actions = np.asarray(policy(observations))
    each = actions.shape == (len(observations),) and np.issubdtype(actions.dtype, np.integer)
    if not (each and ((actions >= 0) & (actions < action_count)).all()):
        raise QuorumError(
            f"the policy returns {actions.dtype} of shape {actions.shape}: it must return one of "
            f"the actions 0 to {action_count - 1} for each of the {len(observations)} observations."
        )
    return actions


def _fitted_values(problem: _Problem, prefix_weights: Floats, steps: int) -> Floats:
    """The mean value of the first states after `steps` regressions, for every set of weights.

    Shapes: `(prefixes, sets) -> (sets,)`.
    """
    weight = prefix_weights[problem.prefix]
    inverses = [_inverses(group, weight[group.rows]) for group in problem.taken]
    width = problem.taken[0].features.shape[1]
    coefficients = np.zeros((len(problem.taken), width, weight.shape[1]))
    one_step = np.array([min(problem.reward.min(), 0.0), max(problem.reward.max(), 0.0)])
    bounds = np.zeros(2)
    for _ in range(steps):
        following = _values(problem.preferred_next, coefficients, bounds)
        goals = problem.reward[:, None] + problem.discount_after[:, None] * following
        weighted = weight * goals
        for action, (rows, features) in enumerate(problem.taken):
            moments = features.T @ weighted[rows]
            coefficients[action] = np.einsum("sfg,gs->fs", inverses[action], moments)
        bounds = one_step + problem.discount_after.max() * bounds
    starts = _values(problem.preferred, coefficients, bounds)[problem.first]
    averaged: Floats = np.average(starts, axis=0, weights=weight[problem.first])
    return averaged


def _values(groups: tuple[_Group, ...], coefficients: Floats, bounds: Floats) -> Floats:
    """Q(s, a), within what the rewards allow: a fit that extrapolates must not run away.

    Shapes: `coefficients` (actions, features, sets); the result is (transitions, sets).
    """
    count = sum(len(group.rows) for group in groups)
    fitted = np.empty((count, coefficients.shape[-1]))
    for group, own in zip(groups, coefficients, strict=True):
        fitted[group.rows] = group.features @ own
    return np.clip(fitted, *bounds)


def _inverses(group: _Group, weight: Floats) -> Floats:
    """(Φᵀ W Φ + λ I)⁻¹ of one action, for every set of weights.

    An action whose weights are all 0 is worth 0 wherever it is taken: a wild guess, which shows
    in the error.

    Shapes: `(sets, features, features)`.
    """
    features = group.features
    width = features.shape[1]
    ridge = RIDGE * max(np.square(features).sum() / width, 1.0) * np.eye(width)
    grams = [features.T @ (own[:, None] * features) + ridge for own in weight.T]
    return np.linalg.inv(np.stack(grams))
