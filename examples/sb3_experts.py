"""Stable-Baselines3 policies as experts: wrap, smooth, query.

    pip install stable-baselines3
    python examples/sb3_experts.py

The wrapping is `probabilities_of_sb3`; it works for on-policy algorithms with discrete actions
(PPO, A2C) and for DQN. If a model was trained with VecNormalize, normalise inside the wrapped
function as well: an expert must be self-contained.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from quorum_rl.experts import CallableExperts

OBSERVATION_SIZE = 4  # CartPole
ACTION_COUNT = 2

Rows = npt.NDArray[np.float32]
Answers = npt.NDArray[np.float64]


def probabilities_of_sb3(model: Any) -> Callable[[Rows], Answers]:
    """The action probabilities of a Stable-Baselines3 model, as a function of observations.

    PPO and A2C give their own distribution; DQN, which has none, its greedy action.

    Shapes: the function maps `(rows, observation_size)` to `(rows, action_count)`.
    """
    model.policy.set_training_mode(False)  # dropout or batch statistics would tie rows together

    def actor_critic(observations: Rows) -> Answers:
        tensor, _ = model.policy.obs_to_tensor(observations)
        probabilities = model.policy.get_distribution(tensor).distribution.probs
        return _to_numpy(probabilities)

    def greedy(observations: Rows) -> Answers:
        tensor, _ = model.policy.obs_to_tensor(observations)
        values = _to_numpy(model.policy.q_net(tensor))
        greedy_rows: Answers = np.eye(values.shape[1])[values.argmax(axis=1)]
        return greedy_rows

    return greedy if hasattr(model.policy, "q_net") else actor_critic


def sb3_experts(
    models: Sequence[Any], *, observation_size: int, action_count: int
) -> CallableExperts:
    """A set of experts, one per Stable-Baselines3 model."""
    return CallableExperts(
        [probabilities_of_sb3(model) for model in models],
        observation_size=observation_size,
        action_count=action_count,
    )


def _to_numpy(tensor: Any) -> Answers:
    return np.asarray(tensor.detach().cpu().numpy(), dtype=np.float64)


def main() -> None:
    try:
        from stable_baselines3 import DQN, PPO
    except ImportError:
        sys.exit(
            "This example needs Stable-Baselines3: install it with pip install stable-baselines3."
        )
    models = [
        PPO("MlpPolicy", "CartPole-v1", seed=seed, n_steps=256, device="cpu").learn(1024)
        for seed in range(2)
    ]
    models.append(DQN("MlpPolicy", "CartPole-v1", seed=2, device="cpu").learn(1024))
    experts = sb3_experts(models, observation_size=OBSERVATION_SIZE, action_count=ACTION_COUNT)
    # Smoothing comes before these experts act: collect with `smooth`, not with `experts`.
    smooth = experts.smoothed(p_min=0.05)
    states = np.random.default_rng(0).normal(size=(2, OBSERVATION_SIZE)).astype(np.float32)
    print("as trained (experts, states, actions):", experts.probabilities(states), sep="\n")
    print("smoothed to a floor of 0.05:", smooth.probabilities(states), sep="\n")


if __name__ == "__main__":
    main()
