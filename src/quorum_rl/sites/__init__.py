"""Experts at their own sites: sums travel, logs do not. The noise is the coordinator's."""

from typing import TYPE_CHECKING

from quorum_rl.lazy import load_when_used

if TYPE_CHECKING:
    from quorum_rl.sites.coordinator import Agreement as Agreement, fit_at_sites as fit_at_sites
    from quorum_rl.sites.flower_grid import (
        FlowerSites as FlowerSites,
        sites_by_flower as sites_by_flower,
    )
    from quorum_rl.sites.flower_site import client_app as client_app, serve as serve
    from quorum_rl.sites.here import SitesHere as SitesHere
    from quorum_rl.sites.part import Site as Site
    from quorum_rl.sites.records import require_flower as require_flower
    from quorum_rl.sites.task import (
        Answer as Answer,
        Question as Question,
        Sites as Sites,
        Task as Task,
    )
else:
    __all__, __getattr__ = load_when_used(__name__)
