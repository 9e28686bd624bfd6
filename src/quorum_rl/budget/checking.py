"""A certificate, checked against its ledger and its signature: every fact, ε by a second route.

The ledger guards against a changed certificate or a changed ledger, not against somebody who writes
both anew: that is what a signature is for.
"""

import json
import math
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from quorum_rl.budget.certificates import DECIMALS, Certificate, repeated_pools, rounded_up, stated
from quorum_rl.budget.ledger import spent_epsilon, with_torn_line
from quorum_rl.budget.record import LedgerRecord, no_ledger, record_of
from quorum_rl.budget.schema import certificate_of
from quorum_rl.budget.signature import check_signature, signature_path
from quorum_rl.budget.verifier import TOLERANCE, independent_epsilon, verify
from quorum_rl.errors import QuorumError
from quorum_rl.files import read_file
from quorum_rl.privacy import ReleaseEvent

LEDGER: Final = "ledger.jsonl"  # what a ledger beside its certificate is called
ROUNDING: Final = 1e-9  # of published sums, whose last digits differ between machines
CUT_OFF: Final = b"{"  # stands for a torn line, of which nobody knows what it says
LATE_DIGITS: Final = 1e-5  # of an ε: what other machines may compute otherwise
CERTIFICATE: Final = "the certificate"
BUNDLE: Final = "the whole bundle"
UNSIGNED: Final = (
    "UNSIGNED: {} is not signed, so whoever could write these files may have written all of them "
    "anew, and they would still agree; get them signed, and check with --public-key."
)
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

    Guarantee: the claimed ε is what the charges cost, to the last digit shown; computed again
    without the planner's numerics it is not above that by more than `verifier.TOLERANCE`. Every
    other fact is the ledger's, to the letter.

    Raises:
        QuorumError: if the ledger is damaged, or naming the first fact that does not agree.
    """
    whole = record_of(ledger, path)
    if claim.identity != whole.identity:
        raise QuorumError(
            f"the certificate is of another ledger: its identity is {claim.identity.strip()}, and "
            f"{str(path)!r} is {whole.identity}."
        )
    lines = ledger.split(b"\n")[:-1]
    last = f'"hash":"{claim.ledger_head}"}}'.encode()  # as `line_of` writes it
    ends = (number for number, line in enumerate(lines, start=1) if line.endswith(last))
    covered = next(ends, None)
    if covered is None:
        raise QuorumError(
            f"ledger_head does not agree: no line of {str(path)!r} has the hash "
            f"{claim.ledger_head.strip()}, so the ledger was cut shorter or rewritten since, or "
            "the certificate was changed."
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


def _check_facts(claim: Certificate, record: LedgerRecord) -> float:
    """Compare a claim with the ledger that it was made from; returns the second route's ε."""
    found = independent_epsilon(record.events, claim.delta)
    shown = _shown(claim)
    if not repeated_pools(record):
        _check_epsilon(shown, record, claim.delta, found)
    expected = stated(record, shown, claim.delta)
    difference = _first_difference(json.loads(claim.to_json()), json.loads(expected.to_json()))
    if difference is not None:
        raise QuorumError(f"the certificate does not agree with its ledger: {difference}.")
    return found


def _check_epsilon(shown: str, record: LedgerRecord, delta: float, found: float) -> None:
    """Fail unless the charges cost the ε `shown`, and no more by the second route, which `found`
    an ε of its own. In mode paper nothing is claimed, and the routes differ."""
    booked, second = spent_epsilon(record, delta), with_torn_line(record, found, delta)
    releases = [event for event in record.events if isinstance(event, ReleaseEvent)]
    confirmed = second <= float(shown) * (1 + TOLERANCE)
    if any(event.mode == "paper" for event in releases):
        confirmed, second = True, booked
    if not (confirmed and _is_rounded(shown, booked)):
        raise QuorumError(
            f"epsilon does not agree: the certificate says {shown} at delta = {delta:g}, and what "
            f"its ledger was charged for costs {booked:.6g} there, by a second route {second:.6g}."
        )


def _shown(claim: Certificate) -> str:
    """The ε that a certificate shows; in mode paper its statement alone has one."""
    if math.isfinite(claim.epsilon):
        return f"{claim.epsilon:.{DECIMALS}f}"
    found = re.search(rf"ε = (\d+\.\d{{{DECIMALS}}}) at", claim.statement)
    return "inf" if found is None else found[1]


def _is_rounded(shown: str, spent: float) -> bool:
    """Whether an ε is what was spent, rounded up; other machines differ in late digits."""
    least, most = (rounded_up(spent * (1 + part)) for part in (-LATE_DIGITS, LATE_DIGITS))
    return float(least) <= float(shown) <= float(most)


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
    said, wanted = (json.dumps(fact, ensure_ascii=False) for fact in (claimed, expected))
    if max(len(said), len(wanted)) > LONGEST:
        return "is another text than the ledger's facts give"
    return f"is {said}, not {wanted}"


