"""`quorum ledger` and `quorum certificate`: a set of experts' budget, and what it certifies."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from quorum_rl.cli.output import console, show_facts
from quorum_rl.errors import QuorumError

if TYPE_CHECKING:
    from quorum_rl.budget import Checked

LedgerFile = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="LEDGER")]
CertificateFile = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="CERTIFICATE")]


@dataclass(frozen=True)
class Create:
    """Open the budget of a set of experts: one ledger, for all that is ever learned from them.

    Example: quorum ledger create desks.ledger --epsilon 10 --delta 1e-5
    """

    file: LedgerFile
    """The file to write. Keep it: without it nobody knows what was spent."""
    epsilon: float | None = None
    """The whole budget; needed unless the ledger is for research."""
    delta: float | None = None
    """At this delta. Events share it as they share epsilon: plan each for a part of it."""
    research: bool = False
    """For synthetic experts: nothing is refused, and every certificate says so."""

    def run(self) -> None:
        from quorum_rl.budget import Ledger

        kind = "research" if self.research else "production"
        record = Ledger.create(self.file, epsilon=self.epsilon, delta=self.delta, kind=kind)  # type: ignore[arg-type]
        console().print(f"a {record.kind} ledger, identity {record.identity}: {self.file}")


@dataclass(frozen=True)
class Show:
    """Say what a ledger was charged, and out of which budget.

    Example: quorum ledger show desks.ledger
    """

    file: LedgerFile
    """A ledger."""
    json: bool = False
    """Print machine-readable facts."""

    def run(self) -> None:
        from quorum_rl.budget import read_ledger, rounded_up, spent_epsilon

        record = read_ledger(self.file)
        spent = None if record.delta is None else float(rounded_up(spent_epsilon(record)))
        facts = {
            "kind": record.kind,
            "identity": record.identity,
            "epsilon": record.epsilon,
            "delta": record.delta,
            "spent_epsilon": spent,
            "torn": record.torn,
            "charges": [
                f"{charge.at} {charge.run}: {_in_words(charge.event)}" for charge in record.charges
            ],
            "marks": [mark.text for mark in record.marks],
        }
        if self.json:
            show_facts(facts, as_json=True)
            return
        for name in ("charges", "marks"):
            facts[name] = ("\n" + " " * 22).join(facts[name]) or "none"  # type: ignore[arg-type]
        show_facts(facts, as_json=False)


def _in_words(event: object) -> str:
    from quorum_rl.privacy import ReleaseEvent, SelectionEvent, TrainingEvent

    if isinstance(event, ReleaseEvent):
        return (
            f"release, mode {event.mode}, {event.iterations} iterations, "
            f"threshold {event.threshold:.1f}"
        )
    assert isinstance(event, TrainingEvent | SelectionEvent)  # there is no fourth kind
    what = (
        f"selection, the best of {event.mean_trials} trainings in the mean, each"
        if isinstance(event, SelectionEvent)
        else "training,"
    )
    return (
        f"{what} {event.steps} steps at rate {event.sampling_rate:.4g}, "
        f"noise multiplier {event.noise_multiplier:.4g}"
    )


@dataclass(frozen=True)
class Ledgers:
    """The budget of a set of experts: create, show."""

    command: (
        Annotated[Create, tyro.conf.subcommand("create")]
        | Annotated[Show, tyro.conf.subcommand("show")]
    )

    def run(self) -> None:
        self.command.run()


@dataclass(frozen=True)
class ShowCertificate:
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
        from quorum_rl.budget import certificate, read_certificate, read_ledger

        if _is_ledger(self.file):
            made = certificate(read_ledger(self.file), delta=self.delta)
        else:
            _refuse_delta(self.delta)
            made = read_certificate(_certificate_file(self.file))
        if self.json:
            print(made.to_json())
            return
        out = console()
        out.print(made.statement)
        for assumption in made.assumptions:
            state = "accepted" if assumption.accepted else "NOT accepted"
            out.print(f"  assumes {assumption.name} ({state}): {assumption.text}")
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
class VerifyCertificate:
    """Compare a certificate with its ledger, and compute its epsilon again by another route.

    Exit status 2, and what does not agree, if any fact of it is not the ledger's, or if it agrees
    and guarantees nothing. A certificate that is older than the ledger is judged by the ledger as
    it was then, and that is said. A signature beside the certificate is checked too.

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
            return
        _refuse_delta(self.delta)
        if (self.file / "MANIFEST.json").exists():
            from quorum_rl.report import check_bundle

            checked = check_bundle(self.file, ledger=self.ledger, public_key=self.public_key)
        else:
            from quorum_rl.budget import check_certificate

            checked = check_certificate(
                _certificate_file(self.file), ledger=self.ledger, public_key=self.public_key
            )
        show_checked(checked, as_json=self.json)

    def _check_ledger(self) -> None:
        from quorum_rl.budget import certificate, read_ledger, verify

        if self.ledger is not None or self.public_key is not None:
            raise QuorumError(
                f"{str(self.file)!r} is a ledger by itself: give a certificate to compare with it."
            )
        record = read_ledger(self.file)
        made = certificate(record, delta=self.delta)
        found = verify(record, epsilon=made.epsilon, delta=made.delta)
        if not found.holds:
            raise QuorumError(f"the certificate does not hold: {'; '.join(found.reasons)}.")
        if self.json:
            facts = {"epsilon": made.epsilon, "delta": made.delta, "other_route": found.epsilon}
            show_facts(facts, as_json=True)
            return
        console().print(
            f"the certificate holds: epsilon = {made.epsilon:g} at delta = {made.delta:g}; "
            f"{found.epsilon:.6g} by the other route."
        )


