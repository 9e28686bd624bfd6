"""Offline reinforcement learning as losses: what to learn, apart from how privately."""

from typing import TYPE_CHECKING

from quorum_rl.lazy import load_when_used

if TYPE_CHECKING:
    from quorum_rl.learners.bc import Bc as Bc
    from quorum_rl.learners.bc_gaussian import BcGaussian as BcGaussian
    from quorum_rl.learners.bcq import Bcq as Bcq
    from quorum_rl.learners.cql import Cql as Cql
    from quorum_rl.learners.double_dqn import DoubleDqn as DoubleDqn
    from quorum_rl.learners.iql import Iql as Iql
    from quorum_rl.learners.learner import (
        Decision as Decision,
        DenseLearner as DenseLearner,
        Learner as Learner,
        Networks as Networks,
        Outputs as Outputs,
        apply_network as apply_network,
        outputs_of as outputs_of,
        shapes_of as shapes_of,
        within_bounds as within_bounds,
    )
    from quorum_rl.learners.losses import (
        bootstrapped_return as bootstrapped_return,
        huber as huber,
        negative_log_likelihood as negative_log_likelihood,
        of_action as of_action,
    )
    from quorum_rl.learners.registry import (
        code_of as code_of,
        get_learner as get_learner,
        hyper_parameters as hyper_parameters,
        learner_in_file as learner_in_file,
        learner_to_json as learner_to_json,
    )
    from quorum_rl.learners.td3_bc import Td3Bc as Td3Bc
else:
    __all__, __getattr__ = load_when_used(__name__)
