"""`quorum report`: one page about a run, for people who decide and people who research."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from quorum_rl import report
from quorum_rl.cli.output import check_new_file, console, show_facts
from quorum_rl.cli.parser import Positional
from quorum_rl.errors import QuorumError


@dataclass(frozen=True)
class Report:
    """Write the report of a run: one HTML file that needs no network.

    Example: quorum report runs/cartpole
    """

    folder: Annotated[Path, Positional("RUN")]
    """The run's folder, as 'quorum fit' left it."""
    out: Path | None = None
    """The file to write; report.html in the folder unless given."""
    ledger: Path | None = None
    """The experts' ledger, where the run was charged to one outside its folder."""
    overwrite: bool = False
    """Replace the file if it exists."""
    json: bool = False
    """Print what the report shows as JSON, and write nothing."""

    def run(self) -> None:
        report.check_packages()
        if not self.folder.is_dir():
            raise QuorumError(f"there is no folder {str(self.folder)!r}: give a run's folder.")
        if self.ledger is not None and not self.ledger.is_file():
            raise QuorumError(f"there is no ledger {str(self.ledger)!r}: give the run's own.")
        if self.json:
            found = report.gather(self.folder, self.ledger)
            show_facts(_plain(asdict(found)), as_json=True)
            return
        out = self.out or self.folder / "report.html"
        check_new_file(out, overwrite=self.overwrite)
        made = report.write_report(self.folder, out, ledger=self.ledger)
        console().print(f"the report is in {made}")


def _plain(value: Any) -> Any:
    """Facts as JSON can hold them: no infinities, and without the picture."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items() if name != "svg"}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and value in (float("inf"), float("-inf")) else value
