"""`quorum publish`: the bundle that may leave the building."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from quorum_rl import report
from quorum_rl.cli.flags import given
from quorum_rl.cli.output import show_facts
from quorum_rl.cli.parser import Positional


@dataclass(frozen=True, kw_only=True)
class Publish:
    """Write what may be published of a finished run into a new folder.

    The bundle has the policy, its certificate and the ledger as far as that covers it; nothing else
    of the run, unless asked for. A run that is not private is refused. Whoever gets the bundle
    checks it with 'quorum certificate verify'.

    Example: quorum publish runs/desks --out desks-policy
    """

    run_folder: Annotated[Path, Positional("RUN")]
    """The folder of a finished fit."""
    out: Path
    """The folder to write, which must be new."""
    ledger: Path | None = None
    """The run's ledger, if it is not in the folder."""
    with_released: bool = False
    """Add the released prefixes: the guarantee covers them, but they contain raw states."""
    without_ledger: bool = False
    """Leave the ledger out: then nobody can compute epsilon again from the bundle."""
    key: Path | None = None
    """Sign the whole bundle with this key, a file of 'quorum certificate keygen'."""
    research_not_private: bool = False
    """I know that this is a research ledger: the bundle says first that it is not private."""
    hub_card: bool = False
    """Write README.md, a model card that hubs of models read, in place of README.txt."""
    license: str | None = None
    """With --hub-card: the licence as the hub names it, such as apache-2.0."""
    json: bool = False
    """Print machine-readable facts."""

    def run(self) -> None:
        made = report.publish(
            self.run_folder,
            self.out,
            research=self.research_not_private,
            **given(self, "ledger key with_released without_ledger hub_card license"),
        )
        show_facts(
            {"folder": str(made.folder), **given(made, "files stayed remarks")},
            made.certificate.statement,
            *made.remarks,
            f"may leave, in {made.folder}: {', '.join(sorted(made.files))}",
            f"stays in {self.run_folder}: {', '.join(made.stayed) or 'nothing'}",
            as_json=self.json,
        )
