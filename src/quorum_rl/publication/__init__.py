"""What may leave the building, and checking what did."""

from typing import TYPE_CHECKING

from quorum_rl.lazy import load_when_used

if TYPE_CHECKING:
    from quorum_rl.publication.bundle import check_bundle as check_bundle
    from quorum_rl.publication.run import Bundle as Bundle, Choices as Choices, publish as publish
else:
    __all__, __getattr__ = load_when_used(
        __name__,
        {
            "bundle": "check_bundle",
            "run": "Bundle Choices publish",
        },
    )
