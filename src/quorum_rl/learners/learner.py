"""What a learner is: `Learner`, the protocol, and `DenseLearner`, what ours and most others are."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import (
    Any,
    ClassVar,
    Final,
    NamedTuple,
    Protocol,
    TypeAlias,
    final,
    runtime_checkable,
)

import jax
import jax.numpy as jnp

from quorum_rl.dictionary import Bounds
from quorum_rl.errors import SHARE, QuorumError, Rule, at_least, require
from quorum_rl.learners import defaults
from quorum_rl.nets import Layer, Network, apply
from quorum_rl.types import Transition

Array: TypeAlias = jax.Array
Networks: TypeAlias = dict[str, Network]  # by what they answer
Outputs: TypeAlias = dict[str, Array]  # of each network, for one observation or many

FINITE: Final = "finite"
CONTINUOUS: Final = "continuous"
LARGEST: Final = 1e30  # of what standardises: float32 holds its inverse too
SIZES: Final = Rule(  # a tuple, because compiled functions are looked up by their learner's hash
    "a tuple of numbers above 0",
    lambda sizes: isinstance(sizes, tuple) and all(size >= 1 for size in sizes),
)
NOT_NEGATIVE: Final = Rule("0 or more", lambda value: value >= 0)
DISCOUNT: Final = Rule("a number from 0 to 1", lambda value: 0 <= value <= 1)
CENTRE: Final = Rule(
    f"a tuple of numbers up to ±{LARGEST:g}",
    lambda centre: isinstance(centre, tuple) and all(abs(number) <= LARGEST for number in centre),
)
SCALE: Final = Rule(
    f"a tuple of numbers from {1 / LARGEST:g} to {LARGEST:g}",
    lambda scale: (
        isinstance(scale, tuple) and all(1 / LARGEST <= number <= LARGEST for number in scale)
    ),
)


class Decision(NamedTuple):
    """How a learner decides, as data, so that NumPy and ONNX can decide alike.

    Of finite actions it is the one for which the network `highest` has the highest output; of
    several, the first. With `among_likely` only actions count that the softmax G of that network's
    outputs makes likely: G(b|s) / max G(·|s) > `threshold`.

    A continuous action is what the network `squashed` says: tanh takes each output between -1 and
    1, which stand for the bounds of that number.
    """

    highest: str | None = None
    among_likely: str | None = None
    threshold: float = 0.0
    squashed: str | None = None

    def scores(self, outputs: Outputs) -> Array:
        """A number for each of finite actions, −∞ for those that do not count.

        Shapes: `(…, outputs) -> (…, action_count)`.
        """
        assert self.highest is not None
        if self.among_likely is None:
            return outputs[self.highest]
        logits = outputs[self.among_likely]
        likely = jnp.exp(logits - logits.max(axis=-1, keepdims=True)) > self.threshold
        return jnp.where(likely, outputs[self.highest], -jnp.inf)


@runtime_checkable
class Learner(Protocol):
    """Offline reinforcement learning as a loss: hyper-parameters, and pure functions of the rest.

    Every method works under `jit` and `vmap`; parameters and targets may be any pytrees.
    """

    def init(self, key: Array, observation_size: int, action_count: int) -> Any:
        """Random parameters."""

    def init_target(self, params: Any) -> Any:
        """What the loss bootstraps from, at the start."""

    def loss(self, params: Any, target: Any, transition: Transition, key: Array) -> Array:
        """The loss of one transition, without a batch axis."""

    def update_target(self, params: Any, target: Any, step: Array) -> Any:
        """The target after gradient step number `step`, counted from one."""

    def act(self, params: Any, observations: Array) -> Array:
        """The greedy actions.

        Shapes: `(…, observation_size) -> (…)`; continuous actions `(…, action_count)`.
        """


@dataclass(frozen=True, kw_only=True)
class DenseLearner(ABC):
    """A learner whose loss sees its parameters through the outputs of dense networks, and only so.

    A subclass says which networks there are (`output_sizes`), what their outputs are pulled
    towards (`goal`, a constant as far as gradients are concerned), the `loss_from_outputs` and how
    it decides (`decision`). All networks look at `transition.observation`.

    Networks see observations as (observation − centre) / scale, public numbers that must not come
    from the logs; empty ones leave observations as they are. `loss` and `act` take what a world
    shows and standardise it once: a subclass's methods are given standardised transitions, and
    choose actions for them with `greedy`.

    With `action_bounds` actions are continuous, and a subclass sees and gives them with each number
    from -1 to 1, which stand for its bounds. Networks in `see_actions` look at the action, too.
    """

    hidden_sizes: tuple[int, ...] = defaults.HIDDEN_SIZES
    discount: float = defaults.DISCOUNT
    target_interval: int = defaults.TARGET_INTERVAL  # gradient steps between two updates
    target_rate: float = defaults.TARGET_RATE  # share of the parameters in an update; 1 copies them
    observation_centre: tuple[float, ...] = ()
    observation_scale: tuple[float, ...] = ()
    action_bounds: Bounds = ()

    name: ClassVar[str]
    takes: ClassVar[tuple[str, ...]] = (FINITE,)  # which kinds of actions it can learn
    see_actions: ClassVar[tuple[str, ...]] = ()
    target_names: ClassVar[tuple[str, ...]] = ()  # networks that have a slow copy
    code_digest: ClassVar[str | None] = None  # the SHA-256 of the user's own file that it is from

    def __post_init__(self) -> None:
        require("hidden_sizes", self.hidden_sizes, SIZES)
        require("discount", self.discount, DISCOUNT)
        require("target_interval", self.target_interval, at_least(1))
        require("target_rate", self.target_rate, SHARE)
        centre, scale = self.observation_centre, self.observation_scale
        require("observation_centre", centre, CENTRE)
        require("observation_scale", scale, SCALE)
        if len(scale) != len(centre):
            raise QuorumError(
                f"observation_scale is {scale}: give as many numbers as for the centre, {centre}."
            )

    @final
    def check_actions(self, bounds: Bounds) -> None:
        """Fail unless it learns actions with these bounds, or finite ones where there are none.

        Raises:
            QuorumError: naming what it learns.
        """
        kind, name = (CONTINUOUS if bounds else FINITE), getattr(self, "name", type(self).__name__)
        if kind not in self.takes:
            raise QuorumError(
                f"{name} learns {self.takes[0]} actions, and these are {kind}: choose another "
                "learner, such as bc."
            )
        if self.action_bounds != bounds:
            raise QuorumError(
                f"{name} was made for action_bounds {self.action_bounds}, but {bounds} are "
                "declared: leave them out, or give these."
            )

    @final
    def check_observation_size(self, size: int) -> None:
        """Fail if observations of so many numbers cannot be standardised.

        Raises:
            QuorumError: naming how many numbers it takes.
        """
        fits = Rule(f"{size} numbers, or none", lambda centre: len(centre) in (0, size))
        require("observation_centre", self.observation_centre, fits)

    @abstractmethod
    def output_sizes(self, action_count: int) -> Mapping[str, int]:
        """How many outputs each network has."""

    def goal(self, params: Networks, target: Networks, transition: Transition, key: Array) -> Any:
        """What the loss pulls towards: a pytree through which no gradient flows, or nothing."""
        del params, target, transition, key

    def outputs(self, params: Networks, transition: Transition) -> Outputs:
        """What the loss sees of the networks: what each says of the observation, by its name."""
        seen = transition.observation
        if not self.see_actions:
            return outputs_of(params, seen)
        both = jnp.concatenate([seen, transition.action])
        return {
            name: apply_network(network, both if name in self.see_actions else seen)
            for name, network in params.items()
        }

    @abstractmethod
    def loss_from_outputs(self, outputs: Outputs, goal: Any, transition: Transition) -> Array:
        """The loss of one transition, from what the networks say of its observation."""

    def decision(self) -> Decision:
        """How the outputs decide, as data, so that a policy can leave JAX.

        Raises:
            QuorumError: if the learner does not say.
        """
        raise QuorumError(
            f"{type(self).__name__} does not say how it decides: define its method decision."
        )

    def scores(self, outputs: Outputs) -> Array:
        """A number for each action; the greedy action has the highest.

        A learner may score in a way that no `decision` describes, but then its policies cannot
        be exported.

        Shapes: `(…, outputs) -> (…, action_count)`.
        """
        return self.decision().scores(outputs)

    @final
    def init(self, key: Array, observation_size: int, action_count: int) -> Networks:
        self.check_observation_size(observation_size)
        sizes = self.output_sizes(action_count)
        keys = jax.random.split(key, len(sizes))
        inputs = {
            name: observation_size + action_count * (name in self.see_actions) for name in sizes
        }
        return {
            name: new_network(network_key, (inputs[name], *self.hidden_sizes, outputs))
            for network_key, (name, outputs) in zip(keys, sizes.items(), strict=True)
        }

    @final
    def init_target(self, params: Networks) -> Networks:
        # Copies, so that parameters and target may both be donated to a compiled step.
        return {name: jax.tree.map(jnp.copy, params[name]) for name in self.target_names}

    @final
    def loss(self, params: Networks, target: Networks, transition: Transition, key: Array) -> Array:
        transition = self._standardised_transition(transition)
        goal = jax.lax.stop_gradient(self.goal(params, target, transition, key))
        return self.loss_from_outputs(self.outputs(params, transition), goal, transition)

    @final
    def update_target(self, params: Networks, target: Networks, step: Array) -> Networks:
        due = step % self.target_interval == 0
        rate = self.target_rate

        def moved(new: Array, old: Array) -> Array:
            return jnp.where(due, rate * new + (1 - rate) * old, old)

        return {name: jax.tree.map(moved, params[name], target[name]) for name in target}

    @final
    def act(self, params: Networks, observations: Array) -> Array:
        chosen = self.greedy(params, self.standardised(observations))
        return within_bounds(chosen, self.action_bounds) if self.action_bounds else chosen

    @final
    def greedy(self, params: Networks, standardised: Array) -> Array:
        """The greedy actions for observations that are standardised already.

        Shapes: `(…, observation_size) -> (…)`; continuous ones, from -1 to 1, `(…, action_count)`.
        """
        if self.action_bounds:
            squashed = self.decision().squashed
            assert squashed is not None
            return jnp.tanh(apply_network(params[squashed], standardised))
        return self.scores(outputs_of(params, standardised)).argmax(axis=-1)

    @final
    def standardised(self, observations: Array) -> Array:
        """What the networks see of observations. Shapes: `(…, observation_size)`, both."""
        if not self.observation_centre:
            return observations
        centre = jnp.asarray(self.observation_centre, jnp.float32)
        return (observations - centre) / jnp.asarray(self.observation_scale, jnp.float32)

    def _standardised_transition(self, transition: Transition) -> Transition:
        action = transition.action
        if self.action_bounds:
            low, high = jnp.asarray(self.action_bounds, jnp.float32).T
            action = (2 * action - low - high) / (high - low)
        return transition._replace(
            observation=self.standardised(transition.observation),
            action=action,
            next_observation=self.standardised(transition.next_observation),
        )


@lru_cache(maxsize=64)
def shapes_of(learner: Any, observation_size: int, action_count: int) -> Any:
    """The parameters of a learner as shapes alone: nothing is drawn."""
    return jax.eval_shape(lambda: learner.init(jax.random.key(0), observation_size, action_count))


def within_bounds(squashed: Array, bounds: Bounds) -> Array:
    """Continuous actions in the world's numbers, from numbers between -1 and 1."""
    low, high = jnp.asarray(bounds, jnp.float32).T
    return jnp.clip((low + high) / 2 + (high - low) / 2 * squashed, low, high)


