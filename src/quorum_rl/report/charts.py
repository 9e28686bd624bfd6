"""The charts of a report, as Vega-Lite specifications with the numbers in a table beside them.

Colours are CSS variables of the page, so a chart follows it into the dark and onto paper. Legends
are switches: clicking an entry takes it out of the chart, clicking it again brings it back.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import altair as alt

from quorum_rl.report.facts import (
    Agreement,
    ComparedMethods,
    LearningCurve,
    Missing,
    Prefixes,
    RunReport,
    Spending,
    epsilon_text,
)

INK, MUTED, LINE = "var(--ink)", "var(--muted)", "var(--line)"
BLUE, ORANGE, GREEN, PURPLE = "var(--blue)", "var(--orange)", "var(--green)", "var(--purple)"
MOST_BARS: Final = 30
TABLE_ROWS: Final = 20  # of a chart's table; a longer one is thinned out
LEAST_SHARE: Final = 1e-4  # of the experts that is drawn
PART_COLOURS: Final = {
    "release, alone": BLUE,
    "private steps, alone": ORANGE,
    "spent, both stages": PURPLE,
    "release": BLUE,
    "private steps": ORANGE,
    "unspent": LINE,
}
METHOD_COLOURS: Final = {"selective": BLUE, "dp-sgd": ORANGE, "non-private": GREEN}

Rows = list[dict[str, Any]]
Spec = dict[str, Any]


@dataclass(frozen=True)
class Chart:
    """A chart with what stands for it where it cannot be seen: a sentence and a table."""

    id: str
    label: str
    spec: Spec
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def charts_of(report: RunReport) -> dict[str, Chart]:
    """The charts of those parts of a report that are there, by the names of their sections."""
    made = {}
    if not isinstance(report.spending, Missing) and _drawable(report.spending):
        made["budget"] = _budget(report.spending)
    if not isinstance(report.comparison, Missing):
        made["comparison"] = _comparison(report.comparison)
    if not isinstance(report.prefixes, Missing):
        made["prefixes"] = _prefixes(report.prefixes)
    if not isinstance(report.learning, Missing):
        made["learning"] = _learning(report.learning)
    if report.agreement is not None:
        made["agreement"] = _agreement(report.agreement)
    return made


def _drawable(spending: Spending) -> bool:
    costs = [stage.epsilon for stage in spending.stages] + [spending.together]
    return bool(spending.stages) and all(math.isfinite(cost) for cost in costs)


def _budget(spending: Spending) -> Chart:
    """ε by stage: each alone and added up, against what both cost together."""
    rows = _budget_rows(spending)
    accounts = list(dict.fromkeys(row["account"] for row in rows))
    parts = [row["part"] for row in rows]
    chosen, colour = _switch("part", parts, [PART_COLOURS[part] for part in parts])
    chart = (
        _chart(rows)
        .transform_filter(chosen)
        .mark_bar(height=26, cornerRadius=2)
        .encode(
            x=alt.X("epsilon:Q", title="ε", stack="zero"),
            y=alt.Y("account:N", title=None, sort=accounts),
            color=colour,
            order="order:Q",
            tooltip=[_tip("part:N"), _tip("epsilon:Q", "ε", ".4f")],
        )
        .add_params(chosen)
    )
    costs = [(f"{stage.name}, alone", stage.epsilon) for stage in spending.stages]
    costs += [
        ("added up", spending.added_up),
        ("together: what counts as spent", spending.together),
    ]
    if spending.allowed is not None and spending.unspent is not None:
        costs += [("unspent", spending.unspent), ("the ledger's budget", spending.allowed)]
    return Chart(
        "budget-chart",
        "Bar chart of epsilon: the stages alone and added up, against both together.",
        _finished(chart, height=48 * len(accounts)),
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
    return [{**row, "order": order} for order, row in enumerate(rows)]


def _comparison(comparison: ComparedMethods) -> Chart:
    """Scores by ε: means with intervals and single seeds; what is not private as a band behind."""
    methods = comparison.methods
    names = list(dict.fromkeys(method.name for method in methods))
    chosen, colour = _switch("method", names, _method_colours(names))
    rows = _chart(_comparison_rows(comparison)).transform_filter(chosen)
    means = rows.transform_filter("datum.kind == 'mean'")
    bounds = rows.transform_filter("datum.kind == 'bound'")
    seeds = rows.transform_filter("datum.kind == 'seed'")
    low, score = alt.Y("low:Q", title="score"), alt.Y("score:Q", title="score")
    private = list(dict.fromkeys(method.name for method in methods if method.epsilon is not None))
    epsilons = sorted({method.epsilon for method in methods if method.epsilon is not None})
    at = {
        "x": alt.X(
            "epsilon:N",
            title="ε of the whole run",
            sort=[_epsilon_label(epsilon) for epsilon in epsilons],
            axis=alt.Axis(labelAngle=0),
            scale=alt.Scale(paddingInner=0.45, paddingOuter=0.3),
        ),
        "xOffset": alt.XOffset("method:N", sort=private, scale=alt.Scale(domain=private)),
        "color": colour,
    }
    shown = [_tip("method:N"), _tip("epsilon:N", "ε"), _tip("score:Q", "score", ".3f")]
    interval = [_tip("low:Q", "95% from", ".3f"), _tip("high:Q", "95% to", ".3f")]
    chart = alt.layer(
        _level(1.0, "reference policy"),
        _level(0.0, "random policy"),
        bounds.mark_rect(opacity=0.16).encode(
            y=low, y2="high:Q", color=colour, tooltip=shown + interval
        ),
        bounds.mark_rule(strokeWidth=2).encode(y=score, color=colour, tooltip=shown + interval),
        means.mark_rule(strokeWidth=2.5).encode(**at, y=low, y2="high:Q"),
        seeds.mark_tick(orient="horizontal", size=15, thickness=1.5, opacity=0.75).encode(
            **at, y=score, tooltip=[*shown, _tip("seed:O")]
        ),
        means.mark_point(size=110, filled=True, opacity=1)
        .encode(**at, y=score, tooltip=shown + interval)
        .add_params(chosen),
    )
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
        for method in methods
    ]
    return Chart(
        "comparison-chart",
        "Chart of scores with 95% intervals by epsilon, one colour for each method.",
        _finished(chart, height=280),
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


def _level(score: float, name: str) -> Any:
    """A dashed line with its name."""
    data = _chart([{"level": score, "name": name}])
    line = data.mark_rule(strokeDash=[4, 4], color=MUTED, opacity=0.7).encode(y="level:Q")
    label = data.mark_text(align="left", dy=-6, dx=3, color=MUTED, fontSize=11).encode(
        y="level:Q", x=alt.value(0), text="name:N"
    )
    return alt.layer(line, label)


def _epsilon_label(epsilon: float | None) -> str:
    return "not private" if epsilon is None else f"{epsilon:g}"


def _method_colours(names: Sequence[str]) -> list[str]:
    others = iter([PURPLE, MUTED, INK] * len(names))
    return [METHOD_COLOURS.get(name) or next(others) for name in names]


def _prefixes(prefixes: Prefixes) -> Chart:
    """How many prefixes have how many steps."""
    width = -(-prefixes.longest // MOST_BARS)
    rows: Rows = [
        {
            "first": first,
            "steps": f"{first}" if width == 1 else f"{first}–{first + width - 1}",
            "count": 0,
        }
        for first in range(1, prefixes.longest + 1, width)
    ]
    for length, count in prefixes.counts:
        rows[(length - 1) // width]["count"] += count
    most = max(row["count"] for row in rows)
    title = "steps in the prefix" + (f", {width} to a bar" if width > 1 else "")
    every = alt.Axis(values=list(range(most + 1)), format="d")
    ticks = every if most <= 5 else alt.Axis(format=",d")
    chart = (
        _chart(rows)
        .mark_bar(color=BLUE, cornerRadiusEnd=2)
        .encode(
            x=alt.X("first:O", title=title, axis=alt.Axis(labelAngle=0, labelOverlap="greedy")),
            y=alt.Y("count:Q", title="prefixes", axis=ticks),
            tooltip=[_tip("steps:N"), _tip("count:Q", "prefixes")],
        )
    )
    return Chart(
        "prefixes-chart",
        "Bar chart of how many released prefixes have how many steps.",
        _finished(chart, height=200),
        ("steps", "prefixes"),
        tuple((f"{length:,}", f"{count:,}") for length, count in _thinned(prefixes.counts)),
    )


def _learning(curve: LearningCurve) -> Chart:
    """The loss on released data by training step."""
    rows = [{"step": step, "loss": loss} for step, loss in curve.points]
    chart = (
        _chart(rows)
        .mark_line(color=BLUE, strokeWidth=1.6, point=len(rows) < 30)
        .encode(
            x=alt.X("step:Q", title="training step", axis=alt.Axis(format=",d")),
            y=alt.Y("loss:Q", title="loss on released data", scale=alt.Scale(zero=False)),
        )
    )
    near = alt.selection_point(nearest=True, on="pointerover", empty=False, fields=["step"])
    here = chart.mark_point(size=60, filled=True, color=BLUE).encode(
        opacity=alt.condition(near, alt.value(1), alt.value(0)),
        tooltip=[_tip("step:Q", "step", ",.0f"), _tip("loss:Q", "loss", ".4g")],
    )
    return Chart(
        "learning-chart",
        "Line chart of the loss on released data by training step.",
        _finished(alt.layer(chart, here.add_params(near)), height=220),
        ("step", "loss on released data"),
        tuple((f"{step:,.0f}", f"{loss:.4g}") for step, loss in _thinned(curve.points)),
    )


def _agreement(agreement: Agreement) -> Chart:
    """The share of experts who go along with a trajectory, by length. Diagnostics, not private."""
    lines = {"mean": agreement.mean, "median": agreement.median}
    rows: Rows = [
        {"steps": steps, "share": max(share, LEAST_SHARE), "line": line}
        for line, shares in lines.items()
        for steps, share in zip(agreement.steps, shares, strict=True)
    ]
    band = [
        {"steps": steps, "low": max(low, LEAST_SHARE), "high": max(high, LEAST_SHARE)}
        for steps, low, high in zip(agreement.steps, agreement.low, agreement.high, strict=True)
    ]
    chosen, colour = _switch("line", list(lines), [ORANGE, BLUE])
    across = alt.X("steps:Q", title="steps in the prefix", scale=alt.Scale(type="log", nice=False))
    share: Spec = {
        "scale": alt.Scale(type="log", domain=[LEAST_SHARE, 1]),
        "title": "share of the experts",
        "axis": alt.Axis(values=[1, 0.1, 0.01, 0.001, LEAST_SHARE]),
    }
    area = _chart(band).mark_area(color=BLUE, opacity=0.15)
    curves = _chart(rows).transform_filter(chosen).mark_line(strokeWidth=1.8)
    tips = [_tip("line:N", "curve"), _tip("steps:Q"), _tip("share:Q", "share", ".4f")]
    chart = alt.layer(
        area.encode(x=across, y=alt.Y("low:Q", **share), y2="high:Q"),
        curves.encode(x=across, y=alt.Y("share:Q", **share), color=colour, tooltip=tips).add_params(
            chosen
        ),
    )
    table = _thinned(zip(agreement.steps, agreement.mean, agreement.median, strict=True))
    return Chart(
        "agreement-chart",
        "Line chart of the share of experts who go along with a trajectory, by its length.",
        _finished(chart, height=240),
        ("steps", "mean share", "median share"),
        tuple((f"{steps:,}", f"{mean:.4f}", f"{median:.4f}") for steps, mean, median in table),
    )


def _thinned(rows: Iterable[Any]) -> Sequence[Any]:
    """At most so many rows as a reader wants, the first and the last among them."""
    found = list(rows)
    if len(found) <= TABLE_ROWS:
        return found
    last = len(found) - 1
    return [found[round(place * last / (TABLE_ROWS - 1))] for place in range(TABLE_ROWS)]


def _chart(rows: Rows) -> alt.Chart:
    return alt.Chart(alt.InlineData(values=rows))


def _tip(field: str, title: str | None = None, form: str | None = None) -> alt.Tooltip:
    """What pointing at a mark shows of a field; its title is its name unless told."""
    more: Spec = {} if form is None else {"format": form}
    return alt.Tooltip(field, title=title or field.partition(":")[0], **more)


def _switch(
    field: str, names: Sequence[str], colours: Sequence[str]
) -> tuple[alt.Parameter, alt.Color]:
    """A legend in which each entry can be clicked away and back; all are there at first."""
    chosen = alt.selection_point(
        name=f"shown_{field}",
        fields=[field],
        bind="legend",
        toggle="true",
        value=[{field: name} for name in names],
        empty=False,
    )
    # With its domain fixed, the legend keeps the entries that are clicked away.
    scale = alt.Scale(domain=list(names), range=list(colours))
    legend = alt.Legend(orient="top", title=None, columns=2)  # a phone has no room for 3
    return chosen, alt.Color(f"{field}:N", scale=scale, legend=legend)


def _finished(chart: Any, *, height: int) -> Spec:
    """The specification, as wide as its place; `charts.js` gives it the page's typography."""
    made = chart.properties(width="container", height=height, background="transparent")
    spec: Spec = made.to_dict()
    for name in ("$schema", "config"):  # an address, though nobody fetches it; Altair's own sizes
        spec.pop(name, None)
    return spec | {"autosize": {"type": "fit-x", "contains": "padding"}}
