"""What the charts of a report show: their data, which `charts.js` draws, and the same as tables."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from quorum_rl.report.facts import (
    ComparedMethods,
    JudgedAnswer,
    LearningCurve,
    Missing,
    Prefixes,
    RunReport,
    Spending,
    epsilon_text,
)

MOST_BARS: Final = 30
TABLE_ROWS: Final = 20  # of a chart's table; a longer one is thinned out

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Chart:
    """A chart with what stands for it where it cannot be seen: a sentence and a table."""

    id: str
    label: str
    data: dict[str, Any]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def charts_of(report: RunReport) -> dict[str, Chart]:
    """The charts of those parts of a report that are there, by the names of their sections."""
    made = {}
    if not isinstance(report.spending, Missing) and _drawable(report.spending):
        made["budget"] = _budget(report.spending)
    if not isinstance(report.judged, Missing):
        if report.judged.earned:
            made["earned"] = _judged("earned", "return", report.judged.earned)
        made["shares"] = _judged("shares", "share of steps", report.judged.shares)
    if not isinstance(report.comparison, Missing):
        made["comparison"] = _comparison(report.comparison)
    if not isinstance(report.prefixes, Missing):
        made["prefixes"] = _prefixes(report.prefixes)
    if not isinstance(report.learning, Missing):
        made["learning"] = _learning(report.learning)
    return made


def _drawable(spending: Spending) -> bool:
    costs = [stage.epsilon for stage in spending.stages] + [spending.together]
    return bool(spending.stages) and all(math.isfinite(cost) for cost in costs)


def _budget(spending: Spending) -> Chart:
    costs = [(f"{stage.name}, alone", stage.epsilon) for stage in spending.stages]
    costs.append(("added up", spending.added_up))
    costs.append(("together: what counts as spent", spending.together))
    if spending.allowed is not None and spending.unspent is not None:
        costs += [("unspent", spending.unspent), ("the ledger's budget", spending.allowed)]
    return Chart(
        "budget-chart",
        "Bar chart of epsilon: the stages alone and added up, against both together.",
        {"rows": _budget_rows(spending)},
        ("part", f"ε at δ = {spending.delta:g}"),
        tuple((part, epsilon_text(cost)) for part, cost in costs),
    )


def _budget_rows(spending: Spending) -> Rows:
    """A row for each part of a bar. One stage alone needs no second bar to compare it with."""
    several = len(spending.stages) > 1
    rows: Rows = [
        {"account": "added up", "part": f"{stage.name}, alone", "epsilon": stage.epsilon}
        for stage in spending.stages
        if several
    ]
    spent = "spent, both stages" if several else spending.stages[0].name
    account = "together" if several else "spent"
    rows.append({"account": account, "part": spent, "epsilon": spending.together})
    if spending.unspent:
        rows.append({"account": account, "part": "unspent", "epsilon": spending.unspent})
    return rows


def _judged(name: str, axis: str, answers: Sequence[JudgedAnswer]) -> Chart:
    rows: Rows = [
        {"what": one.what, "estimate": one.estimate, "low": one.interval[0],
         "high": one.interval[1]} for one in answers
    ]  # fmt: skip
    return Chart(
        f"{name}-chart",
        f"Chart of what the judges say, with 95% intervals, by {axis}.",
        {"rows": rows, "axis": axis, "bounds": answers[0].bounds},
        ("asked", "estimate", "95% interval"),
        tuple(
            (
                one.what,
                "cannot tell" if one.estimate is None else f"{one.estimate:.4g}",
                "{:.4g} to {:.4g}".format(*one.interval),
            )
            for one in answers
        ),
    )


def _comparison(comparison: ComparedMethods) -> Chart:
    table = [
        (
            method.name,
            _epsilon_label(method.epsilon),
            "–" if method.delta is None else f"{method.delta:g}",
            f"{method.score:.3f}",
            "–" if method.interval is None else "{:.3f} to {:.3f}".format(*method.interval),
            "–" if method.mean_return is None else f"{method.mean_return:.4g}",
            method.note or "–",
        )
        for method in comparison.methods
    ]
    return Chart(
        "comparison-chart",
        "Chart of scores with 95% intervals by epsilon, one colour for each method.",
        {"rows": _comparison_rows(comparison)},
        ("method", "ε", "δ", "score", "95% interval", "mean return", "note"),
        tuple(table),
    )


def _comparison_rows(comparison: ComparedMethods) -> Rows:
    """A row for each mean, which is a bound where it is not private, and one for each seed."""
    rows: Rows = []
    for method in comparison.methods:
        low, high = method.interval or (method.score, method.score)
        own = {"method": method.name, "epsilon": _epsilon_label(method.epsilon)}
        kind = "bound" if method.epsilon is None else "mean"
        rows.append({**own, "score": method.score, "low": low, "high": high, "kind": kind})
        if method.epsilon is not None:
            rows += [
                {**own, "score": score, "seed": seed, "kind": "seed"}
                for seed, score in enumerate(method.scores, start=1)
            ]
    return rows


def _epsilon_label(epsilon: float | None) -> str:
    return "not private" if epsilon is None else f"{epsilon:g}"


def _prefixes(prefixes: Prefixes) -> Chart:
    width = -(-prefixes.longest // MOST_BARS)
    rows: Rows = []
    for first in range(1, prefixes.longest + 1, width):
        steps = f"{first}" if width == 1 else f"{first}–{first + width - 1}"
        rows.append({"first": first, "steps": steps, "count": 0})
    for length, count in prefixes.counts:
        rows[(length - 1) // width]["count"] += count
    return Chart(
        "prefixes-chart",
        "Bar chart of how many released prefixes have how many steps.",
        {"rows": rows, "width": width},
        ("steps", "prefixes"),
        tuple((f"{length:,}", f"{count:,}") for length, count in _thinned(prefixes.counts)),
    )


def _learning(curve: LearningCurve) -> Chart:
    return Chart(
        "learning-chart",
        "Line chart of the loss on released data by training step.",
        {"rows": [{"step": step, "loss": loss} for step, loss in curve.points]},
        ("step", "loss on released data"),
        tuple((f"{step:,.0f}", f"{loss:.4g}") for step, loss in _thinned(curve.points)),
    )


def _thinned(rows: Iterable[Any]) -> Sequence[Any]:
    """At most so many rows as a reader wants, the first and the last among them."""
    found = list(rows)
    if len(found) <= TABLE_ROWS:
        return found
    last = len(found) - 1
    return [found[round(place * last / (TABLE_ROWS - 1))] for place in range(TABLE_ROWS)]
