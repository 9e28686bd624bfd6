"""Studies on synthetic experts: what privacy costs, method by method and seed by seed."""

from quorum_rl.experiments.comparison import Comparison, Method, Outcome, compare, compared
from quorum_rl.experiments.study import Study

__all__ = ["Comparison", "Method", "Outcome", "Study", "compare", "compared"]
