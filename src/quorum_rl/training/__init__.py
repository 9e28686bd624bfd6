"""One private mechanism and its loop: what experts contribute, with noise; releases, without."""

from typing import TYPE_CHECKING

from quorum_rl.lazy import load_when_used

if TYPE_CHECKING:
    from quorum_rl.training.coming import (
        STEPS_AT_ONCE as STEPS_AT_ONCE,
        PrivateData as PrivateData,
        TrainState as TrainState,
    )
    from quorum_rl.training.contributions import (
        Contribution as Contribution,
        Gradient as Gradient,
        Local as Local,
        Solve as Solve,
    )
    from quorum_rl.training.data import (
        ExpertData as ExpertData,
        at as at,
        expert_data as expert_data,
        flat_transitions as flat_transitions,
    )
    from quorum_rl.training.keys import (
        StepKeys as StepKeys,
        keys_of as keys_of,
        step_key as step_key,
    )
    from quorum_rl.training.lattice import (
        check_parameters as check_parameters,
        lattice_sum as lattice_sum,
    )
    from quorum_rl.training.loop import begin as begin, result_of as result_of, train as train
    from quorum_rl.training.mechanism import (
        PrivateStep as PrivateStep,
        StepNumbers as StepNumbers,
        StepShape as StepShape,
        default_chunk as default_chunk,
        private_mean as private_mean,
        trained_count as trained_count,
        who_is_drawn as who_is_drawn,
    )
    from quorum_rl.training.noise import rounded_noise as rounded_noise
    from quorum_rl.training.recipe import (
        Optimiser as Optimiser,
        Recipe as Recipe,
        Run as Run,
        new_run as new_run,
        optimiser_of as optimiser_of,
    )
    from quorum_rl.training.schedule import (
        Kind as Kind,
        Schedule as Schedule,
        shuffled_schedule as shuffled_schedule,
        steps_at_share as steps_at_share,
    )
    from quorum_rl.training.source import private_source as private_source
    from quorum_rl.training.spread import spread_data as spread_data
else:
    __all__, __getattr__ = load_when_used(
        __name__,
        {
            "coming": "STEPS_AT_ONCE PrivateData TrainState",
            "contributions": "Contribution Gradient Local Solve",
            "data": "ExpertData at expert_data flat_transitions",
            "keys": "StepKeys keys_of step_key",
            "lattice": "check_parameters lattice_sum",
            "loop": "begin result_of train",
            "mechanism": (
                "PrivateStep StepNumbers StepShape default_chunk private_mean trained_count "
                "who_is_drawn"
            ),
            "noise": "rounded_noise",
            "recipe": "Optimiser Recipe Run new_run optimiser_of",
            "schedule": "Kind Schedule shuffled_schedule steps_at_share",
            "source": "private_source",
            "spread": "spread_data",
        },
    )
