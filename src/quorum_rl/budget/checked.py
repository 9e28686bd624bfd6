"""A certificate's file, checked against the ledger and the signature that go with it."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from quorum_rl.budget.certificates import Certificate
from quorum_rl.budget.consistency import Consistency, check_consistent
from quorum_rl.budget.record import no_ledger
from quorum_rl.budget.schema import certificate_of, read_file
from quorum_rl.budget.signature import check_signature, signature_path
from quorum_rl.budget.verifier import verify
from quorum_rl.errors import QuorumError

LEDGER: Final = "ledger.jsonl"  # what a ledger beside its certificate is called


@dataclass(frozen=True)
class Signed:
    """A good signature: the key it is by, whether that is the one asked for, and of what it is."""

    public_key: str
    asked_for: bool
    what: str

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
                f"the certificate holds and agrees with its ledger: {claim}; {found.epsilon:.6g} "
                "by the other route."
            )
            if not found.current:
                said.append(_gone_on(found))
        if made.kind == "research":
            said.append("it is of a research ledger, whose budget was not enforced.")
        said += [f"it is marked: {mark}." for mark in made.marks]
        said += [one.sentence() for one in self.signed]
        return said

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
            "signed": [
                {"what": one.what, "public_key": one.public_key, "asked_for": one.asked_for}
                for one in self.signed
            ],
        }


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
        raise (
            no_ledger(book)
            if ledger
            else QuorumError(
                f"there is no {LEDGER} beside {str(path)!r}: say with --ledger where its ledger is."
            )
        )
    consistency = check_consistent(claim, read_file(book, "ledger"), book)
    check_guarantees(claim, consistency)
    signed = check_signed(path, content, public_key, "the certificate")
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
        record = consistency.record
        reasons = verify(record, epsilon=claim.epsilon, delta=claim.delta).reasons
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
    return Signed(signer, public_key is not None, what)


def _gone_on(found: Consistency) -> str:
    more = [] if not found.later_entries else [f"{found.later_entries} more entries"]
    if found.torn_since:
        more.append("a line that was cut off")
    return (
        f"it is older than the ledger, which has {' and '.join(more)} since: what those were for "
        "is not covered by it."
    )
