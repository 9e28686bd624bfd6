"""What a sweep found, on the disk: of each program as soon as it ends, then the table, the picture
and the winner."""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from quorum_rl.budget import Certificate
from quorum_rl.envs import save_figure
from quorum_rl.evaluation import summarise
from quorum_rl.files import replacing, write_json
from quorum_rl.json_files import reading
from quorum_rl.learners import learner_to_json
from quorum_rl.logs import read_parquet
from quorum_rl.pipeline import FitPlan
from quorum_rl.policy import Policy
from quorum_rl.privacy import Event, event_to_json
from quorum_rl.sweep.programs import Found, TrialResult
from quorum_rl.sweep.trials import Program, Trial

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


def has_ended(program: Program, folder: Path) -> bool:
    """Whether the folder holds what a program found."""
    return _judged_file(folder, program.number).exists()


def save_found(found: Found, folder: Path) -> None:
    """Keep what a program found."""
    if found.best is not None:
        found.best.save(policy_file(folder, found.program))
    rows = [asdict(result) for result in found.judged]
    # The last to be written: it says that all is there.
    _write(pa.Table.from_pylist(rows, SHAPE), _judged_file(folder, found.program))


def read_judged(program: Program, folder: Path) -> list[TrialResult]:
    """How the trials of a program did, as `save_found` kept it.

    Raises:
        QuorumError: if the file is damaged or another.
    """
    path = _judged_file(folder, program.number)
    with reading(path, "quorum sweep"):
        table = read_parquet(path)
        if not table.schema.equals(SHAPE):
            raise ValueError("its columns are not those of judged trials")
        return [
            TrialResult(
                row["number"],
                tuple(row["scores"]),
                tuple(row["returns"]),
                tuple(row["released"]),
                row["reason"],
            )
            for row in table.to_pylist()
        ]


def _judged_file(folder: Path, number: int) -> Path:
    return folder / f"{number:05d}.parquet"


def policy_file(folder: Path, number: int) -> Path:
    return folder / f"{number:05d}.safetensors"


def _write(table: pa.Table, path: Path) -> None:
    with replacing(path) as temporary:
        pq.write_table(table, temporary)


def write_winner(
    folder: Path,
    trial: Trial,
    result: TrialResult,
    policy: Policy,
    made: Certificate | None,
    events: Sequence[Event],
) -> None:
    """The certificate, the configuration and the policy of the best trial; the policy last."""
    digest, plan = None, trial.feasible
    if made is not None:
        path = folder / "certificate.json"
        write_json(path, json.loads(made.to_json()))
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    facts = {
        "choices": trial.choices,
        "score": result.score,
        "settings": plan.settings.to_json(),
        "learner": learner_to_json(plan.learner),
        "events": [event_to_json(event) for event in events],
    }
    write_json(folder / "config.json", facts)
    replace(policy, certificate=digest).save(folder / "policy.safetensors")


def save_table(trials: Sequence[Trial], judged: Sequence[TrialResult], path: Path) -> None:
    """One row for each trial: what it chose, what it cost by itself, how it did."""
    rows = [_row(trial, result) for trial, result in zip(trials, judged, strict=True)]
    _write(pa.Table.from_pylist(rows), path)


def _row(trial: Trial, result: TrialResult) -> dict[str, Any]:
    scores, plan = result.scores, trial.plan
    summary = summarise(scores) if scores else None
    interval = None if summary is None else summary.mean_interval
    return {
        "trial": trial.number,
        **trial.choices,
        **({} if plan is None else _cost(plan)),
        "score": None if summary is None else summary.mean,
        "score_low": None if interval is None else interval.low,
        "score_high": None if interval is None else interval.high,
        "mean_return": sum(result.returns) / len(scores) if result.returns else None,
        "scores": list(scores),
        "released": list(result.released),
        "private_steps": None if plan is None else plan.private_steps,
        "plain_steps": None if plan is None else plan.plain_steps,
        "noise_multiplier": getattr(plan and plan.private, "noise_multiplier", None),
        "reason": result.reason,
    }


def _cost(plan: FitPlan) -> dict[str, float | None]:
    free = plan.settings.method == "non-private"
    return {"epsilon": None if free else plan.epsilon, "delta": None if free else plan.delta}


def save_picture(trials: Sequence[Trial], judged: Sequence[TrialResult], path: Path) -> None:
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
        _draw(panel, name, [(trial.choices[name], result.score) for trial, result in ran])
        if best is not None:
            x = _places([trial.choices[name] for trial, _ in ran])[0][best[0].choices[name]]
            panel.plot([x], [best[1].score], "o", mfc="none", ms=11, color="tab:red", label="best")
    for panel in panels[len(names) :]:
        panel.set_visible(False)
    in_a_world = any(result.returns for result in judged)
    figure.supylabel(IN_A_WORLD if in_a_world else ON_RELEASED, fontsize="medium")
    with replacing(path) as temporary:
        save_figure(figure, temporary)


def _draw(panel: "Axes", name: str, points: Sequence[tuple[Any, float]]) -> None:
    values = [value for value, _ in points]
    where, labels = _places(values)
    panel.plot([where[value] for value in values], [score for _, score in points], "o", alpha=0.6)
    panel.set_xlabel(name.replace("_", " "))
    panel.grid(alpha=0.3)
    numbers = [value for value in values if _is_number(value)]
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
    return {value: float(place) for place, value in enumerate(names)}, [str(name) for name in names]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
