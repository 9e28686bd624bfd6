"""Stage 1: which prefixes of which trajectories may be published, decided with noise."""

from quorum_rl.release.release import (
    ReleaseOutcome,
    experts_who_acted,
    release,
    release_and_keep,
)
from quorum_rl.release.storage import read_released, read_released_with_facts, save_released

__all__ = [
    "ReleaseOutcome",
    "experts_who_acted",
    "read_released",
    "read_released_with_facts",
    "release",
    "release_and_keep",
    "save_released",
]
