"""What may leave the building, and checking what did."""

from quorum_rl.publication.bundle import check_bundle
from quorum_rl.publication.run import Bundle, Choices, publish

__all__ = ["Bundle", "Choices", "check_bundle", "publish"]
