"""LunarLander; read geometry, joints, touching, contacts, solver, impacts, world in this order."""

from quorum_rl.envs.lunar_lander.world import (
    FULL_THROTTLE,
    LunarLander,
    LunarLanderContinuous,
    LunarLanderParams,
    LunarLanderState,
)

__all__ = [
    "FULL_THROTTLE",
    "LunarLander",
    "LunarLanderContinuous",
    "LunarLanderParams",
    "LunarLanderState",
]
