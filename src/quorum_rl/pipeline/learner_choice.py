"""Which learner a fit has: as asked, and in the units of the logs' world where nobody said more."""

from typing import Any

from quorum_rl.envs import Units, get_world, units_of, world_names
from quorum_rl.learners import DenseLearner, get_learner, hyper_parameters
from quorum_rl.logs import Declared

OBSERVED = ("observation_centre", "observation_scale")


def learner_for(
    declared: Declared, name: str | type[DenseLearner], /, **asked: Any
) -> DenseLearner:
    """The learner called `name`, or of one's own class, with hyper-parameters as `asked`.

    Where the logs declare a world that Quorum ships, the learner sees its numbers in the world's
    `units`. They are public: no log had a part in them. What is asked for outranks them, and an
    empty centre and scale leave observations as they are.

    Raises:
        QuorumError: if there is no such learner, or a hyper-parameter does not fit.
    """
    usual = _in_units(_units_of(declared))
    if any(one in asked for one in OBSERVED):
        usual = {one: usual[one] for one in usual if one not in OBSERVED}
    known = hyper_parameters(name)
    return get_learner(name, **{one: usual[one] for one in usual if one in known} | asked)


def _units_of(declared: Declared) -> Units | None:
    if declared.world not in world_names():
        return None
    world = get_world(declared.world)
    same = declared.observation_size == world.spaces.observation_size
    return units_of(world) if same else None


def _in_units(units: Units | None) -> dict[str, Any]:
    if units is None:
        return {}
    return {
        "observation_centre": units.centre,
        "observation_scale": units.scale,
        "reward_scale": units.reward_scale,
    }
