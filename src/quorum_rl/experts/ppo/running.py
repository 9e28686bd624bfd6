"""Running means and variances, for scaling what an agent sees and earns."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

Array = jax.Array


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
