"""The charts of a report, as Vega-Lite specifications.

Colours are CSS variables of the page, so a chart follows it into the dark and onto paper. Legends
are switches: clicking an entry takes it out of the chart, clicking it again brings it back.
"""

from collections.abc import Sequence
from typing import Any, Final

import altair as alt

from quorum_rl.report.facts import Agreement, Comparison, LearningCurve, Prefixes, Spending

INK, MUTED, LINE = "var(--ink)", "var(--muted)", "var(--line)"
BLUE, ORANGE, GREEN, PURPLE = "var(--blue)", "var(--orange)", "var(--green)", "var(--purple)"
MOST_BARS: Final = 30
LEAST_SHARE: Final = 1e-4  # of the experts that is drawn
FONT: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
NOT_PRIVATE: Final = "not private"
ADDED_UP, TOGETHER = "added up", "together"
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


def budget_chart(spending: Spending) -> Spec:
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
            tooltip=[
                alt.Tooltip("part:N", title="part"),
                alt.Tooltip("epsilon:Q", title="ε", format=".4f"),
            ],
        )
        .add_params(chosen)
    )
    return _finished(chart, height=48 * len(accounts))


def _budget_rows(spending: Spending) -> Rows:
    """A row for each part of a bar. One stage alone needs no second bar to compare it with."""
    several = len(spending.stages) > 1
    rows: Rows = [
        {"account": ADDED_UP, "part": f"{stage.name}, alone", "epsilon": stage.epsilon}
        for stage in spending.stages
        if several
    ]
    spent = "spent, both stages" if several else spending.stages[0].name
    account = TOGETHER if several else "spent"
    rows.append({"account": account, "part": spent, "epsilon": spending.together})
    if spending.unspent:
        rows.append({"account": account, "part": "unspent", "epsilon": spending.unspent})
    return [{**row, "order": order} for order, row in enumerate(rows)]


def comparison_chart(comparison: Comparison) -> Spec:
    """Scores by ε: means with intervals and single seeds; what is not private as a band behind."""
    names = list(dict.fromkeys(method.name for method in comparison.methods))
    chosen, colour = _switch("method", names, _method_colours(names))
    rows = _chart(_comparison_rows(comparison)).transform_filter(chosen)
    means = rows.transform_filter("datum.kind == 'mean'")
    bounds = rows.transform_filter("datum.kind == 'bound'")
    seeds = rows.transform_filter("datum.kind == 'seed'")
    title = "score"
    low = alt.Y("low:Q", title=title)
    score = alt.Y("score:Q", title=title)
    private = list(dict.fromkeys(one.name for one in comparison.methods if one.epsilon is not None))
    at = {
        "x": alt.X(
            "epsilon:N",
            title="ε of the whole run",
            sort=_epsilons(comparison),
            axis=alt.Axis(labelAngle=0),
            scale=alt.Scale(paddingInner=0.45, paddingOuter=0.3),
        ),
        "xOffset": alt.XOffset("method:N", sort=private, scale=alt.Scale(domain=private)),
        "color": colour,
    }
    shown = [
        alt.Tooltip("method:N", title="method"),
        alt.Tooltip("epsilon:N", title="ε"),
        alt.Tooltip("score:Q", title="score", format=".3f"),
    ]
    interval = [
        alt.Tooltip("low:Q", title="95% from", format=".3f"),
        alt.Tooltip("high:Q", title="95% to", format=".3f"),
    ]
    one_seed = [*shown, alt.Tooltip("seed:O", title="seed")]
    chart = alt.layer(
        _level(1.0, "reference policy"),
        _level(0.0, "random policy"),
        bounds.mark_rect(opacity=0.16).encode(
            y=low, y2="high:Q", color=colour, tooltip=shown + interval
        ),
        bounds.mark_rule(strokeWidth=2).encode(y=score, color=colour, tooltip=shown + interval),
        means.mark_rule(strokeWidth=2.5).encode(**at, y=low, y2="high:Q"),
        seeds.mark_tick(orient="horizontal", size=15, thickness=1.5, opacity=0.75).encode(
            **at, y=score, tooltip=one_seed
        ),
        means.mark_point(size=110, filled=True, opacity=1)
        .encode(**at, y=score, tooltip=shown + interval)
        .add_params(chosen),
    )
    return _finished(chart, height=280)


def _comparison_rows(comparison: Comparison) -> Rows:
    """A row for each mean, which is a bound where it is not private, and one for each seed."""
    rows: Rows = []
    for method in comparison.methods:
        low, high = method.interval or (method.score, method.score)
        own = {"method": method.name, "epsilon": epsilon_label(method.epsilon)}
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


def _epsilons(comparison: Comparison) -> list[str]:
    """The columns of the chart, the smallest ε first."""
    found = {method.epsilon for method in comparison.methods if method.epsilon is not None}
    return [epsilon_label(epsilon) for epsilon in sorted(found)]


def epsilon_label(epsilon: float | None) -> str:
    return NOT_PRIVATE if epsilon is None else f"{epsilon:g}"


