"""Both stages in one call: from logs and experts to a policy, its ledger and its certificate.

Only the settings are loaded at once, for the command line; the rest, and JAX, when it is used.
"""

from typing import TYPE_CHECKING

from quorum_rl.lazy import load_when_used

if TYPE_CHECKING:
    from quorum_rl.pipeline.asked_plan import plan_asked as plan_asked
    from quorum_rl.pipeline.comparison import (
        Comparison as Comparison,
        Method as Method,
        Outcome as Outcome,
        compare as compare,
        compared as compared,
    )
    from quorum_rl.pipeline.context import (
        Elsewhere as Elsewhere,
        ReportLine as ReportLine,
        RunContext as RunContext,
        RunOptions as RunOptions,
        StepProgress as StepProgress,
        check_noisy as check_noisy,
        rounding as rounding,
    )
    from quorum_rl.pipeline.distributed import help_fit as help_fit
    from quorum_rl.pipeline.driver import (
        Keys as Keys,
        Steps as Steps,
        fresh as fresh,
        runs_of as runs_of,
        steps_of as steps_of,
        train_runs as train_runs,
    )
    from quorum_rl.pipeline.elsewhere import fit_elsewhere as fit_elsewhere
    from quorum_rl.pipeline.expectation import expected as expected, refusal_of as refusal_of
    from quorum_rl.pipeline.export import acts_by_data as acts_by_data, policy_of as policy_of
    from quorum_rl.pipeline.folder import (
        RunFolder as RunFolder,
        write_certificate as write_certificate,
    )
    from quorum_rl.pipeline.learner_rule import (
        Named as Named,
        asked_learner as asked_learner,
        chosen_learner as chosen_learner,
        learner_for as learner_for,
    )
    from quorum_rl.pipeline.metrics import Track as Track
    from quorum_rl.pipeline.plan import (
        Cost as Cost,
        FitPlan as FitPlan,
        in_words as in_words,
    )
    from quorum_rl.pipeline.planning import plan_fit as plan_fit
    from quorum_rl.pipeline.private_steps import private_step as private_step
    from quorum_rl.pipeline.results import Result as Result
    from quorum_rl.pipeline.run import (
        Fitted as Fitted,
        fit as fit,
        fit_after_release as fit_after_release,
    )
    from quorum_rl.pipeline.settings import FitSettings as FitSettings, UnitsName as UnitsName
    from quorum_rl.pipeline.study import (
        Progress as Progress,
        Study as Study,
        research_ledger as research_ledger,
        togetherness as togetherness,
        with_room as with_room,
    )
    from quorum_rl.pipeline.trackers import TrackerName as TrackerName, tracker as tracker
    from quorum_rl.pipeline.training_stage import charge_training as charge_training
else:
    __all__, __getattr__ = load_when_used(__name__)
