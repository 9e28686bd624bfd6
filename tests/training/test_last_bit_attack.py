"""An attack on the last bits: float noise gives an expert away that whole numbers hide.

Parameters start at zero and one plain step of rate 1 is taken, with everybody drawn: what is
published is the noisy sum. Whoever knows the others' contributions, and the victim's, asks of every
parameter that came out small whether noise alone could have put it there. Where noise and
contribution nearly cancel, their difference is exact, and the noise that was there must have been a
float: published minus contribution is one. For noise alone it hardly ever is.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from quorum_rl.training.contributions import Gradient
from quorum_rl.training.data import ExpertData
from quorum_rl.training.loop import begin, train
from quorum_rl.training.mechanism import PrivateStep
from quorum_rl.training.noise import rounded_noise
from quorum_rl.training.randomness import random_words
from quorum_rl.training.recipe import Recipe, Run, StepKind, new_run, optimiser_of
from quorum_rl.types import Transition

Floats = npt.NDArray[np.float64]

PARAMETERS, TRIALS = 4096, 100
NOISE, CLIP_NORM = 1.0, 1.0
OTHERS = 3


@dataclass(frozen=True)
class Table:
    """A learner whose gradient is what the transition shows: parameters start at zero."""

    def init(self, key: Any, observation_size: int, action_count: int) -> Any:
        del key, action_count
        return jnp.zeros(observation_size)

    def init_target(self, params: Any) -> Any:
        del params
        return ()

    def loss(self, params: Any, target: Any, transition: Transition, key: Any) -> Any:
        del target, key
        return params @ transition.observation

    def update_target(self, params: Any, target: Any, step: Any) -> Any:
        del params, step
        return target

    def act(self, params: Any, observations: Any) -> Any:
        return observations @ params > 0


def contributions(parameters: int) -> npt.NDArray[np.float32]:
    """A row for each expert: others in the first half of the parameters, the victim in the rest."""
    rows = np.random.default_rng(0).normal(size=(OTHERS + 1, parameters)) / math.sqrt(parameters)
    rows[:OTHERS, parameters // 2 :] = 0
    rows[OTHERS, : parameters // 2] = 0
    return rows.astype(np.float32)


def data_of(rows: npt.NDArray[np.float32]) -> ExpertData:
    count, none = len(rows), jnp.zeros(len(rows), bool)
    seen = jnp.asarray(rows)
    shown = Transition(seen, jnp.zeros(count, int), jnp.zeros(count), seen, none, none)
    return ExpertData(shown, jnp.arange(count + 1))


def noise_keys(seed: int, trials: int) -> npt.NDArray[np.uint32]:
    return np.array([[seed, trial] for trial in range(trials)], np.uint32)


def published(
    rows: npt.NDArray[np.float32], seed: int, trials: int, noise: float = NOISE
) -> Floats:
    """The parameters of so many trainings with keys of their own. Shapes: (trials, parameters)."""
    step = PrivateStep(
        sampling_rate=1.0,
        clip_norm=CLIP_NORM,
        noise_multiplier=noise,
        expected_batch=1.0,
        chunk=8,
        contribution=Gradient(transitions=1),
    )
    recipe = Recipe(learner=Table(), private_shape=step.shape, optimiser=optimiser_of("sgd"))
    run = new_run(noise_key=[0, 0], public_key=[0, 0], learning_rate=1.0, private=step)
    runs: Run = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], trials, axis=0), run)
    runs = replace(runs, noise_key=jnp.asarray(noise_keys(seed, trials)))
    begun, once = begin(recipe, runs, rows.shape[1], 2), np.full(1, StepKind.PRIVATE, np.int8)
    data = data_of(rows)
    last = train(recipe, runs, begun, once, private=data, plain=None, steps_at_once=1)
    return -np.asarray(last.params, np.float64)


# The noise as it was: float32 numbers, to which floats are added


def float_normals(key: jax.Array, count: int) -> jax.Array:
    """By Box and Muller's method, from 64 bits each, all in float32."""
    high, low = random_words(key, 0, jnp.arange(count))
    angle = ((low >> 1 & 0x7FFFFF).astype(jnp.float32) + 0.5) * (jnp.pi / 2 * 2.0**-23)
    uniform = high.astype(jnp.float32) * 2.0**-32
    uniform += ((low >> 24).astype(jnp.float32) + 0.5) * 2.0**-40
    square = angle * angle
    sine = 1 / 362880 - square / 39916800
    for term in (-1 / 5040, 1 / 120, -1 / 6, 1):
        sine = term + square * sine
    size = jnp.sqrt(-2 * jnp.log(uniform)) * (angle * sine)
    return jnp.where(low & 1 == 1, -size, size)


def published_with_float_noise(
    rows: npt.NDArray[np.float32], seed: int, trials: int, noise: float = NOISE
) -> Floats:
    """The same with the planted fault: clipped floats are added to float noise."""
    norms = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    total = (rows * np.minimum(1, CLIP_NORM / norms)).astype(np.float32).sum(axis=0)

    @jax.jit
    @jax.vmap
    def one(key: jax.Array) -> jax.Array:
        start = jnp.float32(noise * CLIP_NORM) * float_normals(key, rows.shape[1])
        return jnp.negative(start + total)

    return -np.asarray(one(jax.random.split(jax.random.key(seed), trials)), np.float64)


