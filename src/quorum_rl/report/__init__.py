"""Pages, pictures and bundles for people: the outermost room, which only the commands import."""

from typing import TYPE_CHECKING

from quorum_rl.lazy import load_when_used

if TYPE_CHECKING:
    from quorum_rl.report.bundle import check_bundle as check_bundle
    from quorum_rl.report.gathering import gather as gather
    from quorum_rl.report.page import (
        check_packages as check_packages,
        write_report as write_report,
    )
    from quorum_rl.report.pictures import (
        draw_agreement as draw_agreement,
        draw_returns as draw_returns,
    )
    from quorum_rl.report.publishing import Bundle as Bundle, publish as publish
else:
    __all__, __getattr__ = load_when_used(__name__)
