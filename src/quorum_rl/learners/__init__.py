"""Offline reinforcement learning as losses: what to learn, apart from how privately."""

from quorum_rl.learners.bc import Bc
from quorum_rl.learners.bcq import Bcq
from quorum_rl.learners.cql import Cql
from quorum_rl.learners.decision import Decision
from quorum_rl.learners.double_dqn import DoubleDqn
from quorum_rl.learners.learner import DenseLearner, Learner, Networks, Outputs, Traces
from quorum_rl.learners.losses import (
    bootstrapped_return,
    huber,
    negative_log_likelihood,
    of_action,
)
from quorum_rl.learners.networks import LayerTrace, apply_network, gradient_of
from quorum_rl.learners.registry import get_learner, hyper_parameters, learner_names

__all__ = [
    "Bc",
    "Bcq",
    "Cql",
    "Decision",
    "DenseLearner",
    "DoubleDqn",
    "LayerTrace",
    "Learner",
    "Networks",
    "Outputs",
    "Traces",
    "apply_network",
    "bootstrapped_return",
    "get_learner",
    "gradient_of",
    "huber",
    "hyper_parameters",
    "learner_names",
    "negative_log_likelihood",
    "of_action",
]
