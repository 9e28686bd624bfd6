"""Whether a certificate is what its ledger says: every fact of it, and ε by the second route.

Against a changed certificate or a changed ledger, not against somebody who writes both anew: that
is what a signature is for.
"""

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from quorum_rl.budget.certificates import DECIMALS, Certificate, repeated_pools, stated
from quorum_rl.budget.record import LedgerRecord, record_of
from quorum_rl.budget.spent import spent_epsilon, with_torn_line
from quorum_rl.budget.verifier import TOLERANCE, independent_epsilon
from quorum_rl.errors import QuorumError
from quorum_rl.privacy import ReleaseEvent

ROUNDING: Final = 1e-9  # of published sums, whose last digits differ between machines
CUT_OFF: Final = b"{"  # stands for a torn line, of which nobody knows what it says
LONGEST: Final = 60  # characters of a fact in an error


@dataclass(frozen=True)
class Consistency:
    """What was found beside a certificate that agrees with its ledger.

    `epsilon` is the second route's. `covered` is the ledger as it was when the certificate was
    made, and `record` what it says. The ledger may have gone on since: `later_entries` lines, and
    `torn_since` if another was cut off. Those are not covered by the certificate.
    """

    epsilon: float
    record: LedgerRecord
    covered: bytes
    later_entries: int
    torn_since: bool

    @property
    def current(self) -> bool:
        """Whether the certificate covers all that the ledger says."""
        return not (self.later_entries or self.torn_since)


def check_consistent(claim: Certificate, ledger: bytes, path: Path) -> Consistency:
    """Compare a certificate with the content of the ledger at `path`.

    An older certificate is judged by the ledger as it was when the certificate was made: up to the
    line whose hash it names.

    Guarantee: ε is computed without the planner's numerics, and agrees with the claim to within
    `verify.TOLERANCE`; every other fact is the ledger's, to the letter.

    Raises:
        QuorumError: if the ledger is damaged, or naming the first fact that does not agree.
    """
    whole = record_of(ledger, path)
    if claim.identity != whole.identity:
        raise QuorumError(
            f"the certificate is of another ledger: its identity is {claim.identity}, and "
            f"{str(path)!r} is {whole.identity}."
        )
    lines = ledger.split(b"\n")[:-1]
    covered = _covered_lines(lines, claim.ledger_head)
    if covered is None:
        raise QuorumError(
            f"ledger_head does not agree: no line of {str(path)!r} has the hash "
            f"{claim.ledger_head}, so the ledger was cut shorter or rewritten since, or the "
            "certificate was changed."
        )
    complete = len(lines) - (whole.torn and ledger.endswith(b"\n"))  # the torn line may be whole
    content = b"".join(line + b"\n" for line in lines[:covered])
    if claim.torn and whole.torn and covered == complete:
        content += CUT_OFF
    record = record_of(content, path)
    return Consistency(
        epsilon=_check_facts(claim, record),
        record=record,
        covered=content,
        later_entries=complete - covered,
        torn_since=whole.torn and not record.torn,
    )


def _covered_lines(lines: list[bytes], head: str) -> int | None:
    """How many lines there are up to the one with this hash."""
    for number, line in enumerate(lines, start=1):
        if line.endswith(f'"hash":"{head}"}}'.encode()):  # as `lines.line_of` writes it
            return number
    return None


def _check_facts(claim: Certificate, record: LedgerRecord) -> float:
    """Compare a claim with the ledger that it was made from; returns the second route's ε."""
    found = independent_epsilon(record.events, claim.delta)
    shown, spent = _shown(claim), with_torn_line(record, found, claim.delta)
    if any(isinstance(event, ReleaseEvent) and event.mode == "paper" for event in record.events):
        spent = spent_epsilon(record, claim.delta)  # nothing is claimed, and the routes differ
    if not repeated_pools(record) and not _agrees(float(shown), spent):
        raise QuorumError(
            f"epsilon does not agree: the certificate says {shown} at delta = {claim.delta:g}, and "
            f"what its ledger was charged for costs {spent:.6g} there, computed again."
        )
    difference = _first_difference(_facts(claim), _facts(stated(record, shown, claim.delta)))
    if difference is not None:
        raise QuorumError(f"the certificate does not agree with its ledger: {difference}.")
    return found


def _shown(claim: Certificate) -> str:
    """The ε that a certificate shows; in mode paper its statement alone has one."""
    if math.isfinite(claim.epsilon):
        return f"{claim.epsilon:.{DECIMALS}f}"
    found = re.search(rf"ε = (\d+\.\d{{{DECIMALS}}}) at", claim.statement)
    return "inf" if found is None else found[1]


def _agrees(shown: float, spent: float) -> bool:
    """Whether the two routes say the same: one was rounded up, the other lies on a grid."""
    if not (math.isfinite(shown) and math.isfinite(spent)):
        return shown == spent
    return spent <= shown * (1 + TOLERANCE) and shown <= spent * (1 + TOLERANCE) + 10**-DECIMALS


def _facts(made: Certificate) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(made.to_json())
    return facts


def _first_difference(claimed: Any, expected: Any, where: str = "") -> str | None:
    """The first place where two trees of facts differ, in words; None if they do not."""
    if isinstance(claimed, dict) and isinstance(expected, dict):
        if claimed.keys() != expected.keys():
            name = sorted(claimed.keys() ^ expected.keys())[0]
            return f"{where}.{name} is in one of them only".lstrip(".")
        places = [(f"{where}.{name}".lstrip("."), name) for name in claimed]
    elif isinstance(claimed, list) and isinstance(expected, list):
        if len(claimed) != len(expected):
            return f"it has {len(claimed)} {where}, the ledger {len(expected)}"
        places = [(f"{where}[{number}]", number) for number in range(len(claimed))]
    else:
        same = _same(claimed, expected, summed=where.startswith("published."))
        return None if same else f"{where} {_contrast(claimed, expected)}"
    for place, name in places:
        difference = _first_difference(claimed[name], expected[name], place)
        if difference is not None:
            return difference
    return None


def _same(claimed: Any, expected: Any, *, summed: bool) -> bool:
    """Equal as JSON, where true is not 1; what was summed may differ in its last digits."""
    if isinstance(claimed, bool) or isinstance(expected, bool):
        return claimed is expected
    if summed and isinstance(claimed, float) and isinstance(expected, float):
        return math.isclose(claimed, expected, rel_tol=ROUNDING)
    return bool(claimed == expected)


def _contrast(claimed: Any, expected: Any) -> str:
    one, other = (json.dumps(fact, ensure_ascii=False) for fact in (claimed, expected))
    if max(len(one), len(other)) > LONGEST:
        return "is another text than the ledger's facts give"
    return f"is {one}, not {other}"
