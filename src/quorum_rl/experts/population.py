"""Experts that we trained ourselves: the networks of all of them, stacked.

π_i(a|s) must be one number, however and wherever it is asked. A matrix product may round
differently in another shape, so every query and every roll-out for the logs goes through
`PlacedNetworks`, which only ever multiplies blocks of one shape.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from quorum_rl.devices import over_experts, padded, placed
from quorum_rl.experts.checks import Probabilities, checked_observations, checked_probabilities
from quorum_rl.experts.expert_set import Policy, UnloggedExperts
from quorum_rl.experts.networks import Array, Network, apply_network, in_precision

EXPERT_BLOCK: Final = 32
ROW_BLOCK: Final = 32


@dataclass(frozen=True, kw_only=True, eq=False)
class Population(UnloggedExperts):
    """Trained experts; leaves of `network` have a leading axis of experts and may be mapped files.

    `origin` says how they came to be: the world, the training configuration, the seed. It holds
    nothing about a single expert.
    """

    network: Network = field(repr=False)
    origin: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.network[0].bias)

    def probabilities_of(self, experts: slice, observations: npt.ArrayLike) -> Probabilities:
        states = checked_observations(observations, self.observation_size)
        numbers = range(len(self))[experts]
        if not numbers or not len(states):
            return np.zeros((len(numbers), len(states), self.action_count))
        chosen = jax.tree.map(lambda leaf: leaf[experts], self.network)
        every = np.broadcast_to(states, (len(numbers), *states.shape))
        return self._checked(PlacedNetworks(chosen).probabilities(every), numbers)

    def own_probabilities(self, observations: npt.NDArray[np.float32]) -> Probabilities:
        return self._checked(self._placed.probabilities(observations), range(len(self)))

    def alone(self, number: int) -> Policy:
        one = slice(number, number + 1)
        networks = PlacedNetworks(jax.tree.map(lambda leaf: leaf[one], self.network))
        numbers = range(number, number + 1)
        return lambda states: self._checked(networks.probabilities(states[None]), numbers)[0]

    @cached_property
    def _placed(self) -> "PlacedNetworks":
        return PlacedNetworks(self.network)

    def _checked(self, answers: npt.NDArray[np.float32], numbers: range) -> Probabilities:
        return checked_probabilities(
            answers,
            numbers,
            rows=answers.shape[1],
            action_count=self.action_count,
            p_min=self.p_min,
        )


class PlacedNetworks:
    """The networks of some experts on the devices, to be asked again and again."""

    def __init__(self, network: Network) -> None:
        experts = len(network[0].bias)
        self.network = placed(padded(network, experts, EXPERT_BLOCK))

    def probabilities(self, observations: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """What each expert does in states of its own.

        Shapes: `(experts, rows, observation_size)` to `(experts, rows, action_count)`.
        """
        experts, rows, width = observations.shape
        filled_rows = rows + -rows % ROW_BLOCK
        filled = np.zeros((len(self.network[0].bias), filled_rows, width), np.float32)
        filled[:experts, :rows] = observations
        found = _compiled()(self.network, placed(filled))
        return np.asarray(found)[:experts, :rows]


@lru_cache(maxsize=1)
def _compiled() -> Any:
    return over_experts(_in_blocks)


def _in_blocks(network: Network, observations: Array) -> Array:
    """Probabilities, block by block: EXPERT_BLOCK experts and ROW_BLOCK of their states at once."""
    experts, rows, width = observations.shape
    expert_blocks, row_blocks = experts // EXPERT_BLOCK, rows // ROW_BLOCK
    networks = jax.tree.map(
        lambda leaf: leaf.reshape(expert_blocks, EXPERT_BLOCK, *leaf.shape[1:]), network
    )
    states = observations.reshape(expert_blocks, EXPERT_BLOCK, row_blocks, ROW_BLOCK, width)

    def of_experts(pair: tuple[Network, Array]) -> Array:
        some, their_states = pair
        exact = in_precision(some, jnp.dtype(jnp.float32))

        def of_rows(block: Array) -> Array:
            # Full float32 products: the default on some GPUs has ten bits.
            with jax.default_matmul_precision("highest"):
                return jax.nn.softmax(jax.vmap(apply_network)(exact, block))

        found: Array = jax.lax.map(of_rows, their_states.swapaxes(0, 1))
        return found.swapaxes(0, 1).reshape(EXPERT_BLOCK, rows, -1)

    every: Array = jax.lax.map(of_experts, (networks, states))
    return every.reshape(experts, rows, -1)
