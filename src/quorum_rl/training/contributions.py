"""What an expert contributes to a private step: the only code of training that sees its log.

A contribution is a pure function of the shared parameters, the target, some of one expert's
transitions and a key. It says in which direction the parameters should *not* go, as a gradient
does: the server subtracts. Whatever it returns is checked to be shaped as the parameters
(`trained_leaves`), clipped, rounded and summed in one place (`mechanism.py`), so that none of them
can spoil the guarantee.

- `Local`: the expert learns from its own log for some steps; the way it went, reversed.
- `Gradient`: the mean gradient of its transitions.
- `Solve`: a last layer in closed form over features that are public.

One's own is a frozen dataclass like these, and goes into a fit as `FitSettings.contribution`.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from quorum_rl.errors import POSITIVE, QuorumError, at_least, require
from quorum_rl.learners import DenseLearner, Learner
from quorum_rl.logs import Declared
from quorum_rl.nets import apply_hidden
from quorum_rl.training.data import blank_transitions
from quorum_rl.types import Transition

Array = jax.Array


class Contribution(Protocol):
    """How an expert's transitions become its contribution: a frozen dataclass, and pure.

    It is called under `vmap`, once for every expert, and sees nobody else's transitions.
    """

    @property
    def transitions(self) -> int:
        """How many of an expert's transitions it is given, drawn uniformly with replacement."""

    def trained(self, learner: Learner, params: Any) -> Any:
        """Which leaves of the parameters it changes: a pytree of booleans. Others get no noise."""

    def __call__(
        self, learner: Learner, params: Any, target: Any, transitions: Transition, key: Array
    ) -> Any:
        """The contribution of one expert, as `params`. Shapes: the fields (transitions, …)."""


def trained_leaves(
    contribution: Contribution,
    learner: Learner,
    params: Any,
    target: Any,
    transitions: Transition,
    key: Array,
) -> list[Array]:
    """What one expert contributes to the leaves that are trained, one for each of them.

    A leaf of another shape might broadcast: clipped as few numbers, it would count as many.

    Raises:
        QuorumError: if leaves or shapes are not those of `params`.
    """
    made = contribution(learner, params, target, transitions, key)
    marks = contribution.trained(learner, params)
    structures = {jax.tree.structure(tree) for tree in (params, made, marks)}
    leaves, wanted = jax.tree.leaves(made), jax.tree.leaves(params)
    same = [jnp.shape(leaf) for leaf in leaves] == [leaf.shape for leaf in wanted]
    if len(structures) > 1 or not same:
        raise QuorumError(
            f"the contribution {type(contribution).__name__} has other leaves or shapes than the "
            "parameters, or marks others as trained: return what can be subtracted from them."
        )
    return [leaf for leaf, mark in zip(leaves, jax.tree.leaves(marks), strict=True) if mark]


def check_contribution(contribution: Contribution, learner: Learner, declared: Declared) -> None:
    """Try a contribution on shapes alone, before anything is paid for.

    Raises:
        QuorumError: if it asks for no transitions, or as `trained_leaves`.
    """
    count = contribution.transitions
    require(f"transitions of {type(contribution).__name__}", count, at_least(1))

    def made() -> list[Array]:
        key = jax.random.key(0)
        params = learner.init(key, declared.observation_size, declared.action_count)
        shown = blank_transitions(declared, count)
        target = learner.init_target(params)
        return trained_leaves(contribution, learner, params, target, shown, key)

    jax.eval_shape(made)


def mean_gradient(
    learner: Learner, params: Any, target: Any, transitions: Transition, key: Array
) -> Any:
    """The gradient of the mean loss of some transitions. Private only if they are public already.

    Shapes: the fields of `transitions` (n, …); the gradient as `params`.
    """
    keys = jax.random.split(key, len(transitions.reward))

    def mean_loss(params: Any) -> Array:
        losses = jax.vmap(learner.loss, (None, None, 0, 0))(params, target, transitions, keys)
        return losses.mean()

    return jax.grad(mean_loss)(params)


class TrainsEverything:
    """To derive from: contributions that change all parameters."""

    def trained(self, learner: Learner, params: Any) -> Any:
        del learner
        return jax.tree.map(lambda _: True, params)


