"""Stage 1 of a fit: which prefixes of which trajectories may be published, decided with noise."""

from typing import TYPE_CHECKING

from quorum_rl.lazy import load_when_used

if TYPE_CHECKING:
    from quorum_rl.release.belonging import (
        charge_log as charge_log,
        check_belongs as check_belongs,
        recall as recall,
    )
    from quorum_rl.release.checks import (
        accepted_assumptions as accepted_assumptions,
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
        experts_who_acted as experts_who_acted,
        release as release,
        release_and_keep as release_and_keep,
    )
    from quorum_rl.release.storage import (
        read_released as read_released,
        read_released_with_facts as read_released_with_facts,
        save_released as save_released,
    )
    from quorum_rl.release.to_file import (
        forget_finished as forget_finished,
        release_to_file as release_to_file,
    )
else:
    __all__, __getattr__ = load_when_used(
        __name__,
        {
            "checks": "accepted_assumptions check_are_those",
            "belonging": "charge_log check_belongs recall",
            "distributed": "count_as_told help_release",
            "mechanism": "released_lengths",
            "noise": "Noise",
            "run": ("REPRODUCIBLE_NOISE experts_who_acted release release_and_keep"),
            "storage": "read_released read_released_with_facts save_released",
            "to_file": "forget_finished release_to_file",
        },
    )
