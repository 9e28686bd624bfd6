"""LunarLander; read `geometry`, `joints`, `touching`, `contacts`, `solver`, `world` in that order."""

from quorum_rl.envs.lunar_lander.world import LunarLander, LunarLanderParams, LunarLanderState

__all__ = ["LunarLander", "LunarLanderParams", "LunarLanderState"]