@dataclass(frozen=True, kw_only=True)
class Gradient(TrainsEverything):
    """The mean gradient of `transitions` transitions: DP-SGD, and with 1 the paper's step."""

    transitions: int = 64

    def __post_init__(self) -> None:
        require("transitions_per_expert", self.transitions, at_least(1))

    def __call__(
        self, learner: Learner, params: Any, target: Any, transitions: Transition, key: Array
    ) -> Any:
        return mean_gradient(learner, params, target, transitions, key)


@dataclass(frozen=True, kw_only=True)
class Local(TrainsEverything):
    """`steps` plain gradient steps from the shared parameters, each on `batch_size` transitions."""

    steps: int = 20
    batch_size: int = 64
    rate: float = 0.5

    def __post_init__(self) -> None:
        require("local_steps", self.steps, at_least(1))
        require("transitions_per_expert", self.batch_size, at_least(1))
        require("local_rate", self.rate, POSITIVE)

    @property
    def transitions(self) -> int:
        return self.steps * self.batch_size

    def __call__(
        self, learner: Learner, params: Any, target: Any, transitions: Transition, key: Array
    ) -> Any:
        parts = jax.tree.map(
            lambda leaf: leaf.reshape(self.steps, self.batch_size, *leaf.shape[1:]), transitions
        )

        def step(at: Any, now: tuple[Transition, Array]) -> tuple[Any, None]:
            batch, key = now
            gradient = mean_gradient(learner, at, target, batch, key)
            return jax.tree.map(lambda old, by: old - self.rate * by, at, gradient), None

        last, _ = jax.lax.scan(step, params, (parts, jax.random.split(key, self.steps)))
        return jax.tree.map(jnp.subtract, params, last)


@dataclass(frozen=True, kw_only=True)
class Solve:
    """Imitation by ridge regression of the last layer, over the hidden layers as they are.

    The hidden layers stay at their random beginning, which is public, and get no noise. Each action
    is regressed on the features, 1 where the expert took it and −1/(actions − 1) where not. One
    step with a large rate leaves nothing of the last layer's own beginning, and who decides by the
    highest output does not mind the scale.
    """

    transitions: int = 1024
    ridge: float = 0.01

    def __post_init__(self) -> None:
        require("transitions_per_expert", self.transitions, at_least(1))
        require("ridge", self.ridge, POSITIVE)

    def trained(self, learner: Learner, params: Any) -> Any:
        _, name = _imitator(learner)
        marks = jax.tree.map(lambda _: False, params)
        *hidden, last = marks[name]
        return marks | {name: (*hidden, jax.tree.map(lambda _: True, last))}

    def __call__(
        self, learner: Learner, params: Any, target: Any, transitions: Transition, key: Array
    ) -> Any:
        del target, key
        learner, name = _imitator(learner)
        last = params[name][-1]
        observations = learner.standardised(transitions.observation)
        seen = apply_hidden(params[name], observations, jax.nn.relu)
        features = jnp.concatenate([seen, jnp.ones((len(seen), 1))], axis=1)
        actions = last.bias.shape[0]
        taken = transitions.action[:, None] == jnp.arange(actions)
        aims = jnp.where(taken, 1.0, -1.0 / max(actions - 1, 1))
        moments = features.T @ features / len(features)
        found = jnp.linalg.solve(
            moments + self.ridge * jnp.eye(len(moments)), features.T @ aims / len(features)
        )
        head = last._replace(weight=-found[:-1], bias=-found[-1])
        still = jax.tree.map(jnp.zeros_like, params)
        return still | {name: (*still[name][:-1], head)}


def _imitator(learner: Learner) -> tuple[DenseLearner, str]:
    """The learner, and the name of its network whose last layer is solved for."""
    if not isinstance(learner, DenseLearner) or learner.target_names:
        name = getattr(learner, "name", type(learner).__name__)
        raise QuorumError(f"the learner of method solve is {name}: give bc.")
    highest = learner.decision().highest
    if highest is None:
        raise QuorumError(
            "method solve learns finite actions, and these are continuous: give local."
        )
    return learner, highest