def outputs_of(networks: Networks, observations: Array) -> Outputs:
    """What each network says of standardised observations."""
    return {name: apply_network(network, observations) for name, network in networks.items()}


def apply_network(network: Network, observations: Array) -> Array:
    """What one network says of standardised observations.

    Shapes: `(…, inputs) -> (…, outputs)`.
    """
    outputs: Array = apply(network, observations, jax.nn.relu)
    return outputs


def new_network(key: Array, sizes: tuple[int, ...]) -> Network:
    """Random layers from `sizes[0]` inputs to `sizes[-1]` outputs.

    Weights and biases are uniform in ±1/√inputs, as in the code the published results of CQL and
    BCQ come from (PyTorch's default for a linear layer).
    """

    def uniform(key: Array, shape: tuple[int, ...], inputs: int) -> Array:
        bound = 1 / math.sqrt(inputs)
        return jax.random.uniform(key, shape, jnp.float32, -bound, bound)

    keys = jax.random.split(key, (len(sizes) - 1, 2))
    return tuple(
        Layer(
            uniform(weight_key, (inputs, outputs), inputs),
            uniform(bias_key, (outputs,), inputs),
        )
        for (weight_key, bias_key), (inputs, outputs) in zip(keys, pairwise(sizes), strict=True)
    )
