"""How a learner decides, as data: so that others can decide alike, in NumPy or in ONNX."""

from typing import NamedTuple

import jax.numpy as jnp

from quorum_rl.learners.networks import Array


class Decision(NamedTuple):
    """The action for which the network `highest` has the highest output; of several, the first.

    With `among_likely` only actions count that the softmax G of that network's outputs makes
    likely: G(b|s) / max G(·|s) > `threshold`.
    """

    highest: str
    among_likely: str | None = None
    threshold: float = 0.0

    def scores(self, outputs: dict[str, Array]) -> Array:
        """A number for each action, −∞ for those that do not count.

        Shapes: `(…, outputs) -> (…, action_count)`.
        """
        if self.among_likely is None:
            return outputs[self.highest]
        logits = outputs[self.among_likely]
        likely = jnp.exp(logits - logits.max(axis=-1, keepdims=True)) > self.threshold
        return jnp.where(likely, outputs[self.highest], -jnp.inf)
