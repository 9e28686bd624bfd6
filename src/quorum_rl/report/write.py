"""From a run folder to its report."""

from pathlib import Path
from typing import Final

from quorum_rl.errors import QuorumError
from quorum_rl.files import replacing
from quorum_rl.report.facts import Agreement

FILE: Final = "report.html"
DIAGNOSTICS_FILE: Final = "report-not-private.html"


def write_report(
    folder: Path | str,
    out: Path | str | None = None,
    *,
    agreement: Agreement | None = None,
    ledger: Path | None = None,
) -> Path:
    """Write the report of the run in `folder` and say where: `report.html` there unless told.

    One HTML file that needs no network. It replaces an earlier one. The certificate is compared
    with the `ledger`, which is the one in the folder unless told otherwise.

    Guarantee: without `agreement` it shows only what may be published: declared numbers, outputs of
    private mechanisms, and what the certificate says. With it (diagnostics, NOT private) the page
    says so, and is called `report-not-private.html` unless told otherwise.

    Raises:
        QuorumError: if there is no run, one of its files is damaged, or the page cannot be written;
            or if a page with diagnostics would take the place of the one that is published.
    """
    from quorum_rl.report.gathering import gather
    from quorum_rl.report.page import render

    place = Path(folder)
    path = Path(out) if out is not None else place / report_name(agreement is not None)
    if agreement is not None and path.resolve() == (place / FILE).resolve():
        raise QuorumError(
            f"{str(path)!r} is the page that is published: give the one with diagnostics another "
            "name."
        )
    page = render(gather(place, agreement, ledger))
    with replacing(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return path


def report_name(diagnostics: bool) -> str:
    """What the page is called where nobody says."""
    return DIAGNOSTICS_FILE if diagnostics else FILE
