"""The experts: who is protected."""

from typing import TYPE_CHECKING

from quorum_rl.lazy import load_when_used

if TYPE_CHECKING:
    from quorum_rl.experts.checks import (
        Probabilities as Probabilities,
        check_batch_independence as check_batch_independence,
        check_floor as check_floor,
        checked_observations as checked_observations,
    )
    from quorum_rl.experts.evaluation import default_returns as default_returns
    from quorum_rl.experts.expert_set import (
        ExpertSet as ExpertSet,
        LoggedExperts as LoggedExperts,
        UnloggedExperts as UnloggedExperts,
    )
    from quorum_rl.experts.policies import (
        CallableExperts as CallableExperts,
        OnnxExperts as OnnxExperts,
        files_named as files_named,
    )
    from quorum_rl.experts.population import Population as Population
    from quorum_rl.experts.ppo.plan import (
        Preset as Preset,
        agents_per_wave as agents_per_wave,
        preset as preset,
    )
    from quorum_rl.experts.ppo.training import (
        JudgedAgents as JudgedAgents,
        PopulationProgress as PopulationProgress,
        Stopped as Stopped,
        WaveState as WaveState,
        load_standing as load_standing,
        save_standing as save_standing,
        train_population as train_population,
    )
    from quorum_rl.experts.smoothing import (
        RULES as RULES,
        SmoothedExperts as SmoothedExperts,
        smoothed_by as smoothed_by,
    )
    from quorum_rl.experts.storage import (
        load_population as load_population,
        save_population as save_population,
    )
else:
    __all__, __getattr__ = load_when_used(__name__)
