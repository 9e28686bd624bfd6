"""The worlds: pure JAX functions over frozen parameters.

A name loads its module, and with it JAX, only when it is used: the `gymnasium_*` modules of this
room also run in processes that need no JAX.
"""

from typing import TYPE_CHECKING

from quorum_rl.lazy import load_when_used

if TYPE_CHECKING:
    from quorum_rl.envs.conformance import check_world as check_world
    from quorum_rl.envs.drawing import (
        draw_episode as draw_episode,
        draw_state as draw_state,
        save_figure as save_figure,
    )
    from quorum_rl.envs.gymnasium_bridge import (
        Seed as Seed,
        WorldEnv as WorldEnv,
        play as play,
        play_episodes as play_episodes,
    )
    from quorum_rl.envs.gymnasium_copies import (
        Copies as Copies,
        EnvParams as EnvParams,
        EnvSource as EnvSource,
        Sizes as Sizes,
        environment_sizes as environment_sizes,
    )
    from quorum_rl.envs.reference import (
        episode_returns as episode_returns,
        measured_units as measured_units,
        reference_policy as reference_policy,
        units_of as units_of,
    )
    from quorum_rl.envs.registry import (
        code_of_world as code_of_world,
        get_world as get_world,
        world_names as world_names,
    )
    from quorum_rl.envs.remembering import Remembering as Remembering
    from quorum_rl.envs.rollout import (
        Running as Running,
        advance as advance,
        in_blocks as in_blocks,
        roll_out as roll_out,
        start as start,
        uniform_policy as uniform_policy,
    )
    from quorum_rl.envs.world import (
        AnyWorld as AnyWorld,
        Facts as Facts,
        Spaces as Spaces,
        Step as Step,
        Units as Units,
        World as World,
        checked as checked,
        grid as grid,
        with_params as with_params,
    )
else:
    __all__, __getattr__ = load_when_used(__name__)