# The attack


def says_it_took_part(seen: Floats, victim: Floats) -> npt.NDArray[np.bool_]:
    """Whether all small parameters, with the victim's contribution taken off, are floats.

    Shapes: `seen` (trials, parameters); (trials,).
    """
    small = np.abs(seen) < np.abs(victim) / 2
    left = seen - victim  # exact: two floats of similar size in double precision
    possible = left.astype(np.float32).astype(np.float64) == left
    return np.asarray((possible | ~small).all(axis=1))


def accused(publish: Any, seed: int) -> tuple[int, int]:
    """How many trainings with the victim are told, and how many without."""
    rows = contributions(PARAMETERS)
    victim = rows[OTHERS].astype(np.float64)
    assert np.linalg.norm(victim) < CLIP_NORM  # it counts as it is
    with_it = says_it_took_part(publish(rows, seed, TRIALS), victim)
    without = says_it_took_part(publish(rows[:OTHERS], seed + 1, TRIALS), victim)
    return int(with_it.sum()), int(without.sum())


def test_with_float_noise_the_attack_tells_every_time() -> None:
    assert accused(published_with_float_noise, 1) == (TRIALS, 0)


def test_with_noise_on_whole_numbers_the_same_attack_is_at_chance() -> None:
    """A false alarm of Fisher's exact test has probability 1e-6."""
    told, falsely = accused(published, 1)
    table = [[told, TRIALS - told], [falsely, TRIALS - falsely]]
    assert stats.fisher_exact(table).pvalue > 1e-6


def test_every_published_number_is_one_that_noise_alone_reaches() -> None:
    """With the victim or without, whole numbers of one unit; float noise has no such grid."""
    unit = CLIP_NORM / 2**15
    rows = contributions(PARAMETERS)
    for who in (rows, rows[:OTHERS], rows[:0]):
        seen = published(who, 3, 5) if len(who) else np.asarray(own_noise(3, 5)) * unit
        assert (seen / unit == np.round(seen / unit)).all()
    seen = published_with_float_noise(rows, 3, 5)
    assert (seen / unit != np.round(seen / unit)).mean() > 0.9


def own_noise(seed: int, trials: int) -> Any:
    return rounded_noise(
        noise_keys(seed, trials), np.full(trials, NOISE * 2**15), 1, 1, PARAMETERS
    )[0]


def test_of_two_trainings_with_one_key_the_victims_share_is_the_difference() -> None:
    """So the trainings that are attacked do hold the victim."""
    rows = contributions(PARAMETERS)
    difference = published(rows, 4, 2) - published(rows[:OTHERS], 4, 2)
    unit = CLIP_NORM / 2**15
    np.testing.assert_allclose(difference, [rows[OTHERS]] * 2, atol=0.51 * unit)


# The best test there is

FEW, MANY = 64, 2000
EPSILON = 1.0
CONFIDENCE = 1e-6  # the probability that a sound mechanism is accused, over all thresholds


def delta(noise: float) -> float:
    """Of a Gaussian mechanism at EPSILON (Balle and Wang 2018)."""
    away = 1 / (2 * noise)
    inner, outer = away - EPSILON * noise, -away - EPSILON * noise
    return float(stats.norm.cdf(inner) - math.exp(EPSILON) * stats.norm.cdf(outer))


def likelihood_ratios(seen: Floats, rows: npt.NDArray[np.float32]) -> Floats:
    """The logarithm but for a constant, with the others' contributions known."""
    known = rows[:OTHERS].astype(np.float64).sum(axis=0)
    return np.asarray((seen - known) @ rows[OTHERS].astype(np.float64))


def stays_within_the_guarantee(noise: float) -> bool:
    """Whether no threshold of the likelihood ratio tells more than the declared NOISE lets it.

    Shares have exact intervals (Clopper and Pearson), all of them right but for CONFIDENCE.
    """
    rows = contributions(FEW)
    rows[OTHERS] /= np.linalg.norm(rows[OTHERS])  # as long as it may be
    with_it = likelihood_ratios(published(rows, 5, MANY, noise), rows)
    without = likelihood_ratios(published(rows[:OTHERS], 6, MANY, noise), rows)
    thresholds = np.linspace(-1, 2, 13)
    level = CONFIDENCE / (4 * len(thresholds))
    for threshold in thresholds:
        for accused, others in ((with_it, without), (-without, -with_it)):
            at = threshold if accused is with_it else -threshold
            told, falsely = int((accused > at).sum()), int((others > at).sum())
            least = stats.beta(told, MANY - told + 1).ppf(level) if told else 0.0
            most = stats.beta(falsely + 1, MANY - falsely).isf(level) if falsely < MANY else 1.0
            if least > math.exp(EPSILON) * most + delta(NOISE):
                return False
    return True


def test_the_likelihood_ratio_stays_within_epsilon_and_delta() -> None:
    assert stays_within_the_guarantee(NOISE)


@pytest.mark.parametrize("noise", [NOISE / 2])
def test_the_check_catches_half_the_noise(noise: float) -> None:
    assert not stays_within_the_guarantee(noise)
