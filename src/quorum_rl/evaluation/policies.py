"""How good a policy is that somebody wrote to a file: the same episodes, without its learner."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from quorum_rl.envs import AnyWorld
from quorum_rl.errors import QuorumError
from quorum_rl.evaluation.returns import Array, returns_of
from quorum_rl.learners import Decision, outputs_of
from quorum_rl.nets import Layer
from quorum_rl.policy import Policy


@dataclass(frozen=True)
class _Acting:
    """What `returns_of` needs of a learner."""

    decision: Decision

    def act(self, params: Any, observations: Array) -> Array:
        return self.decision.scores(outputs_of(params, observations)).argmax(axis=-1)


def policy_returns(
    policy: Policy, world: AnyWorld, key: Array, episodes: int
) -> npt.NDArray[np.float32]:
    """Undiscounted returns of a policy in the default world, with the time limit for evaluation.

    They are those that `returns_of` gives for the learner and the parameters it was made from.

    Shapes: the result is `(episodes,)`.

    Raises:
        QuorumError: if the policy is not for this world, or `episodes` is below 1.
    """
    spaces = world.spaces
    sizes = (policy.observation_size, policy.action_count)
    if sizes != (spaces.observation_size, spaces.action_count):
        raise QuorumError(
            f"the policy sees {sizes[0]} numbers and has {sizes[1]} actions, but {world.name} "
            f"shows {spaces.observation_size} and takes {spaces.action_count}: name its own world."
        )
    acting: Any = _Acting(Decision(policy.highest, policy.among_likely, policy.threshold))
    params = {
        name: tuple(Layer(layer.weight[None], layer.bias[None]) for layer in network)
        for name, network in policy.networks.items()
    }
    returns: npt.NDArray[np.float32] = returns_of(acting, params, world, None, key, episodes)[0]
    return returns
