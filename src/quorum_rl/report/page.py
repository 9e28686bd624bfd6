"""The report as one HTML file that needs nothing but itself."""

import base64
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

import altair
import vl_convert
from jinja2 import Environment, PackageLoader, StrictUndefined

from quorum_rl.report import charts
from quorum_rl.report.facts import Agreement, Comparison, Missing, Prefixes, RunReport, Spending

TABLE_ROWS: Final = 20  # of a chart's table; a longer one is thinned out


@dataclass(frozen=True)
class Chart:
    """A chart with what stands for it where it cannot be seen: a sentence and a table."""

    id: str
    label: str
    spec: dict[str, Any]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def render(report: RunReport) -> str:
    """The page. Nothing in it comes from elsewhere, and nothing of it is sent anywhere."""
    drawn = _charts(report)
    script = _script()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = _templates().get_template("report.html")
    return page.render(
        report=report,
        charts=drawn,
        specs={chart.id: chart.spec for chart in drawn.values()},
        style=_file("report.css"),
        script=script,
        script_digest=digest,
    )


@cache
def _templates() -> Environment:
    made = Environment(
        loader=PackageLoader("quorum_rl.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.tests["missing"] = lambda part: isinstance(part, Missing)
    made.filters["epsilon"] = epsilon_text
    made.filters["percent"] = percent_text
    return made


def epsilon_text(epsilon: float) -> str:
    """An ε as people read it; certificates have rounded it up already."""
    return f"{epsilon:.4f}".rstrip("0").rstrip(".") if math.isfinite(epsilon) else "∞"


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
    wanted = ".".join(altair.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    known = wanted in vl_convert.get_vegalite_versions()
    bundle = vl_convert.javascript_bundle(_file("charts.js"), vl_version=wanted if known else None)
    # The parser of HTML knows no JavaScript: these would end the script, or hide its end.
    return bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--").replace("\r\n", "\n")


def _file(name: str) -> str:
    return (files("quorum_rl.report") / "templates" / name).read_text(encoding="utf-8")


def _charts(report: RunReport) -> dict[str, Chart]:
    """The charts of those parts that are there."""
    made = []
    if not isinstance(report.spending, Missing) and _drawable(report.spending):
        made.append(_budget(report.spending))
    if not isinstance(report.comparison, Missing):
        made.append(_comparison(report.comparison))
    if not isinstance(report.prefixes, Missing):
        made.append(_prefixes(report.prefixes))
    if not isinstance(report.learning, Missing):
        points = report.learning.points
        rows = [(f"{step:,.0f}", f"{loss:.4g}") for step, loss in _thinned(points)]
        made.append(
            Chart(
                "learning-chart",
                "Line chart of the loss on released data by training step.",
                charts.learning_chart(report.learning),
                ("step", "loss on released data"),
                tuple(rows),
            )
        )
    if report.agreement is not None:
        made.append(_agreement(report.agreement))
    return {chart.id.removesuffix("-chart"): chart for chart in made}


def _drawable(spending: Spending) -> bool:
    costs = [stage.epsilon for stage in spending.stages] + [spending.together]
    return bool(spending.stages) and all(math.isfinite(cost) for cost in costs)


def _budget(spending: Spending) -> Chart:
    rows = [(f"{stage.name}, alone", epsilon_text(stage.epsilon)) for stage in spending.stages]
    rows.append(("added up", epsilon_text(spending.added_up)))
    rows.append(("together: what counts as spent", epsilon_text(spending.together)))
    if spending.allowed is not None and spending.unspent is not None:
        rows.append(("unspent", epsilon_text(spending.unspent)))
        rows.append(("the ledger's budget", epsilon_text(spending.allowed)))
    return Chart(
        "budget-chart",
        "Bar chart of epsilon: the stages alone and added up, against both together.",
        charts.budget_chart(spending),
        ("part", f"ε at δ = {spending.delta:g}"),
        tuple(rows),
    )


def _comparison(comparison: Comparison) -> Chart:
    rows = []
    for method in comparison.methods:
        interval = "–" if method.interval is None else "{:.3f} to {:.3f}".format(*method.interval)
        earned = "–" if method.mean_return is None else f"{method.mean_return:.4g}"
        rows.append(
            (
                method.name,
                charts.epsilon_label(method.epsilon),
                "–" if method.delta is None else f"{method.delta:g}",
                f"{method.score:.3f}",
                interval,
                earned,
                method.note or "–",
            )
        )
    return Chart(
        "comparison-chart",
        "Chart of scores with 95% intervals by epsilon, one colour for each method.",
        charts.comparison_chart(comparison),
        ("method", "ε", "δ", "score", "95% interval", "mean return", "note"),
        tuple(rows),
    )


def _prefixes(prefixes: Prefixes) -> Chart:
    rows = [(f"{length:,}", f"{count:,}") for length, count in _thinned(prefixes.counts)]
    return Chart(
        "prefixes-chart",
        "Bar chart of how many released prefixes have how many steps.",
        charts.prefixes_chart(prefixes),
        ("steps", "prefixes"),
        tuple(rows),
    )


def _agreement(agreement: Agreement) -> Chart:
    curves = zip(agreement.steps, agreement.mean, agreement.median, strict=True)
    rows = [
        (f"{steps:,}", f"{mean:.4f}", f"{median:.4f}") for steps, mean, median in _thinned(curves)
    ]
    return Chart(
        "agreement-chart",
        "Line chart of the share of experts who go along with a trajectory, by its length.",
        charts.agreement_chart(agreement),
        ("steps", "mean share", "median share"),
        tuple(rows),
    )


def _thinned(rows: Any) -> Sequence[Any]:
    """At most so many rows as a reader wants, the first and the last among them."""
    found = list(rows)
    if len(found) <= TABLE_ROWS:
        return found
    last = len(found) - 1
    return [found[round(place * last / (TABLE_ROWS - 1))] for place in range(TABLE_ROWS)]
