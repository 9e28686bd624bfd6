"""What an adversary sees of many trainings, and how it scores them for one canary.

White box: every iterate. Between two of them lies one noisy mean, which follows from the
optimiser's state; its part along the canary's own contribution is what the canary could have
changed. The adversary knows everything but whether the canary is there: the others' one direction
is taken out first. For a Poisson sample at rate q and noise σ, a part x that the canary would move
by s has the likelihood ratio 1 − q + q·exp((2xs − s²)/2σ²); logarithms add up over the steps.

That is the best test of a mechanism as it is said to be. Against one that is not, others see more:
how much x differs between steps, and how large the rest is, which nobody's contribution reaches.

Black box: the final policy's actions on chosen states, on both sides of everybody else's up to the
canary's own. How many of them speak for the canary says where the policy changes its mind.
"""

from functools import partial
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from quorum_rl.audit.chain import CANARY_ACTION, FAR, Floats
from quorum_rl.errors import QuorumError
from quorum_rl.learners import Learner
from quorum_rl.pipeline import FitPlan, Steps, fresh, train_runs
from quorum_rl.training import ExpertData, Recipe, Run, StepKind, TrainState, result_of
from quorum_rl.types import Transition

MOMENTUM: Final = 0.9  # of our adam and momentum
MOMENTS: Final = {"sgd": None, "adam": "mu", "momentum": "trace"}
LADDER: Final = np.concatenate([sign * np.logspace(-5, 0, 160) for sign in (1.0, -1.0)])

Array = jax.Array


Seen = tuple[Any, Any, Any]
"""Of one or many runs: the parameters, the target, the optimiser's first moment."""


class StepClaim(NamedTuple):
    """What a private step is said to be; the adversary knows no more of it."""

    sampling_rate: float
    noise_multiplier: float
    clip_norm: float
    expected_batch: float
    normalised: bool


class Looking(NamedTuple):
    """Whom the adversary looks for in which trainings.

    `other` is the one step of everybody else. With `apart` it looks for a canary that was clipped
    in each network by itself.
    """

    plan: FitPlan
    canary: Transition
    other: Transition
    apart: bool = False

    @property
    def claim(self) -> StepClaim:
        return StepClaim(*(getattr(self.plan.private, name) for name in StepClaim._fields))


class Watched(NamedTuple):
    """What an adversary makes of trainings, in clip norms.

    `likelihood` is the logarithm of the likelihood ratio of all private steps, `spread` the squared
    distance of their parts along the canary from the mean of these, and `rest` the squared size of
    what is left without these parts and the others'.

    Shapes: (runs,); every leaf of `params` (runs, …).
    """

    likelihood: Floats
    spread: Floats
    rest: Floats
    params: Any


def watched(
    looking: Looking,
    runs: Run,
    steps: Steps,
    sizes: tuple[int, int],
    private: ExpertData,
) -> Watched:
    """Train, and score by all iterates; with it the results of training.

    `sizes` are those of an observation and of the set of actions.

    Raises:
        QuorumError: for an optimiser between whose iterates the adversary cannot see.
    """
    plan, schedule = looking.plan, steps.schedule
    recipe = plan.recipe
    if recipe.optimiser.name not in MOMENTS:
        raise QuorumError(
            f"the optimiser is {recipe.optimiser.name!r}, and an audit sees the steps of "
            f"{', '.join(MOMENTS)} only: audit the same training with one of them."
        )
    standing = fresh(plan, runs, sizes)
    before = _seen(recipe, standing)
    # Over the private steps so far: of the logarithms of ratios, of the parts along the canary, of
    # their squares, of the rest, and of ones.
    sums = np.zeros((5, len(runs.rates_end)))

    def after_step(standing: TrainState, done: int) -> None:
        nonlocal before, sums
        now = _seen(recipe, standing)
        private_now = schedule[done - 1] == StepKind.PRIVATE  # of all runs, or one for each
        if private_now.any():
            falling = np.clip(1 - (done - 1) / np.asarray(runs.rates_end), 0, None)
            rates = np.asarray(runs.private_learning_rate) * falling
            how, step = (recipe, looking.apart), (before, now, rates)
            views = _views(how, looking.claim, step, looking.canary, looking.other)
            ratio, along, rest = (np.asarray(view, np.float64) for view in views)
            seen = np.stack([ratio, along, along**2, rest, np.ones_like(along)])
            sums += np.where(private_now, seen, 0.0)
        before = now

    last = train_runs(plan, runs, steps, standing, private, after_step, steps_at_once=1)
    likelihood, along, squares, rest, taken = sums
    spread = squares - along**2 / np.maximum(taken, 1)
    return Watched(likelihood, spread, rest, result_of(recipe, last))


