"""`quorum ledger`: what may be spent on a set of experts, and what was."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from quorum_rl import budget, privacy
from quorum_rl.cli.flags import given
from quorum_rl.cli.output import RefutedError, console, refuting, show_facts
from quorum_rl.cli.parser import Positional
from quorum_rl.errors import QuorumError

LedgerFile = Annotated[Path, Positional("LEDGER")]


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
        kind: budget.Kind = "research" if self.research else "production"
        record = budget.Ledger.create(self.file, epsilon=self.epsilon, delta=self.delta, kind=kind)
        console().print(f"a {record.kind} ledger, identity {record.identity}: {self.file}")


@dataclass(frozen=True)
class Show:
    """Say what a ledger was charged, and out of which budget.

    Exit status 1, and what was done to it, if the ledger is damaged, or if it is an older copy or a
    fork of one that was charged here.

    Example: quorum ledger show desks.ledger
    """

    file: LedgerFile
    """A ledger."""
    json: bool = False
    """Print machine-readable facts."""

    def run(self) -> None:
        if not self.file.is_file():
            raise QuorumError(f"there is no ledger at {str(self.file)!r}: name one.")
        with refuting():
            record = budget.Budget(self.file).record
        spent = None
        if record.delta is not None:
            spent = float(budget.rounded_up(budget.spent_epsilon(record)))
        facts: dict[str, Any] = {
            **given(record, "kind identity epsilon delta"),
            "spent_epsilon": spent,
            "torn": record.torn,
            "charges": [
                f"{charge.date} {charge.run}: {privacy.kind_of(event)}, {privacy.in_words(event)}"
                for charge, event in ((each, each.event) for each in record.charges)
            ],
            "marks": [mark.text for mark in record.marks],
        }
        if not self.json:
            for name in ("charges", "marks"):
                facts[name] = ("\n" + " " * 22).join(facts[name]) or "none"
        show_facts(facts, as_json=self.json)
        if record.torn:
            whole = self.file.read_bytes().endswith(b"\n")
            what = "is damaged and cannot be read" if whole else "was cut off"
            raise RefutedError(
                f"the last line of the ledger {str(self.file)!r} {what}, so all of its budget "
                "counts as spent: bring the file back as it was last written."
            )
