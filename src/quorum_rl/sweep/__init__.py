"""Many trials of one search, and the best of them: who chooses, by what, and who pays for it."""

from quorum_rl.sweep.programs import one_by_one
from quorum_rl.sweep.run import Sweep, Swept, sweep
from quorum_rl.sweep.space import Search
from quorum_rl.sweep.trials import Common

__all__ = ["Common", "Search", "Sweep", "Swept", "one_by_one", "sweep"]