@dataclass(frozen=True)
class Schema:
    """Print the JSON Schema of certificates.

    Example: quorum certificate schema > certificate.schema.json
    """

    def run(self) -> None:
        from quorum_rl.budget import schema_text

        print(schema_text(), end="")


@dataclass(frozen=True)
class GenerateKey:
    """Make a key to sign certificates with, and print its public part for those who check them.

    Example: quorum certificate keygen desks.key
    """

    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="KEYFILE")]
    """The file to write, for its owner only. Keep it out of everything that is published."""

    def run(self) -> None:
        from quorum_rl.budget import generate_key

        print(generate_key(self.file))


@dataclass(frozen=True)
class Sign:
    """Sign a certificate: writes a small file beside it, and leaves the certificate as it is.

    Example: quorum certificate sign runs/desks/certificate.json --key desks.key
    """

    file: CertificateFile
    """A certificate."""
    key: Path = tyro.MISSING
    """The private key, a file of 'quorum certificate keygen'."""

    def run(self) -> None:
        from quorum_rl.budget import read_certificate, sign_file

        read_certificate(self.file)  # nothing else is signed
        console().print(f"the signature is in {sign_file(self.file, self.key)}")


def show_checked(checked: "Checked", *, as_json: bool) -> None:
    """Say what was found beside a certificate in which nothing is wrong."""
    if as_json:
        show_facts(checked.facts(), as_json=True)
        return
    for sentence in checked.sentences():
        console().print(sentence)


def _is_ledger(path: Path) -> bool:
    """Whether a path is that of a ledger and not of a certificate or a folder."""
    if path.is_dir():
        return False
    try:
        with path.open("rb") as file:
            return file.read(9) == b'{"entry":'
    except FileNotFoundError:
        raise QuorumError(f"there is no certificate and no ledger at {str(path)!r}.") from None
    except OSError:
        return True  # whose reader says what is wrong


def _certificate_file(path: Path) -> Path:
    return path / "certificate.json" if path.is_dir() else path


def _refuse_delta(delta: float | None) -> None:
    if delta is not None:
        raise QuorumError(f"a certificate has its own delta: leave out --delta {delta:g}.")


@dataclass(frozen=True)
class Certificates:
    """What a ledger certifies: show, verify, sign; keys to sign with, and the schema."""

    command: (
        Annotated[ShowCertificate, tyro.conf.subcommand("show")]
        | Annotated[VerifyCertificate, tyro.conf.subcommand("verify")]
        | Annotated[Sign, tyro.conf.subcommand("sign")]
        | Annotated[GenerateKey, tyro.conf.subcommand("keygen")]
        | Annotated[Schema, tyro.conf.subcommand("schema")]
    )

    def run(self) -> None:
        self.command.run()
