"""Stage 3, the logs: what the experts did."""

from quorum_rl.logs.arrays import StepArrays, from_step_arrays, to_step_arrays
from quorum_rl.logs.assemble import from_episodes, from_padded
from quorum_rl.logs.collect import as_they_acted, collect, collect_from_gymnasium
from quorum_rl.logs.demonstrations import Declared, Demonstrations
from quorum_rl.logs.minari import read_minari, write_minari
from quorum_rl.logs.native import open_demonstrations, save_demonstrations
from quorum_rl.logs.pool import ReleaseSplit, split_release_pool
from quorum_rl.logs.tables import TableColumns, read_table, write_table
from quorum_rl.types import Episode

__all__ = [
    "Declared",
    "Demonstrations",
    "Episode",
    "ReleaseSplit",
    "StepArrays",
    "TableColumns",
    "as_they_acted",
    "collect",
    "collect_from_gymnasium",
    "from_episodes",
    "from_padded",
    "from_step_arrays",
    "open_demonstrations",
    "read_minari",
    "read_table",
    "save_demonstrations",
    "split_release_pool",
    "to_step_arrays",
    "write_minari",
    "write_table",
]
