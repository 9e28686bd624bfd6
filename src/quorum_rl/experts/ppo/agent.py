"""What one learning agent is: its recipe, its own settings, and its memory."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from quorum_rl.envs import AnyWorld, Running, start
from quorum_rl.errors import QuorumError
from quorum_rl.experts.heads import new_actor
from quorum_rl.experts.networks import Network, new_network

Array = jax.Array


@dataclass(frozen=True)
class PpoRecipe:
    """What all agents of a population share: it fixes the shapes of the program.

    One iteration rolls out `copies` worlds for `roll_out_steps` steps and goes over what happened
    `epochs` times, in slices of `slice_size` steps.
    """

    hidden: tuple[int, ...] = (512, 256, 64)
    copies: int = 64
    roll_out_steps: int = 128
    epochs: int = 2
    slice_size: int = 2048
    discount: float = 0.99
    trace_decay: float = 0.95  # GAE's λ
    clip: float = 0.2  # how far a probability ratio may move
    entropy_weight: float = 0.01
    value_weight: float = 0.5
    gradient_norm: float = 0.5  # gradients are scaled down to at most this length
    half_precision: bool = False  # bfloat16 products; weights and sums stay float32

    def __post_init__(self) -> None:
        if not self.hidden or not all(1 <= size <= 2**16 for size in self.hidden):
            raise QuorumError(f"hidden is {self.hidden}: give layers of 1 to 65536 units.")
        if self.steps_per_iteration % self.slice_size:
            raise QuorumError(
                f"slice_size {self.slice_size} does not divide the {self.steps_per_iteration} "
                "steps of an iteration (copies × roll_out_steps): choose a divisor."
            )

    @property
    def steps_per_iteration(self) -> int:
        return self.copies * self.roll_out_steps

    @property
    def slices(self) -> int:
        return self.steps_per_iteration // self.slice_size

    @property
    def dtype(self) -> Any:
        return jnp.bfloat16 if self.half_precision else jnp.float32


class Tuning(NamedTuple):
    """What differs between agents, as data: every leaf has an axis of agents in a population.

    `slices_per_update` is the batch size in slices: gradients of so many slices are averaged
    before a step is taken.
    """

    learning_rate: Array
    slices_per_update: Array
    params: Any  # of the agent's own world
    number: Array  # the agent's number, which makes its randomness its own


class Networks(NamedTuple):
    """Actor and critic share nothing but the optimiser's step."""

    actor: Network
    critic: Network


class RunningMoments(NamedTuple):
    """Mean and variance of all values so far, merged batch by batch (Chan et al., 1979)."""

    mean: Array
    variance: Array
    weight: Array  # how many values, as a float

    @classmethod
    def fresh(cls, shape: tuple[int, ...] = ()) -> "RunningMoments":
        return cls(jnp.zeros(shape), jnp.ones(shape), jnp.float32(1e-4))

    @property
    def deviation(self) -> Array:
        """The standard deviation, kept away from zero."""
        return jnp.sqrt(self.variance + 1e-8)

    def with_batch(self, values: Array) -> "RunningMoments":
        """The moments after seeing `values`, whose first axis is the batch."""
        batch_weight = values.shape[0]
        batch_mean = values.mean(axis=0)
        batch_variance = values.var(axis=0)
        weight = self.weight + batch_weight
        shift = batch_mean - self.mean
        mean = self.mean + shift * (batch_weight / weight)
        spread = self.variance * self.weight + batch_variance * batch_weight
        spread = spread + shift**2 * (self.weight * batch_weight / weight)
        return RunningMoments(mean, spread / weight, weight)


class Adam(NamedTuple):
    """The optimiser's memory, and the gradient gathered since its last step."""

    first: Networks
    second: Networks
    gathered: Networks
    updates: Array


class Agent(NamedTuple):
    """Everything an agent remembers between iterations."""

    networks: Networks
    optimiser: Adam
    seen: RunningMoments  # of observations
    earned: RunningMoments  # of discounted returns
    running: Running[Any]
    discounted: Array  # (copies,) return so far, discounted, for `earned`
    undiscounted: Array  # (copies,) of the episode under way, for the progress bar
    iteration: Array


def new_agent(world: AnyWorld, recipe: PpoRecipe, key: Array, tuning: Tuning) -> Agent:
    """An agent that has not seen anything yet."""
    actor_key, critic_key, world_key = jax.random.split(jax.random.fold_in(key, tuning.number), 3)
    sizes = (world.spaces.observation_size, *recipe.hidden)
    networks = Networks(
        # A small last gain starts the policy near the uniform one.
        actor=new_actor(actor_key, sizes, world.spaces, last_gain=0.01),
        critic=new_network(critic_key, (*sizes, 1), last_gain=1.0),
    )
    zeros = jax.tree.map(jnp.zeros_like, networks)
    return Agent(
        networks=networks,
        optimiser=Adam(zeros, zeros, zeros, jnp.int32(0)),
        seen=RunningMoments.fresh((world.spaces.observation_size,)),
        earned=RunningMoments.fresh(),
        running=start(world, world_key, tuning.params, recipe.copies),
        discounted=jnp.zeros(recipe.copies),
        undiscounted=jnp.zeros(recipe.copies),
        iteration=jnp.int32(0),
    )