@dataclass(frozen=True)
class Signed:
    """A good signature: of what it is, the key it is by, and whether that is the one asked for."""

    what: str
    public_key: str
    asked_for: bool

    def sentence(self) -> str:
        """What the signature shows, and what it does not."""
        if self.asked_for:
            return f"{self.what} is signed with the key that you gave."
        return (
            f"{self.what} is signed with the key {self.public_key}, which shows only that the "
            "holder of that key signed: give --public-key to say whose it must be."
        )


@dataclass(frozen=True)
class Checked:
    """A certificate in which nothing is wrong; `consistency` is None if no ledger was at hand."""

    certificate: Certificate
    consistency: Consistency | None
    signed: tuple[Signed, ...] = ()
    files: int | None = None  # in a bundle: how many are as its manifest says

    def sentences(self) -> list[str]:
        """What was found, for people."""
        made, found = self.certificate, self.consistency
        claim = f"epsilon = {made.epsilon:g} at delta = {made.delta:g}"
        said = [] if self.files is None else [f"{self.files} files are as the manifest says."]
        if found is None:
            said.append(
                f"the certificate says {claim}, and was not compared with its ledger, which is not "
                "here: give --ledger."
            )
        else:
            said.append(
                f"the certificate holds and agrees with its ledger: the bound is {claim}; "
                f"{second_opinion(found.epsilon)}."
            )
            if not found.current:
                said.append(_gone_on(found))
        if made.kind == "research":
            said.append("it is of a research ledger, whose budget was not enforced.")
        said += [f"it is marked: {mark}." for mark in made.marks]
        said += [signature.sentence() for signature in self.signed]
        return said if self.vouched else [*said, UNSIGNED.format(self._what)]

    @property
    def vouched(self) -> bool:
        """Whether all that was checked is signed: a bundle must be as a whole."""
        return any(signature.what == self._what for signature in self.signed)

    @property
    def _what(self) -> str:
        return CERTIFICATE if self.files is None else BUNDLE

    def facts(self) -> dict[str, Any]:
        """What was found, for programs."""
        made, found = self.certificate, self.consistency
        return {
            "epsilon": made.epsilon,
            "delta": made.delta,
            "other_route": None if found is None else found.epsilon,
            "compared_with_ledger": found is not None,
            "later_entries": None if found is None else found.later_entries,
            "torn_since": None if found is None else found.torn_since,
            "unsigned": not self.vouched,
            "signed": [asdict(signature) for signature in self.signed],
        }


def second_opinion(epsilon: float) -> str:
    """What the other route gives, in words that do not let it pass for the bound."""
    return (
        f"computed a second time, on a grid that may add {TOLERANCE:.1%} to it, it is {epsilon:.6g}"
    )


def check_certificate(
    path: Path, *, ledger: Path | None = None, public_key: str | None = None
) -> Checked:
    """Check a certificate's file against its ledger, beside it unless given, and its signature.

    `public_key` is the key that must have signed, as `signature.check_signature` takes it.

    Raises:
        QuorumError: naming the first thing that does not agree, or if the certificate agrees and
            guarantees nothing.
    """
    content = read_file(path, "certificate")
    claim = certificate_of(content, path)
    book = path.parent / LEDGER if ledger is None else ledger
    if not book.exists():
        if ledger is not None:
            raise no_ledger(ledger)
        raise QuorumError(
            f"there is no {LEDGER} beside {str(path)!r}: say with --ledger where its ledger is."
        )
    consistency = check_consistent(claim, read_file(book, "ledger"), book)
    check_guarantees(claim, consistency)
    signed = check_signed(path, content, public_key, CERTIFICATE)
    if public_key is not None and signed is None:
        raise QuorumError(f"{str(path)!r} is not signed: there is no {signature_path(path).name}.")
    return Checked(claim, consistency, () if signed is None else (signed,))


def check_guarantees(claim: Certificate, consistency: Consistency | None) -> None:
    """Fail for a certificate that agrees with its ledger, if that is at hand, and claims nothing.

    Raises:
        QuorumError: saying why nothing is guaranteed.
    """
    reasons: tuple[str, ...] = ()
    if consistency is not None:
        found = verify(consistency.record, epsilon=claim.epsilon, delta=claim.delta)
        reasons = found.reasons
    if not reasons and claim.epsilon == math.inf:
        reasons = (f"no finite epsilon can be claimed at delta = {claim.delta:g}",)
    if reasons:
        raise QuorumError(f"the certificate does not hold: {'; '.join(reasons)}.")


def check_signed(path: Path, content: bytes, public_key: str | None, what: str) -> Signed | None:
    """The signature beside a file with this content; None if there is none.

    Raises:
        QuorumError: if it is not good, or not by the key that was asked for.
    """
    beside = signature_path(path)
    if not beside.exists():
        return None
    signer = check_signature(read_file(beside, "signature"), content, path, public_key)
    return Signed(what, signer, public_key is not None)


def _gone_on(found: Consistency) -> str:
    more = [] if not found.later_entries else [f"{found.later_entries} more entries"]
    if found.torn_since:
        more.append("a line that was cut off")
    return (
        f"it is older than the ledger, which has {' and '.join(more)} since: what those were for "
        "is not covered by it."
    )
