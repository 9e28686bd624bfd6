"""What a part of the experts says of the policy that was learned from the others."""

from typing import TYPE_CHECKING

from quorum_rl.lazy import load_when_used

if TYPE_CHECKING:
    from quorum_rl.judging.answers import (
        Answer as Answer,
        Verdict as Verdict,
        best_of as best_of,
        verdicts as verdicts,
    )
    from quorum_rl.judging.asking import ask as ask, parted as parted
    from quorum_rl.judging.fitting import fitted_values as fitted_values, value_step as value_step
    from quorum_rl.judging.plan import (
        TELLS as TELLS,
        Judges as Judges,
        JudgingPlan as JudgingPlan,
        ValuePlan as ValuePlan,
        plan_judging as plan_judging,
        plan_values as plan_values,
    )
    from quorum_rl.judging.told import told_by as told_by
    from quorum_rl.judging.values import (
        MOST_WEIGHTS as MOST_WEIGHTS,
        Candidate as Candidate,
        Values as Values,
        ValueUnits as ValueUnits,
        feature_count as feature_count,
        weight_count as weight_count,
    )
else:
    __all__, __getattr__ = load_when_used(__name__)
