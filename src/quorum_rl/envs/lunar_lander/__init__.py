"""LunarLander; read geometry, joints, touching, contacts, solver, impacts, world in this order."""

from quorum_rl.envs.lunar_lander.world import LunarLander, LunarLanderParams, LunarLanderState

__all__ = ["LunarLander", "LunarLanderParams", "LunarLanderState"]