def agreement(learner: Learner, params: Any, observation_size: int) -> Floats:
    """On how many of the chosen states each final policy speaks for the canary.

    Beyond the origin, where a linear policy does the opposite, that is not to do as it did.

    Shapes: every leaf of `params` (runs, …), to (runs,).
    """
    states = np.zeros((len(LADDER), observation_size), np.float32)
    states[:, 0] = FAR * LADDER
    actions = np.asarray(jax.vmap(lambda of_run: learner.act(of_run, jnp.asarray(states)))(params))
    own = actions == CANARY_ACTION
    made: Floats = np.where(LADDER > 0, own, ~own).sum(axis=1).astype(np.float64)
    return made


@partial(jax.jit, static_argnums=0)
def contributed(recipe: Recipe, at: Seen, transition: Transition) -> Any:
    """What an expert with this one transition contributes, zeros where nothing is trained.

    It shows that transition as often as it is asked for one.
    """
    assert recipe.private_shape is not None  # or there is nothing to audit
    contribution = recipe.private_shape.contribution
    shown = jax.tree.map(
        lambda leaf: jnp.repeat(jnp.asarray(leaf)[None], contribution.transitions, axis=0),
        transition,
    )
    params, target, _ = at
    made = contribution(recipe.learner, params, target, shown, jax.random.key(0))
    marks = contribution.trained(recipe.learner, params)
    return jax.tree.map(lambda leaf, mark: leaf if mark else jnp.zeros_like(leaf), made, marks)


def _seen(recipe: Recipe, standing: TrainState) -> Seen:
    """Copies, because the next step takes the arrays over."""
    own = standing.optimisers[0 if recipe.shared_optimiser else 1]
    name = MOMENTS[recipe.optimiser.name]
    moment = None if name is None else getattr(own, name)
    copied: Seen = jax.tree.map(jnp.copy, (standing.params, standing.target, moment))
    return copied


@partial(jax.jit, static_argnums=0)
def _views(
    how: tuple[Recipe, bool],
    claim: StepClaim,
    step: tuple[Seen, Seen, Any],
    canary: Transition,
    other: Transition,
) -> tuple[Array, Array, Array]:
    """Of one private step of every run: the logarithm of the ratio, the part along the canary, and
    the squared size of the rest."""
    recipe, apart = how

    def view(before: Seen, now: Seen, learning_rate: Array) -> tuple[Array, Array, Array]:
        noisy = _flat(_noisy_mean(recipe, before, now, learning_rate))
        noisy *= claim.expected_batch / claim.clip_norm
        others = [_unit(part) for part in _parts(contributed(recipe, before, other), apart)]
        own = _parts(contributed(recipe, before, canary), apart)
        added = _without(
            sum((_clipped(part, claim) for part in own), jnp.zeros_like(noisy)), others
        )
        moved, direction = jnp.linalg.norm(added), _unit(added)
        along = noisy @ direction
        exponent = (2 * along * moved - moved**2) / (2 * claim.noise_multiplier**2)
        rate = claim.sampling_rate
        ratio = jnp.logaddexp(jnp.log1p(-rate), jnp.log(rate) + exponent)
        rest = jnp.square(_without(noisy, [*others, direction])).sum()
        return ratio, along, rest

    views: tuple[Array, Array, Array] = jax.vmap(view)(*step)
    return views


def _noisy_mean(recipe: Recipe, before: Seen, now: Seen, rate: Array) -> Any:
    """The noisy mean between two iterates."""
    name = recipe.optimiser.name
    if name == "sgd":
        return jax.tree.map(lambda old, new: (old - new) / rate, before[0], now[0])
    share = 1 - MOMENTUM if name == "adam" else 1.0
    return jax.tree.map(lambda old, new: (new - MOMENTUM * old) / share, before[2], now[2])


def _parts(tree: Any, apart: bool) -> list[Array]:
    """The whole as one vector; or as long a vector for each network."""
    if not apart:
        return [_flat(tree)]
    nothing = jax.tree.map(jnp.zeros_like, tree)
    return [_flat({**nothing, name: tree[name]}) for name in tree]


def _clipped(vector: Array, claim: StepClaim) -> Array:
    """A contribution as it is said to count, in clip norms."""
    size = jnp.linalg.norm(vector) / claim.clip_norm
    return _unit(vector) * jnp.where(claim.normalised, 1.0, jnp.minimum(size, 1.0))


def _without(vector: Array, directions: list[Array]) -> Array:
    """The part of a vector that is orthogonal to unit vectors, which are so to each other."""
    for direction in directions:
        vector = vector - (vector @ direction) * direction
    return vector


def _unit(vector: Array) -> Array:
    size = jnp.linalg.norm(vector)
    return vector / jnp.where(size > 0, size, 1)


def _flat(tree: Any) -> Array:
    return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(tree)])
