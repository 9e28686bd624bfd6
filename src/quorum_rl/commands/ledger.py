"""`quorum ledger` and `quorum certificate`: a set of experts' budget, and what it certifies."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from quorum_rl.commands.output import console, show_facts
from quorum_rl.errors import QuorumError

LedgerFile = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="LEDGER")]


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
        from quorum_rl.budget import read_ledger, spent_epsilon
        from quorum_rl.budget.certificate import rounded_up

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
    from quorum_rl.privacy import ReleaseEvent, TrainingEvent

    if isinstance(event, ReleaseEvent):
        return (
            f"release, mode {event.mode}, {event.iterations} iterations, "
            f"threshold {event.threshold:.1f}"
        )
    assert isinstance(event, TrainingEvent)  # there is no third kind
    return (
        f"training, {event.steps} steps at rate {event.sampling_rate:.4g}, "
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
    """Print the certificate of all that a ledger was charged for.

    Example: quorum certificate show desks.ledger
    """

    file: LedgerFile
    """A ledger."""
    delta: float | None = None
    """State epsilon at this delta; the ledger's own unless given."""
    json: bool = False
    """Print the whole certificate as JSON."""

    def run(self) -> None:
        from quorum_rl.budget import certificate, read_ledger

        made = certificate(read_ledger(self.file), delta=self.delta)
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
    """Compute the cost of a ledger's events again, by another route, and compare.

    Exit status 2 if the certificate does not hold.

    Example: quorum certificate verify desks.ledger
    """

    file: LedgerFile
    """A ledger."""
    delta: float | None = None
    """State epsilon at this delta; the ledger's own unless given."""

    def run(self) -> None:
        from quorum_rl.budget import certificate, read_ledger, verify

        record = read_ledger(self.file)
        made = certificate(record, delta=self.delta)
        found = verify(record, epsilon=made.epsilon, delta=made.delta)
        if not found.holds:
            raise QuorumError(f"the certificate does not hold: {'; '.join(found.reasons)}.")
        console().print(
            f"the certificate holds: epsilon = {made.epsilon:g} at delta = {made.delta:g}; "
            f"{found.epsilon:.6g} by the other route."
        )


@dataclass(frozen=True)
class Certificates:
    """What a ledger certifies: show, verify."""

    command: (
        Annotated[ShowCertificate, tyro.conf.subcommand("show")]
        | Annotated[VerifyCertificate, tyro.conf.subcommand("verify")]
    )

    def run(self) -> None:
        self.command.run()
