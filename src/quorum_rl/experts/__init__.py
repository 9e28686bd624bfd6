"""Stage 2, the experts: who is protected."""

from quorum_rl.experts.black_box import CallableExperts
from quorum_rl.experts.checks import check_batch_independence
from quorum_rl.experts.expert_set import ExpertSet, LoggedExperts, UnloggedExperts
from quorum_rl.experts.onnx_experts import OnnxExperts
from quorum_rl.experts.population import Population
from quorum_rl.experts.smoothing import SmoothedExperts, mixed_with_uniform, smoothed
from quorum_rl.experts.storage import load_population, save_population

__all__ = [
    "CallableExperts",
    "ExpertSet",
    "LoggedExperts",
    "OnnxExperts",
    "Population",
    "SmoothedExperts",
    "UnloggedExperts",
    "check_batch_independence",
    "load_population",
    "mixed_with_uniform",
    "save_population",
    "smoothed",
]
