"""Offline reinforcement learning as losses: what to learn, apart from how privately."""

from quorum_rl.learners.bc import Bc
from quorum_rl.learners.bcq import Bcq
from quorum_rl.learners.cql import Cql
from quorum_rl.learners.double_dqn import DoubleDqn
from quorum_rl.learners.learner import DenseLearner, Learner, Networks, Traces
from quorum_rl.learners.networks import LayerTrace, gradient_of
from quorum_rl.learners.registry import get_learner, learner_names

__all__ = [
    "Bc",
    "Bcq",
    "Cql",
    "DenseLearner",
    "DoubleDqn",
    "LayerTrace",
    "Learner",
    "Networks",
    "Traces",
    "get_learner",
    "gradient_of",
    "learner_names",
]
