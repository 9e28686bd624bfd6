"""Experts who dose: what they see is one number x, and what they do is near a line of it."""

import secrets

import numpy as np

from quorum_rl.dictionary import Bounds, Column, Dictionary
from quorum_rl.logs import Declared, Demonstrations, from_episodes

BOUNDS: Bounds = ((-2.0, 2.0), (0.0, 1.0))
EXPERTS, EPISODES, STEPS = 60, 2, 5


def right(seen: np.ndarray) -> np.ndarray:
    """What all experts aim at. Shapes: (n, 1) to (n, 2)."""
    return np.concatenate([np.clip(-2 * seen, -2, 2), np.clip(0.5 + seen / 3, 0, 1)], axis=1)


def dosing(identity: str | None = "doses") -> Demonstrations:
    """What they did; the nearer to the aim, the more it earned. Without identity: a random one."""
    rng = np.random.default_rng(0)
    episodes = EXPERTS * EPISODES
    seen = rng.uniform(-1, 1, (episodes, STEPS + 1, 1)).astype(np.float32)
    states = seen[:, :-1].reshape(-1, 1)
    low, high = np.array(BOUNDS).T
    done = np.clip(right(states) + rng.normal(0, 0.1, (len(states), 2)), low, high)
    return from_episodes(
        Declared(
            2,
            1,
            STEPS,
            minimum_experts=EXPERTS - 1,
            identity=identity or secrets.token_hex(16),
            dictionary=Dictionary((Column("x", low=-1, high=1),), ("dose", "flow"), BOUNDS),
        ),
        expert=np.repeat(np.arange(EXPERTS), EPISODES),
        length=np.full(episodes, STEPS),
        observations=seen.reshape(-1, 1),
        actions=done,
        rewards=-np.abs(done - right(states)).sum(axis=1),
        terminated=np.zeros(episodes, bool),
        truncated=np.ones(episodes, bool),
    )
