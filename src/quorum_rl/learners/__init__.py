"""Offline reinforcement learning as losses: what to learn, apart from how privately."""

from quorum_rl.learners.bc import Bc
from quorum_rl.learners.bcq import Bcq
from quorum_rl.learners.cql import Cql
from quorum_rl.learners.decision import Decision
from quorum_rl.learners.double_dqn import DoubleDqn
from quorum_rl.learners.learner import DenseLearner, Learner, Networks, Outputs
from quorum_rl.learners.losses import (
    bootstrapped_return,
    huber,
    negative_log_likelihood,
    of_action,
)
from quorum_rl.learners.networks import apply_network
from quorum_rl.learners.registry import (
    get_learner,
    hyper_parameters,
    learner_from_json,
    learner_names,
    learner_to_json,
)

__all__ = [
    "Bc",
    "Bcq",
    "Cql",
    "Decision",
    "DenseLearner",
    "DoubleDqn",
    "Learner",
    "Networks",
    "Outputs",
    "apply_network",
    "bootstrapped_return",
    "get_learner",
    "huber",
    "hyper_parameters",
    "learner_from_json",
    "learner_names",
    "learner_to_json",
    "negative_log_likelihood",
    "of_action",
]
