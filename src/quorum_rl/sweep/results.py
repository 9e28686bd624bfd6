"""What a sweep found, on the disk: of each program as soon as it ends, then the table and the
winner."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from quorum_rl.budget import Certificate
from quorum_rl.evaluation import summarise
from quorum_rl.files import replacing, write_json
from quorum_rl.json_files import reading
from quorum_rl.learners import learner_to_json
from quorum_rl.logs import read_parquet
from quorum_rl.pipeline import FitPlan, write_certificate
from quorum_rl.policy import Policy
from quorum_rl.privacy import Event, event_to_json
from quorum_rl.sweep.programs import Found, TrialResult
from quorum_rl.sweep.trials import Program, Trial

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
    digest, plan = write_certificate(folder, made), trial.feasible
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
