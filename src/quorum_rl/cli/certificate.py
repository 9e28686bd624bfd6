"""`quorum certificate`: what a ledger certifies, checked, signed and shown."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from quorum_rl import budget, report
from quorum_rl.cli.flags import given
from quorum_rl.cli.output import RefutedError, console, refuting, show_facts
from quorum_rl.cli.parser import Positional
from quorum_rl.errors import QuorumError

CertificateFile = Annotated[Path, Positional("CERTIFICATE")]


@dataclass(frozen=True)
class Show:
    """Print a certificate, or that of all that a ledger was charged for.

    Example: quorum certificate show desks.ledger
    """

    file: CertificateFile
    """A certificate, the folder of a run or of a bundle, or a ledger."""
    delta: float | None = None
    """For a ledger: state epsilon at this delta; its own unless given."""
    json: bool = False
    """Print the whole certificate as JSON."""

    def run(self) -> None:
        if _is_ledger(self.file):
            _, made = _certified(self.file, self.delta)
        else:
            _refuse_delta(self.delta)
            made = budget.read_certificate(_certificate_file(self.file))
        if self.json:
            print(made.to_json())
            return
        out = console()
        out.print(made.statement)
        for assumption in made.assumptions:
            said = f"  assumes {assumption.name} ({assumption.answer}): {assumption.text}"
            out.print(said)
        for title, texts in (
            ("not accounted", made.not_accounted),
            ("limitation", made.limitations),
            ("mark", made.marks),
        ):
            for text in texts:
                out.print(f"  {title}: {text}")
        if made.published is not None:
            out.print(
                f"  as published: epsilon = {made.published.epsilon:.4g}, delta = "
                f"{made.published.delta:.4g}; {made.published.text}"
            )


@dataclass(frozen=True)
class Verify:
    """Compare a certificate with its ledger, and compute its epsilon again by another route.

    Exit status 1, and what does not agree, if any fact of it is not the ledger's, or if it agrees
    and guarantees nothing; 2 if there is nothing to check. A certificate that is older than the
    ledger is judged by the ledger as it was then, and that is said. A signature beside the
    certificate is checked too.

    Example: quorum certificate verify runs/desks/certificate.json
    """

    file: CertificateFile
    """A certificate, the folder of a run or of a bundle, or a ledger by itself."""
    ledger: Path | None = None
    """The ledger that the certificate is of; otherwise the ledger.jsonl beside it."""
    public_key: str | None = None
    """Whose signature there must be: 64 hex digits, or a file that holds the key."""
    delta: float | None = None
    """For a ledger by itself: state epsilon at this delta; its own unless given."""
    json: bool = False
    """Print machine-readable facts."""

    def run(self) -> None:
        if _is_ledger(self.file):
            self._check_ledger()
        else:
            _refuse_delta(self.delta)
            self._check_certificate()

    def _check_certificate(self) -> None:
        """Check a certificate, the folder of a run, or a bundle: what is wrong in it is a finding,
        and what is not there a mistake of the user's."""
        key = None if self.public_key is None else budget.public_key_in_hex(self.public_key)
        file = _certificate_file(self.file)
        is_bundle = (self.file / "MANIFEST.json").exists()
        needed = [] if is_bundle else [file, file.parent / budget.LEDGER]
        if self.ledger is not None:
            needed[1:] = [self.ledger]
        try:
            if is_bundle:
                checked = report.check_bundle(self.file, ledger=self.ledger, public_key=key)
            else:
                checked = budget.check_certificate(file, ledger=self.ledger, public_key=key)
        except QuorumError as error:
            without_package = isinstance(error.__cause__, ImportError)
            if without_package or not all(place.is_file() for place in needed):
                raise
            raise RefutedError(str(error)) from error
        show_facts(checked.facts(), *checked.sentences(), as_json=self.json)

    def _check_ledger(self) -> None:
        if self.ledger is not None or self.public_key is not None:
            raise QuorumError(
                f"{str(self.file)!r} is a ledger by itself: give a certificate to compare with it."
            )
        record, made = _certified(self.file, self.delta)
        found = budget.verify(record, epsilon=made.epsilon, delta=made.delta)
        if not found.holds:
            raise RefutedError(f"the certificate does not hold: {'; '.join(found.reasons)}.")
        show_facts(
            {**given(made, "epsilon delta"), "other_route": found.epsilon},
            f"the certificate holds: the bound is epsilon = {made.epsilon:g} at delta = "
            f"{made.delta:g}; {budget.second_opinion(found.epsilon)}.",
            as_json=self.json,
        )


@dataclass(frozen=True)
class Schema:
    """Print the JSON Schema of certificates.

    Example: quorum certificate schema > certificate.schema.json
    """

    def run(self) -> None:
        print(budget.schema_text(), end="")


@dataclass(frozen=True)
class Keygen:
    """Make a key to sign certificates with, and print its public part for those who check them.

    Example: quorum certificate keygen desks.key
    """

    file: Annotated[Path, Positional("KEYFILE")]
    """The file to write, for its owner only. Keep it out of everything that is published."""

    def run(self) -> None:
        print(budget.generate_key(self.file))


@dataclass(frozen=True)
class Sign:
    """Sign a certificate: writes a small file beside it, and leaves the certificate as it is.

    Example: quorum certificate sign runs/desks/certificate.json --key desks.key
    """

    file: CertificateFile
    """A certificate."""
    key: Path
    """The private key, a file of 'quorum certificate keygen'."""

    def run(self) -> None:
        budget.read_certificate(self.file)  # nothing else is signed
        console().print(f"the signature is in {budget.sign_file(self.file, self.key)}")


def _is_ledger(path: Path) -> bool:
    """Whether a path is that of a ledger and not of a certificate or a folder."""
    if path.is_dir():
        return False
    if path.exists() and not path.is_file():
        return True  # whose reader says what is wrong
    try:
        with path.open("rb") as file:
            return file.read(9) == b'{"entry":'
    except FileNotFoundError:
        raise QuorumError(f"there is no certificate and no ledger at {str(path)!r}.") from None
    except OSError:
        return True  # whose reader says what is wrong


def _certified(path: Path, delta: float | None) -> "tuple[budget.LedgerRecord, budget.Certificate]":
    """A ledger that is sound, and what it certifies."""
    with refuting():
        record = budget.read_ledger(path)
    return record, budget.certificate(record, delta=delta)


def _certificate_file(path: Path) -> Path:
    return path / "certificate.json" if path.is_dir() else path


def _refuse_delta(delta: float | None) -> None:
    if delta is not None:
        raise QuorumError(f"a certificate has its own delta: leave out --delta {delta:g}.")
