"""What a part of the experts says of the policy that was learned from the others."""

from typing import TYPE_CHECKING

from quorum_rl.lazy import load_when_used

if TYPE_CHECKING:
    from quorum_rl.judging.answers import Answer as Answer, Verdict as Verdict, verdict as verdict
    from quorum_rl.judging.asking import ask as ask, parted as parted
    from quorum_rl.judging.plan import (
        Judges as Judges,
        JudgingPlan as JudgingPlan,
        plan_judging as plan_judging,
    )
    from quorum_rl.judging.told import told_by as told_by
else:
    __all__, __getattr__ = load_when_used(__name__)
