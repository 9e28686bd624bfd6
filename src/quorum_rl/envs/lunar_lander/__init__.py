"""LunarLander, to be read in the order geometry, joints, touching, contacts, solver, world."""

from quorum_rl.envs.lunar_lander.world import LunarLander, LunarLanderParams, LunarLanderState

__all__ = ["LunarLander", "LunarLanderParams", "LunarLanderState"]
