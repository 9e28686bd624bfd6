"""What a sweep found, as one Parquet table and one picture."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from quorum_rl.envs import save_figure
from quorum_rl.evaluation import summarise
from quorum_rl.files import replacing
from quorum_rl.sweep.programs import Judged
from quorum_rl.sweep.trials import Trial

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS_IN_A_ROW: Final = 3
MOST_LABELS: Final = 6  # on a log axis of a panel
WIDE: Final = 100  # from the least to the greatest: beyond it powers of ten are labels enough
IN_A_WORLD: Final = "score (0 random, 1 reference)"
ON_RELEASED: Final = "agreement with released actions"
SHAPE: Final = pa.schema(
    [
        ("number", pa.int64()),
        ("scores", pa.list_(pa.float64())),
        ("returns", pa.list_(pa.float64())),
        ("released", pa.list_(pa.int64())),
        ("reason", pa.string()),
    ]
)


def save_judged(judged: Sequence[Judged], path: Path) -> None:
    """How the trials of one program did."""
    rows = [{name: getattr(one, name) for name in SHAPE.names} for one in judged]
    _write(pa.Table.from_pylist(rows, SHAPE), path)


def read_judged(path: Path) -> list[Judged]:
    """What `save_judged` wrote."""
    rows = pq.read_table(path).to_pylist()
    return [
        Judged(
            row["number"],
            tuple(row["scores"]),
            tuple(row["returns"]),
            tuple(row["released"]),
            row["reason"],
        )
        for row in rows
    ]


def save_table(trials: Sequence[Trial], judged: Sequence[Judged], path: Path) -> None:
    """One row for each trial: what it chose, what it cost by itself, how it did."""
    rows = [_row(trial, one) for trial, one in zip(trials, judged, strict=True)]
    _write(pa.Table.from_pylist(rows), path)


def _row(trial: Trial, judged: Judged) -> dict[str, Any]:
    plan, scores = trial.plan, judged.scores
    summary = summarise(scores) if scores else None
    interval = None if summary is None else summary.mean_interval
    noise = None if plan is None or plan.private is None else plan.private.noise_multiplier
    facts: dict[str, Any] = {"trial": trial.number, **trial.choices}
    if plan is not None:
        private = plan.settings.method != "non-private"
        facts["epsilon"] = plan.epsilon if private else None
        facts["delta"] = plan.delta if private else None
    return facts | {
        "score": None if summary is None else summary.mean,
        "score_low": None if interval is None else interval.low,
        "score_high": None if interval is None else interval.high,
        "mean_return": sum(judged.returns) / len(scores) if judged.returns else None,
        "scores": list(scores),
        "released": list(judged.released),
        "private_steps": None if plan is None else plan.private_steps,
        "plain_steps": None if plan is None else plan.plain_steps,
        "noise_multiplier": noise,
        "reason": judged.reason,
    }


def _write(table: pa.Table, path: Path) -> None:
    with replacing(path) as temporary:
        pq.write_table(table, temporary)


def save_picture(
    trials: Sequence[Trial], judged: Sequence[Judged], path: Path, score: str = IN_A_WORLD
) -> None:
    """The score against each thing that was chosen, with the best trial marked."""
    from matplotlib.figure import Figure

    names = list(trials[0].choices)
    ran = [pair for pair in zip(trials, judged, strict=True) if pair[1].scores]
    rows = math.ceil(len(names) / PANELS_IN_A_ROW)
    width = min(len(names), PANELS_IN_A_ROW)
    figure = Figure(figsize=(4 * width, 3.2 * rows), layout="constrained")
    panels = figure.subplots(rows, width, squeeze=False, sharey=True).ravel()
    best = max(ran, key=lambda pair: pair[1].score, default=None)
    for name, panel in zip(names, panels, strict=False):
        _draw(panel, name, [(trial.choices[name], one.score) for trial, one in ran])
        if best is not None:
            x = _places([trial.choices[name] for trial, _ in ran])[0][best[0].choices[name]]
            panel.plot([x], [best[1].score], "o", mfc="none", ms=11, color="tab:red", label="best")
    for panel in panels[len(names) :]:
        panel.set_visible(False)
    figure.supylabel(score, fontsize="medium")
    with replacing(path) as temporary:
        save_figure(figure, temporary)


def _draw(panel: "Axes", name: str, points: Sequence[tuple[Any, float]]) -> None:
    where, labels = _places([value for value, _ in points])
    panel.plot(
        [where[value] for value, _ in points], [score for _, score in points], "o", alpha=0.6
    )
    panel.set_xlabel(name.replace("_", " "))
    panel.grid(alpha=0.3)
    numbers = [value for value, _ in points if _is_number(value)]
    if labels:
        panel.set_xticks(range(len(labels)), labels)
    elif numbers and min(numbers) > 0 and max(numbers) >= 10 * min(numbers):
        _scale(panel, max(numbers) / min(numbers))


def _scale(panel: "Axes", ratio: float) -> None:
    """A log scale with so few labels that they do not touch: Matplotlib's own has them in rows."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    panel.set_xscale("log")
    subs = (1.0, 3.0) if ratio <= WIDE else (1.0,)
    panel.xaxis.set_major_locator(LogLocator(subs=subs, numticks=MOST_LABELS))
    panel.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.tick_params(axis="x", labelsize="small")


def _places(values: Sequence[Any]) -> tuple[dict[Any, float], list[str]]:
    """Where each value is drawn; with labels if they are no numbers."""
    if all(_is_number(value) for value in values):
        return {value: float(value) for value in values}, []
    names = list(dict.fromkeys(values))
    return {value: float(place) for place, value in enumerate(names)}, [str(one) for one in names]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
