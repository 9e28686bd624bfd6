"""Stage 1, the worlds: pure JAX functions over frozen parameters.

A name loads its module, and with it JAX, only when it is used: the `gymnasium_*` modules of this
room also run in processes that need no JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_MODULE_OF = {
    name: module
    for module, names in {
        "conformance": ("check_world",),
        "drawing": ("draw_episode", "draw_state", "save_figure"),
        "params": ("checked", "grid", "with_params"),
        "reference": ("episode_returns", "reference_policy"),
        "registry": ("get_world", "world_names"),
        "rollout": ("Running", "advance", "roll_out", "start", "uniform_policy"),
        "units": ("measured_units", "units_of"),
        "world": ("AnyWorld", "Facts", "Spaces", "Step", "Units", "World"),
    }.items()
    for name in names
}


if not TYPE_CHECKING:  # a type checker knows the names, and no others

    def __getattr__(name: str) -> Any:
        if name in _MODULE_OF:
            return getattr(import_module(f"quorum_rl.envs.{_MODULE_OF[name]}"), name)
        raise AttributeError(f"module 'quorum_rl.envs' has no attribute {name!r}")
