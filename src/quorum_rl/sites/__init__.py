"""Experts at their own sites: sums travel, logs do not. The noise is the coordinator's."""

from typing import TYPE_CHECKING

from quorum_rl.lazy import load_when_used

if TYPE_CHECKING:
    from quorum_rl.sites.coordinator import Agreement as Agreement, fit_at_sites as fit_at_sites
    from quorum_rl.sites.here import SitesHere as SitesHere
    from quorum_rl.sites.part import Site as Site
    from quorum_rl.sites.task import Answer as Answer, Question as Question, Sites as Sites
else:
    __all__, __getattr__ = load_when_used(__name__)
