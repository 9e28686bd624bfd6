"""Fits that are interrupted: they go on without paying again, in the same bits."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fits import LONG, SETTINGS, Crowd, fitted, interrupted, named

from quorum_rl.budget import read_ledger
from quorum_rl.errors import QuorumError
from quorum_rl.pipeline import training_stage
from quorum_rl.policy import Policy

CHILD = Path(__file__).parents[1] / "support" / "killed_fit.py"


def charges(folder: Path) -> int:
    return len(read_ledger(folder / "ledger.jsonl").charges)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"settings": replace(SETTINGS, learning_rate=0.5)},
            r"settings\.learning_rate = 0\.001, not 0\.5",
        ),
        ({"epsilon": 4.0}, r"epsilon = 5\.0, not 4\.0"),
        ({"seed": None}, "reproducible = True, not False"),
        ({"seed": 2}, "begun with another seed"),
        ({"learner": "bc"}, "learner.alpha = 1.0, not None"),
    ],
)
def test_another_run_in_the_folder_of_an_interrupted_one_is_refused_and_the_difference_named(
    change: dict[str, Any],
    says: str,
    everyone: Crowd,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, folder = named(everyone, f"changed {says}"), tmp_path / "run"
    interrupted(one, folder, "quorum_rl.pipeline.run.pay_for_steps", monkeypatch)
    before = (folder / "ledger.jsonl").read_bytes()
    with pytest.raises(QuorumError, match=says):
        fitted(one, folder, **change)
    assert (folder / "ledger.jsonl").read_bytes() == before


def test_another_log_in_the_folder_of_an_interrupted_run_is_refused(
    everyone: Crowd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    interrupted(
        named(everyone, "this log"), folder, "quorum_rl.pipeline.run.pay_for_steps", monkeypatch
    )
    with pytest.raises(QuorumError, match=r"declared\.identity = this log, not that log"):
        fitted(named(everyone, "that log"), folder)


@pytest.mark.parametrize(
    ("name", "there", "says"),
    [
        (
            "quorum_rl.pipeline.context.this_machine",
            "abacus",
            r"rounding\.machine = .*, not abacus",
        ),
        (
            "quorum_rl.pipeline.context._libraries",
            "counting rods",
            r"rounding\.libraries = numpy .*, scipy .*, not counting rods",
        ),
        (
            "quorum_rl.pipeline.context._threads",
            "an abbot",
            r"rounding\.threads = .*, not an abbot",
        ),
        ("quorum_rl.pipeline.context._flags", ["fast"], r"rounding\.flags = .*, not \['fast'\]"),
        ("quorum_rl.pipeline.private_steps.default_chunk", 16, r"rounding\.chunk = \d+, not 16"),
    ],
)
def test_a_run_does_not_go_on_where_its_sums_would_round_otherwise(
    name: str,
    there: Any,
    says: str,
    everyone: Crowd,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Steps that are taken again would add the same noise to other sums: their difference has
    none."""
    one, folder = named(everyone, says), tmp_path / "run"
    interrupted(one, folder, "quorum_rl.pipeline.training_stage.fresh", monkeypatch)
    monkeypatch.setattr(name, lambda *_: there)
    with pytest.raises(QuorumError, match=says):
        fitted(one, folder)


def test_a_state_that_was_damaged_is_refused(
    everyone: Crowd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, folder = named(everyone, "damaged"), tmp_path / "run"
    monkeypatch.setattr(training_stage, "SECONDS_BETWEEN_SAVES", 0.0)
    interrupted(one, folder, "quorum_rl.budget.Budget.certificate", monkeypatch)
    kept = folder / "private" / "standing.safetensors"
    kept.write_bytes(kept.read_bytes()[:-4])
    with pytest.raises(QuorumError, match="not a whole safetensors file"):
        fitted(one, folder)


def test_a_run_killed_at_random_moments_ends_in_the_same_bits_with_the_same_certificate(
    everyone: Crowd, tmp_path: Path, state: Path
) -> None:
    """Twice SIGKILL, in processes of their own: once about when training starts, once within it."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "killed"
    killed(folder, lambda line: line.startswith("released"), rng.uniform(0, 0.5))
    assert 1 <= charges(folder) <= 2
    steps = int(rng.integers(1, 7)) * 250
    killed(folder, lambda line: line == f"taken {steps}", rng.uniform(0, 0.03))
    assert charges(folder) == 2
    assert (folder / "private" / "standing.safetensors").exists()
    told = killed(folder, lambda _: False, 0.0)
    assert told[-1] == "finished"
    first = next(line for line in told if line.startswith("taken"))
    assert int(first.split()[1]) >= steps  # it went on, and did not start again

    shutil.rmtree(state)  # or the log would belong to the first run's ledger
    whole = fitted(named(everyone, "a log"), tmp_path / "whole", settings=LONG)
    saved = Policy.load(folder / "policy.safetensors").networks["action_values"]
    for found, wanted in zip(saved, whole.policy.networks["action_values"], strict=True):
        np.testing.assert_array_equal(found.weight, wanted.weight)
        np.testing.assert_array_equal(found.bias, wanted.bias)
    assert (folder / "metrics.jsonl").read_text() == (whole.folder / "metrics.jsonl").read_text()
    assert charges(folder) == 2
    assert not (folder / "private").exists()
    assert _comparable(folder) == _comparable(whole.folder)


def killed(folder: Path, when: Callable[[str], bool], seconds_later: float) -> list[str]:
    """Run the fit in a process, kill it so long after a line; what it said until then."""
    command = [sys.executable, str(CHILD), str(folder)]
    told = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            told.append(line.strip())
            if when(told[-1]):
                time.sleep(seconds_later)
                process.send_signal(signal.SIGKILL)
                break
        process.stdout.read()
        ended = process.wait()
    assert ended == (0 if told[-1] == "finished" else -signal.SIGKILL)
    return told


def _comparable(folder: Path) -> Any:
    """A certificate without the names and times that are each run's own."""
    made = json.loads((folder / "certificate.json").read_text())
    for name in ("identity", "ledger_head"):
        del made[name]
    for event in made["events"]:
        del event["run"], event["at"]
    return made
