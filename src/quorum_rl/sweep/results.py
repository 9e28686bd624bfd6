"""What programs found, on the disk as soon as each ends, and the winner of all of them."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from quorum_rl.budget import Certificate
from quorum_rl.files import write_json
from quorum_rl.learners import learner_to_json
from quorum_rl.pipeline import Progress, RunFolder
from quorum_rl.policy import Policy
from quorum_rl.privacy import Event, event_to_json
from quorum_rl.sweep.programs import Found, Inputs, Judged, Spread
from quorum_rl.sweep.table import save_judged
from quorum_rl.sweep.trials import Program, Trial


def results_of(place: RunFolder) -> Path:
    """The folder of what programs found: there once one may have run."""
    return place.private / "programs"


def run_left(
    inputs: Inputs,
    programs: Sequence[Program],
    results: Path,
    spread: Spread,
    progress: Progress | None,
) -> None:
    """Run all programs that have not ended before; each result is on the disk when it ends."""
    left = [program for program in programs if not judged_file(results, program.number).exists()]
    for found in spread(inputs, left, progress):
        _save(found, results)


def judged_file(results: Path, number: int) -> Path:
    return results / f"{number:05d}.parquet"


def policy_file(results: Path, number: int) -> Path:
    return results / f"{number:05d}.safetensors"


def _save(found: Found, results: Path) -> None:
    if found.best is not None:
        found.best.save(policy_file(results, found.program))
    save_judged(found.judged, judged_file(results, found.program))  # last: it says that all is


def write_winner(
    folder: Path,
    trial: Trial,
    judged: Judged,
    policy: Policy,
    made: Certificate | None,
    events: Sequence[Event],
) -> None:
    assert trial.plan is not None
    digest = None
    if made is not None:
        path = folder / "certificate.json"
        write_json(path, json.loads(made.to_json()))
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    facts = {
        "choices": trial.choices,
        "score": judged.score,
        "settings": trial.plan.settings.to_json(),
        "learner": learner_to_json(trial.plan.learner),
        "events": [event_to_json(event) for event in events],
    }
    write_json(folder / "config.json", facts)
    replace(policy, certificate=digest).save(folder / "policy.safetensors")
