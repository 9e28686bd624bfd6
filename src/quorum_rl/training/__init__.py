"""Stage 2 of a fit: one private mechanism for what experts contribute, and the loop around it."""

from typing import TYPE_CHECKING

from quorum_rl.lazy import load_when_used

if TYPE_CHECKING:
    from quorum_rl.training.chunks import STEPS_AT_ONCE as STEPS_AT_ONCE
    from quorum_rl.training.contributions import (
        Contribution as Contribution,
        Gradient as Gradient,
        Local as Local,
        Solve as Solve,
        TrainsEverything as TrainsEverything,
        check_contribution as check_contribution,
        mean_gradient as mean_gradient,
    )
    from quorum_rl.training.data import (
        ExpertData as ExpertData,
        at as at,
        expert_data as expert_data,
        flat_transitions as flat_transitions,
        nobody as nobody,
    )
    from quorum_rl.training.loop import begin as begin, result_of as result_of, train as train
    from quorum_rl.training.mechanism import (
        PrivateStep as PrivateStep,
        StepNumbers as StepNumbers,
        StepShape as StepShape,
        check_parameters as check_parameters,
        default_chunk as default_chunk,
        lattice_sum as lattice_sum,
        private_mean as private_mean,
        trained_count as trained_count,
        who_is_drawn as who_is_drawn,
    )
    from quorum_rl.training.noise import rounded_noise as rounded_noise
    from quorum_rl.training.one_sum import noisy_sum as noisy_sum, sum_step as sum_step
    from quorum_rl.training.part import (
        AskedSum as AskedSum,
        SummedElsewhere as SummedElsewhere,
        Sums as Sums,
        part_of_sum as part_of_sum,
    )
    from quorum_rl.training.randomness import (
        StepKeys as StepKeys,
        keys_of as keys_of,
        step_key as step_key,
    )
    from quorum_rl.training.recipe import (
        Optimiser as Optimiser,
        Recipe as Recipe,
        Run as Run,
        Schedule as Schedule,
        StepKind as StepKind,
        TrainState as TrainState,
        new_run as new_run,
        optimiser_of as optimiser_of,
        shuffled_schedule as shuffled_schedule,
        steps_at_share as steps_at_share,
    )
    from quorum_rl.training.sources import (
        PrivateData as PrivateData,
        private_source as private_source,
        spread_data as spread_data,
    )
    from quorum_rl.training.units import (
        INSISTED_SHARE as INSISTED_SHARE,
        MOST_SHARE as MOST_SHARE,
        Asked as Asked,
        Unit as Unit,
        UnitsPlan as UnitsPlan,
        ask_units as ask_units,
        experts_needed as experts_needed,
        plan_units as plan_units,
        told_units as told_units,
    )
else:
    __all__, __getattr__ = load_when_used(__name__)
