"""Many trials of one search, and the best of them: who chooses, by what, and who pays for it."""

from typing import TYPE_CHECKING

from quorum_rl.lazy import load_when_used

if TYPE_CHECKING:
    from quorum_rl.sweep.cluster import on_ray as on_ray
    from quorum_rl.sweep.judge import Judge as Judge
    from quorum_rl.sweep.options import SweepOptions as SweepOptions
    from quorum_rl.sweep.programs import Spread as Spread, one_by_one as one_by_one
    from quorum_rl.sweep.run import Swept as Swept, sweep as sweep
    from quorum_rl.sweep.space import Search as Search
    from quorum_rl.sweep.trials import Common as Common
else:
    __all__, __getattr__ = load_when_used(__name__)
