"""The demo, with experts that are made in no time and trainings of a few steps."""

import json
from pathlib import Path
from typing import Any

import pytest
from cartpole import alike
from commands import Quorum

from quorum_rl.budget import read_ledger
from quorum_rl.cli import demo, expert_training
from quorum_rl.cli.demo import EXPERTS
from quorum_rl.cli.experts import Train
from quorum_rl.experts import save_population
from quorum_rl.pipeline import FitSettings

FEW = FitSettings(private_steps=3, local_steps=2, transitions_per_expert=1)


def save_alike(command: Train) -> None:
    save_population(alike(EXPERTS, 4), command.out)


@pytest.fixture(name="quick")
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expert_training, "train", save_alike)
    monkeypatch.setattr(demo, "LOCAL", FEW)
    monkeypatch.setattr(demo, "STEPS", 3)
    monkeypatch.setattr(demo, "EPISODES", 2)
    monkeypatch.setattr(demo, "TRAJECTORIES", 8)


@pytest.mark.usefixtures("quick")
def test_the_demo_ends_in_a_table_and_a_report_and_can_be_repeated(
    tmp_path: Path, quorum: Quorum
) -> None:
    """The second time in the same folder, whose first run it replaces."""
    found: list[dict[str, Any]] = []
    for _ in range(2):
        said = quorum("demo", "--folder", tmp_path)
        found.append(json.loads((tmp_path / "cartpole" / "comparison.json").read_text()))
        names = [method["name"] for method in found[-1]["methods"]]
        assert names == ["local updates", "DP-SGD", "non-private"]
        assert all(name in said for name in names)
        report = tmp_path / "cartpole" / "report.html"
        assert report.name in said
        assert "local updates" in report.read_text()
    assert found[0] == found[1]
    record = read_ledger(tmp_path / "cartpole" / "ledger.jsonl")
    assert record.kind == "research"
    assert len(record.charges) == 1  # the training of one demo


def test_a_file_where_the_folder_should_be_is_left_alone(tmp_path: Path, quorum: Quorum) -> None:
    file = tmp_path / "demo"
    file.write_text("mine")
    said = quorum.refused("demo", "--folder", file)
    assert "is a file: give a folder with --folder" in said
    assert file.read_text() == "mine"


def test_a_folder_with_files_of_another_run_is_left_alone(tmp_path: Path, quorum: Quorum) -> None:
    """`--folder runs`, where runs/cartpole is real: only its ledger knows what was spent."""
    run = tmp_path / "cartpole"
    run.mkdir()
    for name in ("config.json", "ledger.jsonl"):
        (run / name).write_text("mine")
    said = quorum.refused("demo", "--folder", tmp_path)
    assert "has files that no demo made: give a new folder" in said
    found = {path.name: path.read_text() for path in run.iterdir()}
    assert found == {"config.json": "mine", "ledger.jsonl": "mine"}
    assert list(tmp_path.iterdir()) == [run]
