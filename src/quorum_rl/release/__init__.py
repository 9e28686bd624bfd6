"""Stage 1 of a fit: which prefixes of which trajectories may be published, decided with noise."""

from typing import TYPE_CHECKING

from quorum_rl.lazy import load_when_used

if TYPE_CHECKING:
    from quorum_rl.release.belonging import (
        belong_elsewhere as belong_elsewhere,
        charge_log as charge_log,
        check_belongs as check_belongs,
        recall as recall,
    )
    from quorum_rl.release.checks import (
        acceptance as acceptance,
        check_are_those as check_are_those,
    )
    from quorum_rl.release.distributed import (
        count_as_told as count_as_told,
        help_release as help_release,
    )
    from quorum_rl.release.mechanism import released_lengths as released_lengths
    from quorum_rl.release.noise import Noise as Noise
    from quorum_rl.release.run import (
        REPRODUCIBLE_NOISE as REPRODUCIBLE_NOISE,
        ReleaseOutcome as ReleaseOutcome,
        experts_who_acted as experts_who_acted,
        release as release,
    )
    from quorum_rl.release.storage import (
        event_of as event_of,
        read_released as read_released,
        read_released_with_facts as read_released_with_facts,
        released_digest as released_digest,
        save_released as save_released,
    )
    from quorum_rl.release.to_file import (
        forget_finished as forget_finished,
        release_to_file as release_to_file,
    )
else:
    __all__, __getattr__ = load_when_used(__name__)
