"""What an adversary sees of many trainings, and how it scores them for one canary.

White box: every iterate. Between two of them lies one noisy gradient, which follows from the
optimiser's state; its part along the canary's own gradient is what the canary could have changed.
The adversary knows everything but whether the canary is there: the others' one direction is taken
out first. For a Poisson sample at rate q and noise σ, a part x that the canary would move by s has
the likelihood ratio 1 − q + q·exp((2xs − s²)/2σ²); logarithms add up over the steps.

Black box: the final policy's actions on chosen states, on both sides of everybody else's up to the
canary's own. How many of them speak for the canary says where the policy changes its mind.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from quorum_rl.audit.chain import CANARY_ACTION, FAR, Floats
from quorum_rl.fit import FitPlan
from quorum_rl.learners import Learner
from quorum_rl.training.expert_data import ExpertData
from quorum_rl.training.loop import Standing, begin, result_of, train
from quorum_rl.training.plain import plain_gradient
from quorum_rl.training.recipe import Recipe, Run
from quorum_rl.training.schedule import Kind, Schedule
from quorum_rl.types import Transition

MOMENTUM: Final = 0.9  # of optax.scale_by_adam and of Recipe's own
LADDER: Final = np.concatenate([sign * np.logspace(-5, 0, 160) for sign in (1.0, -1.0)])

Array = jax.Array


Seen = tuple[Any, Any, Any]
"""Of one or many runs: the parameters, the target, the optimiser's first moment."""


class Claim(NamedTuple):
    """What a private step is said to be; the adversary knows no more of it."""

    sampling_rate: float
    noise_multiplier: float
    clip_norm: float
    expected_batch: float


class Looking(NamedTuple):
    """Whom the adversary looks for in which trainings.

    `other` is the one step of everybody else, or None if there is nobody else. Many canaries have
    a leading axis, and then there is one run.
    """

    plan: FitPlan
    canary: Transition
    other: Transition | None
    many: bool = False

    @property
    def claim(self) -> Claim:
        step = self.plan.private
        assert step is not None  # or there is nothing to audit
        return Claim(step.sampling_rate, step.noise_multiplier, step.clip_norm, step.expected_batch)


def watched(
    looking: Looking,
    runs: Run,
    schedule: Schedule,
    sizes: tuple[int, int],
    private: ExpertData,
    plain: Transition | None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Floats, Any]:
    """Train, and score by all iterates; with it the results of training.

    `sizes` are those of an observation and of the set of actions. `progress` hears after every
    step how many are done, and of how many.

    Shapes: the score `(runs,)`, or `(canaries,)` for many; every leaf of the results `(runs, …)`.
    """
    recipe = looking.plan.recipe
    standing = begin(recipe, runs, *sizes)
    before = _seen(recipe, standing)
    score: Floats = np.zeros(len(looking.canary.reward) if looking.many else len(runs.rates_end))

    def after_step(standing: Standing, done: int) -> None:
        nonlocal before
        now = _seen(recipe, standing)
        private_now = schedule[done - 1] == Kind.PRIVATE  # of all runs, or one for each
        if private_now.any():
            rates = runs.private_learning_rate * jnp.clip(1 - (done - 1) / runs.rates_end, 0)
            ratios = _log_ratios(
                recipe,
                looking.many,
                looking.claim,
                (before, now, rates),
                looking.canary,
                looking.other,
            )
            score[:] += np.where(private_now, np.asarray(ratios), 0.0)
        before = now
        if progress is not None:
            progress(done, len(schedule))

    last = train(
        recipe,
        runs,
        standing,
        schedule,
        private=private,
        plain=plain,
        after_chunk=after_step,
        steps_at_once=1,
    )
    return score, result_of(recipe, last)


def agreement(learner: Learner, params: Any, observation_size: int) -> Floats:
    """On how many of the chosen states each final policy speaks for the canary.

    Beyond the origin, where a linear policy does the opposite, that is not to do as it did.

    Shapes: every leaf of `params` (runs, …), to (runs,).
    """
    states = np.zeros((len(LADDER), observation_size), np.float32)
    states[:, 0] = FAR * LADDER
    actions = np.asarray(jax.vmap(lambda one: learner.act(one, jnp.asarray(states)))(params))
    own = actions == CANARY_ACTION
    made: Floats = np.where(LADDER > 0, own, ~own).sum(axis=1).astype(np.float64)
    return made


def _seen(recipe: Recipe, standing: Standing) -> Seen:
    """Copies, because the next step takes the arrays over."""
    own = standing.optimisers[0 if recipe.shared_optimiser else 1]
    name = {"adam": "mu", "momentum": "trace"}.get(recipe.optimiser)
    moment = None if name is None else getattr(own, name)
    copied: Seen = jax.tree.map(jnp.copy, (standing.params, standing.target, moment))
    return copied


@partial(jax.jit, static_argnums=(0, 1))
def _log_ratios(
    recipe: Recipe,
    many: bool,
    claim: Claim,
    step: tuple[Seen, Seen, Array],
    canary: Transition,
    other: Transition | None,
) -> Array:
    """The logarithms of the likelihood ratios in one private step of every run."""

    def one(step: tuple[Seen, Seen, Array], canary: Transition) -> Array:
        before, now, learning_rate = step
        noisy = _flat(_gradient(recipe, before, now, learning_rate))
        own = _flat(_gradient_of(recipe, before, canary))
        direction = _unit(own)
        if other is not None:
            others = _unit(_flat(_gradient_of(recipe, before, other)))
            direction -= (direction @ others) * others
        share = jnp.minimum(jnp.linalg.norm(own) / claim.clip_norm, 1.0)
        moved = share * jnp.linalg.norm(direction)
        seen = noisy @ _unit(direction) * claim.expected_batch / claim.clip_norm
        exponent = (2 * seen * moved - moved**2) / (2 * claim.noise_multiplier**2)
        rate = claim.sampling_rate
        return jnp.logaddexp(jnp.log1p(-rate), jnp.log(rate) + exponent)

    if many:
        step = jax.tree.map(lambda leaf: leaf[0], step)
    ratios: Array = jax.vmap(one, (None, 0) if many else (0, None))(step, canary)
    return ratios


def _gradient(recipe: Recipe, before: Seen, now: Seen, rate: Array) -> Any:
    """The noisy gradient between two iterates."""
    if recipe.optimiser == "sgd":
        return jax.tree.map(lambda old, new: (old - new) / rate, before[0], now[0])
    share = 1 - MOMENTUM if recipe.optimiser == "adam" else 1.0
    return jax.tree.map(lambda old, new: (new - MOMENTUM * old) / share, before[2], now[2])


def _gradient_of(recipe: Recipe, at: Seen, transition: Transition) -> Any:
    batch = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], transition)
    keys = jax.random.split(jax.random.key(0), 1)
    return plain_gradient(recipe.learner, at[0], at[1], batch, keys)


def _unit(vector: Array) -> Array:
    size = jnp.linalg.norm(vector)
    return vector / jnp.where(size > 0, size, 1)


def _flat(tree: Any) -> Array:
    return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(tree)])
