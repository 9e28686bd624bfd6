"""Quorum's worlds by their Gymnasium names; importing this module registers them.

`gymnasium.make("quorum_rl.envs.gymnasium_worlds:quorum/CartPole-v0")` does both at once. Nothing
here imports JAX: that waits until the first world is made.
"""

from typing import Final

import gymnasium

GYMNASIUM_WORLDS: Final = {
    "quorum/CartPole-v0": "CartPole",
    "quorum/Acrobot-v0": "Acrobot",
    "quorum/LunarLander-v0": "LunarLander",
    "quorum/HIV-v0": "HIV",
    "quorum/Pendulum-v0": "Pendulum",
    "quorum/LunarLanderContinuous-v0": "LunarLanderContinuous",
    "quorum/Breakout-v0": "Breakout",
    "quorum/SpaceInvaders-v0": "SpaceInvaders",
}
"""Gymnasium's name of each world that comes with Quorum, and Quorum's own name of it."""


def register_worlds() -> None:
    """Make every world known to `gymnasium.make`, whose keyword arguments become its parameters.

    Calling it again changes nothing. `max_episode_steps` is left to the user: the time limit is
    the world's own parameter `time_limit`.
    """
    for gymnasium_name, world_name in GYMNASIUM_WORLDS.items():
        if gymnasium_name not in gymnasium.registry:
            gymnasium.register(
                gymnasium_name,
                entry_point="quorum_rl.envs.gymnasium_bridge:WorldEnv",
                # Stepping before a reset is refused by WorldEnv itself, in Quorum's words.
                order_enforce=False,
                kwargs={"world": world_name},
            )


register_worlds()
