"""Audits: what an adversary can really see, beside what the guarantee says that it cannot."""

from typing import TYPE_CHECKING

from quorum_rl.lazy import load_when_used

if TYPE_CHECKING:
    from quorum_rl.audit.audits import audit_pipeline as audit_pipeline
    from quorum_rl.audit.bounds import (
        gaussian_lower_bound as gaussian_lower_bound,
        lower_bound as lower_bound,
    )
    from quorum_rl.audit.cases import Case as Case
    from quorum_rl.audit.chain import Chain as Chain
    from quorum_rl.audit.finding import Finding as Finding, ceiling as ceiling
    from quorum_rl.audit.pictures import draw_findings as draw_findings
    from quorum_rl.audit.planted_bugs import BUGS as BUGS, bug_named as bug_named
    from quorum_rl.audit.suite import (
        AuditPart as AuditPart,
        AuditSizes as AuditSizes,
        audited as audited,
        described as described,
        self_test as self_test,
    )
else:
    __all__, __getattr__ = load_when_used(__name__)
