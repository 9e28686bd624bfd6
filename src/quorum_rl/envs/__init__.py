"""Stage 1, the worlds: pure JAX functions over frozen parameters."""

from quorum_rl.envs.conformance import check_world
from quorum_rl.envs.drawing import draw_episode, draw_state, save_figure
from quorum_rl.envs.params import checked, grid, with_params
from quorum_rl.envs.reference import episode_returns, reference_policy
from quorum_rl.envs.registry import get_world, world_names
from quorum_rl.envs.rollout import Running, advance, roll_out, start, uniform_policy
from quorum_rl.envs.units import measured_units, units_of
from quorum_rl.envs.world import AnyWorld, Facts, Spaces, Step, Units, World

__all__ = [
    "AnyWorld",
    "Facts",
    "Running",
    "Spaces",
    "Step",
    "Units",
    "World",
    "advance",
    "check_world",
    "checked",
    "draw_episode",
    "draw_state",
    "episode_returns",
    "get_world",
    "grid",
    "measured_units",
    "reference_policy",
    "roll_out",
    "save_figure",
    "start",
    "uniform_policy",
    "units_of",
    "with_params",
    "world_names",
]
