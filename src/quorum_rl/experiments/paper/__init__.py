"""The paper's evaluation, at its scale: what it compares, and what its best settings do."""

from quorum_rl.experiments.paper.columns import (
    EPSILONS,
    GRID_EPSILONS,
    ablation_columns,
    best_settings,
    grid_columns,
    learner_of,
    main_columns,
    published_column,
)
from quorum_rl.experiments.results import Result

__all__ = [
    "EPSILONS",
    "GRID_EPSILONS",
    "Result",
    "ablation_columns",
    "best_settings",
    "grid_columns",
    "learner_of",
    "main_columns",
    "published_column",
]
