"""What a report may show only to people who may see the logs themselves."""

from quorum_rl.logs import QUANTILES, AgreementCurve
from quorum_rl.report.facts import Agreement

MEDIAN, LOW, HIGH = QUANTILES.index(0.5), QUANTILES.index(0.1), QUANTILES.index(0.9)


def agreement_facts(curve: AgreementCurve) -> Agreement:
    """An agreement curve as a report shows it. NOT private."""
    return Agreement(
        steps=tuple(range(1, len(curve.mean) + 1)),
        mean=tuple(curve.mean.tolist()),
        median=tuple(curve.quantiles[:, MEDIAN].tolist()),
        low=tuple(curve.quantiles[:, LOW].tolist()),
        high=tuple(curve.quantiles[:, HIGH].tolist()),
        trajectories=int(curve.trajectories[0]),
    )