def _method_colours(names: Sequence[str]) -> list[str]:
    others = iter([PURPLE, MUTED, INK] * len(names))
    return [METHOD_COLOURS.get(name) or next(others) for name in names]


def prefixes_chart(prefixes: Prefixes) -> Spec:
    """How many prefixes have how many steps."""
    width = -(-prefixes.longest // MOST_BARS)
    rows: Rows = [
        {"first": first, "steps": _span(first, width), "count": 0}
        for first in range(1, prefixes.longest + 1, width)
    ]
    for length, count in prefixes.counts:
        rows[(length - 1) // width]["count"] += count
    most = max(row["count"] for row in rows)
    title = "steps in the prefix" + (f", {width} to a bar" if width > 1 else "")
    ticks = (
        alt.Axis(values=list(range(most + 1)), format="d") if most <= 5 else alt.Axis(format=",d")
    )
    chart = (
        _chart(rows)
        .mark_bar(color=BLUE, cornerRadiusEnd=2)
        .encode(
            x=alt.X("first:O", title=title, axis=alt.Axis(labelAngle=0, labelOverlap="greedy")),
            y=alt.Y("count:Q", title="prefixes", axis=ticks),
            tooltip=[
                alt.Tooltip("steps:N", title="steps"),
                alt.Tooltip("count:Q", title="prefixes"),
            ],
        )
    )
    return _finished(chart, height=200)


def _span(first: int, width: int) -> str:
    return f"{first}" if width == 1 else f"{first}–{first + width - 1}"


def learning_chart(curve: LearningCurve) -> Spec:
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
        tooltip=[
            alt.Tooltip("step:Q", title="step", format=",.0f"),
            alt.Tooltip("loss:Q", title="loss", format=".4g"),
        ],
    )
    return _finished(alt.layer(chart, here.add_params(near)), height=220)


def agreement_chart(agreement: Agreement) -> Spec:
    """The share of experts who go along with a trajectory, by length. Diagnostics, not private."""
    lines = ("mean", "median")
    rows: Rows = [
        {"steps": steps, "share": max(share, LEAST_SHARE), "line": line}
        for line, shares in zip(lines, (agreement.mean, agreement.median), strict=True)
        for steps, share in zip(agreement.steps, shares, strict=True)
    ]
    band = [
        {"steps": steps, "low": max(low, LEAST_SHARE), "high": max(high, LEAST_SHARE)}
        for steps, low, high in zip(agreement.steps, agreement.low, agreement.high, strict=True)
    ]
    chosen, colour = _switch("line", lines, [ORANGE, BLUE])
    scale = alt.Scale(type="log", domain=[LEAST_SHARE, 1])
    steps = alt.Scale(type="log", nice=False)
    decades = alt.Axis(values=[1, 0.1, 0.01, 0.001, LEAST_SHARE])
    x = alt.X("steps:Q", title="steps in the prefix", scale=steps)
    area = (
        _chart(band)
        .mark_area(color=BLUE, opacity=0.15)
        .encode(
            x=x,
            y=alt.Y("low:Q", scale=scale, title="share of the experts", axis=decades),
            y2="high:Q",
        )
    )
    curves = (
        _chart(rows)
        .transform_filter(chosen)
        .mark_line(strokeWidth=1.8)
        .encode(
            x=x,
            y=alt.Y("share:Q", scale=scale, title="share of the experts", axis=decades),
            color=colour,
            tooltip=[
                alt.Tooltip("line:N", title="curve"),
                alt.Tooltip("steps:Q", title="steps"),
                alt.Tooltip("share:Q", title="share", format=".4f"),
            ],
        )
        .add_params(chosen)
    )
    return _finished(alt.layer(area, curves), height=240)


def _chart(rows: Rows) -> alt.Chart:
    return alt.Chart(alt.InlineData(values=rows))


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
    """The specification in the page's typography, as wide as its place."""
    made = chart.properties(width="container", height=height, background="transparent")
    spec: Spec = made.to_dict()
    spec.pop("$schema", None)  # an address, though nobody fetches it
    spec["autosize"] = {"type": "fit-x", "contains": "padding"}
    spec["config"] = {
        "font": FONT,
        "view": {"stroke": None},
        "axis": {
            "labelColor": MUTED,
            "titleColor": MUTED,
            "labelFontSize": 12,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "titlePadding": 8,
            "gridColor": LINE,
            "domainColor": LINE,
            "tickColor": LINE,
            "labelPadding": 5,
        },
        "axisX": {"grid": False, "tickCount": 6},
        "axisY": {"domain": False, "ticks": False, "tickCount": 5},
        "legend": {
            "labelColor": INK,
            "labelFontSize": 12,
            "symbolType": "circle",
            "symbolStrokeWidth": 2,
            "symbolOpacity": 1,
            "symbolSize": 90,
            "rowPadding": 5,
            "columnPadding": 16,
            "offset": 10,
        },
    }
    return spec
