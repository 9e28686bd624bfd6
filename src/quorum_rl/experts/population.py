"""Experts that we trained ourselves: the networks of all of them, stacked.

π_i(a|s) must be one number, however and wherever it is asked. A matrix product may round
differently in another shape, so every query and every roll-out for the logs goes through
`PlacedNetworks`, which only ever multiplies blocks of one shape.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from quorum_rl.distributed import over_experts, padded, padded_each, placed
from quorum_rl.experts.checks import (
    Probabilities,
    checked_gaussians,
    checked_observations,
    checked_probabilities,
    distributions_or_nan,
)
from quorum_rl.experts.expert_set import NO_ACTION, OwnLikeliest, OwnPolicies, UnloggedExperts
from quorum_rl.experts.networks import Array, Network, apply_network, in_precision


class BlockSize(NamedTuple):
    """The shape in which networks are multiplied: so many experts, and states of each."""

    experts: int
    rows: int


CPU_BLOCK: Final = BlockSize(32, 32)
GPU_BLOCK: Final = BlockSize(
    256, 128
)  # a GPU wants more at once, and to read the weights less often


def block() -> BlockSize:
    """The one shape of this process."""
    return CPU_BLOCK if jax.default_backend() == "cpu" else GPU_BLOCK


@dataclass(frozen=True, kw_only=True, eq=False)
class Population(UnloggedExperts):
    """Trained experts; leaves of `network` have a leading axis of experts and may be mapped files.

    `origin` says how they came to be: the world, the training configuration, the seed. It holds
    nothing about a single expert.

    With `action_bounds` actions are continuous, and the networks say a Gaussian (`heads`), from
    which experts draw what they do, cut to the bounds: there are no probabilities then.
    """

    network: Network = field(repr=False)
    origin: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.network[0].bias)

    def contents(self) -> Iterator[Any]:
        leaves = (np.ascontiguousarray(leaf) for layer in self.network for leaf in layer)
        return (leaf.reshape(-1).view(np.uint8) for leaf in leaves)

    def probabilities_of(self, experts: slice, observations: npt.ArrayLike) -> Probabilities:
        self._check_finite()
        states = checked_observations(observations, self.observation_size)
        numbers = range(len(self))[experts]
        if not numbers or not len(states):
            return np.zeros((len(numbers), len(states), self.action_count))
        return self._checked(self._chunk(experts).in_common(states), numbers)

    def _answers_or_nan(self, experts: slice, observations: npt.ArrayLike) -> Probabilities:
        self._check_finite()
        states = checked_observations(observations, self.observation_size)
        if not range(len(self))[experts] or not len(states):
            return self.probabilities_of(experts, states)
        found = distributions_or_nan(self._chunk(experts).in_common(states), self.p_min)
        found /= found.sum(axis=-1)[..., None]
        return found

    def greedy_actions(
        self, experts: slice, observations: npt.ArrayLike
    ) -> npt.NDArray[np.integer[Any]]:
        self._check_finite()
        states = checked_observations(observations, self.observation_size)
        numbers = range(len(self))[experts]
        if not numbers or not len(states):
            return np.zeros((len(numbers), len(states)), np.int16)
        return self._chunk(experts).in_common(states, greedy=True)

    def _chunk(self, experts: slice) -> "PlacedNetworks":
        """Some of the experts, on the devices; kept there if the devices have their own memory."""
        key = experts.indices(len(self))
        if key in self._kept:
            return self._kept[key]
        made = self._placed(experts)
        if jax.default_backend() != "cpu":
            self._kept[key] = made
        return made

    @cached_property
    def _kept(self) -> dict[tuple[int, int, int], "PlacedNetworks"]:
        return {}

    def among(self, experts: slice) -> OwnPolicies:
        networks, numbers = self._placed(experts), range(len(self))[experts]
        if self.action_bounds:
            return lambda states: checked_gaussians(networks.in_own(states, raw=True), numbers)
        return lambda states: self._checked(networks.in_own(states), numbers)

    def likeliest_among(self, experts: slice) -> OwnLikeliest:
        network = jax.tree.map(lambda leaf: leaf[experts], self.network)
        count = len(network[0].bias)
        where_they_act = placed(padded_each(network, count, block().experts))
        return partial(_likeliest_in_own, where_they_act)

    def _placed(self, experts: slice) -> "PlacedNetworks":
        return PlacedNetworks(jax.tree.map(lambda leaf: leaf[experts], self.network))

    def _checked(self, answers: npt.NDArray[np.float32], numbers: range) -> Probabilities:
        return checked_probabilities(
            answers, numbers, rows=answers.shape[1], action_count=self.action_count
        )


class PlacedNetworks:
    """The networks of some experts on the devices, to be asked again and again."""

    def __init__(self, network: Network) -> None:
        self.experts = len(network[0].bias)
        self.network = placed(padded(network, self.experts, block().experts))

    def in_own(
        self, observations: npt.NDArray[np.float32], raw: bool = False
    ) -> npt.NDArray[np.float32]:
        """What each expert does in states of its own; if `raw`, what its network says.

        Shapes: `(experts, rows, observation_size)` to `(experts, rows, action_count)`.
        """
        experts, rows, width = observations.shape
        filled = np.zeros((len(self.network[0].bias), _filled(rows), width), np.float32)
        filled[:experts, :rows] = observations
        found = _compiled("own states, raw" if raw else "own states")(self.network, placed(filled))
        return np.asarray(found)[:experts, :rows]

    def in_common(self, states: npt.NDArray[np.float32], greedy: bool = False) -> npt.NDArray[Any]:
        """What each expert does in states that are the same for all; the same numbers.

        If `greedy`, each expert's likeliest action instead: of equals the first, NO_ACTION of NaN.

        Shapes: `(rows, observation_size)` to `(experts, rows, action_count)`, or `(experts, rows)`.
        """
        rows, width = states.shape
        filled = np.zeros((_filled(rows), width), np.float32)
        filled[:rows] = states
        found = _compiled("greedy" if greedy else "common states")(self.network, filled)
        return np.asarray(found)[: self.experts, :rows]


def _filled(rows: int) -> int:
    """Rows in whole blocks; of many blocks an eighth may be empty, so that few programs exist."""
    blocks = -(-rows // block().rows)
    unit = 1 << max(blocks.bit_length() - 4, 0)
    return block().rows * unit * -(-blocks // unit)


@lru_cache(maxsize=4)
def _compiled(what: str) -> Any:
    if what.startswith("own states"):
        return over_experts(partial(_in_own_states, raw=what.endswith("raw")))
    return over_experts(partial(_in_common_states, greedy=what == "greedy"), shared=1)


def _likeliest_in_own(network: Network, observations: Array) -> Array:
    """See `OwnLikeliest`: where `in_own` would be asked, without leaving the devices.

    Of `network` each device has as many whole blocks as its own experts fill.
    """
    rows = observations.shape[1]
    filled = _filling(_filled(rows))(observations, network[0].bias)
    found = _compiled("own states")(network, filled)
    chosen: Array = _choosing(rows)(observations, found)
    return chosen


@lru_cache(maxsize=16)
def _filling(rows: int) -> Any:
    """States with zeros behind: so many of each expert, and as many experts as biases."""

    def fill(states: Array, biases: Array) -> Array:
        experts = len(biases) - len(states)
        return jnp.pad(states, [(0, experts), (0, rows - states.shape[1]), (0, 0)])

    return over_experts(fill)


@lru_cache(maxsize=16)
def _choosing(rows: int) -> Any:
    """The likeliest actions of those who have states of their own, in the first states of each."""

    def choose(states: Array, found: Array) -> Array:
        valid = jnp.isfinite(found).all(axis=-1)
        chosen = jnp.where(valid, found.argmax(axis=-1), NO_ACTION)
        return chosen[: len(states), :rows].astype(jnp.int16)

    return over_experts(choose)


def _in_own_states(network: Network, observations: Array, *, raw: bool) -> Array:
    """Probabilities, or outputs as they are, block by block.

    Shapes: `(experts, rows, observation_size)` to `(experts, rows, action_count)`.
    """
    experts, rows, width = observations.shape
    size = block()
    states = observations.reshape(-1, size.experts, rows // size.rows, size.rows, width)

    def of_experts(pair: tuple[Network, Array]) -> Array:
        some, their_states = pair
        found: Array = jax.lax.map(
            lambda seen: _block_answers(some, seen, raw), their_states.swapaxes(0, 1)
        )
        return found.swapaxes(0, 1).reshape(size.experts, rows, -1)

    every: Array = jax.lax.map(of_experts, (_in_expert_blocks(network), states))
    return every.reshape(experts, rows, -1)


def _in_common_states(network: Network, observations: Array, *, greedy: bool) -> Array:
    """The same numbers for states that all experts share, or the likeliest actions.

    Shapes: `(rows, observation_size)` to `(experts, rows, action_count)`, or `(experts, rows)`.
    """
    rows, width = observations.shape
    experts, size = len(network[0].bias), block()
    states = observations.reshape(-1, size.rows, width)

    def of_experts(some: Network) -> Array:
        def of_rows(seen: Array) -> Array:
            # The barrier keeps this product the one that each expert's own states would get.
            each = jax.lax.optimization_barrier(jnp.broadcast_to(seen, (size.experts, *seen.shape)))
            found = _block_answers(some, each)
            if not greedy:
                return found
            valid = jnp.isfinite(found).all(axis=-1)
            return jnp.where(valid, found.argmax(axis=-1), NO_ACTION).astype(jnp.int16)

        found: Array = jax.lax.map(of_rows, states)
        return found.swapaxes(0, 1).reshape(size.experts, rows, *found.shape[3:])

    every: Array = jax.lax.map(of_experts, _in_expert_blocks(network))
    return every.reshape(experts, rows, *every.shape[3:])


def _in_expert_blocks(network: Network) -> Network:
    size = block().experts
    made: Network = jax.tree.map(lambda leaf: leaf.reshape(-1, size, *leaf.shape[1:]), network)
    return made


def _block_answers(network: Network, states: Array, raw: bool = False) -> Array:
    """One block: the only shape in which networks are ever multiplied here.

    Shapes: `(block().experts, block().rows, observation_size)` to `(…, …, action_count)`.
    """
    exact = in_precision(network, jnp.dtype(jnp.float32))
    # Full float32 products: the default on some GPUs has ten bits.
    with jax.default_matmul_precision("highest"):
        outputs = jax.vmap(apply_network)(exact, states)
        return outputs if raw else jax.nn.softmax(outputs)
