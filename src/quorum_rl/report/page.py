"""The report as one HTML file that needs nothing but itself."""

import base64
import hashlib
import math
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final

from quorum_rl.errors import require_packages
from quorum_rl.files import replacing
from quorum_rl.report.charts import charts_of
from quorum_rl.report.facts import Missing, RunReport, epsilon_text

if TYPE_CHECKING:
    from jinja2 import Environment

FILE: Final = "report.html"
PACKAGES: Final = ("jinja2", "matplotlib", "vl_convert")  # the extra `report`


def write_report(
    folder: Path | str, out: Path | str | None = None, *, ledger: Path | None = None
) -> Path:
    """Write the report of the run in `folder` and say where: `report.html` there unless told.

    One HTML file that needs no network. It replaces an earlier one. The certificate is compared
    with the `ledger`, which is the one in the folder unless told otherwise.

    Guarantee: it shows only declared numbers, outputs of private mechanisms, what the certificate
    says, and a comparison where the folder has one.

    Raises:
        QuorumError: if there is no run, one of its files is damaged, the page cannot be written, or
            the extra `report` is not installed.
    """
    check_packages()
    from quorum_rl.report.gathering import gather  # late: this brings JAX

    path = Path(folder, FILE) if out is None else Path(out)
    page = render(gather(Path(folder), ledger))
    with replacing(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return path


def check_packages() -> None:
    """Refuse to make a report where the packages that draw it are not installed."""
    require_packages("the report", "report", *PACKAGES)


def render(report: RunReport) -> str:
    """The page. Nothing in it comes from elsewhere, and nothing of it is sent anywhere."""
    drawn = charts_of(report)
    script = _script()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = _templates().get_template("report.html")
    return page.render(
        report=report,
        charts=drawn,
        drawn={chart.id: chart.data for chart in drawn.values()},
        style=_file("report.css"),
        script=script,
        script_digest=digest,
    )


@cache
def _templates() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("quorum_rl.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.tests["missing"] = lambda part: isinstance(part, Missing)
    made.tests["meant"] = lambda part: not isinstance(part, Missing) or part.meant
    made.filters["epsilon"] = epsilon_text
    made.filters["percent"] = percent_text
    return made


def percent_text(share: float) -> str:
    """A bound in per cent, rounded up: never less than it is."""
    for digits in (0, 1, 2, 4):
        scale = 10**digits
        shown = math.ceil(share * 100 * scale - 1e-9) / scale
        if shown < 100:
            return f"{shown:.{digits}f}%"
    return "100%"


@cache
def _script() -> str:
    """Vega, Vega-Lite and what draws the charts with them, fit to stand inside a page."""
    import vl_convert

    bundle = vl_convert.javascript_bundle(_file("charts.js"))
    # The parser of HTML knows no JavaScript: these would end the script, or hide its end.
    return bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--").replace("\r\n", "\n")


def _file(name: str) -> str:
    return (files("quorum_rl.report") / "templates" / name).read_text(encoding="utf-8")
