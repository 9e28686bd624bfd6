"""`quorum report` as somebody types it."""

import json
from pathlib import Path

import pytest

from quorum_rl.cli.report import Report
from quorum_rl.errors import QuorumError


def test_the_command_writes_a_page_and_replaces_it_only_when_told(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Report(run_folder).run()
    assert "report.html" in capsys.readouterr().out
    page = run_folder / "report.html"
    assert page.stat().st_size > 500_000
    page.write_text("old")
    with pytest.raises(QuorumError, match="exists already"):
        Report(run_folder).run()
    assert page.read_text() == "old"
    Report(run_folder, overwrite=True).run()
    assert page.stat().st_size > 500_000


def test_json_gives_the_facts_and_writes_nothing(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(run_folder.iterdir())
    Report(run_folder, json=True).run()
    facts = json.loads(capsys.readouterr().out)
    assert facts["learned"]["minimum_experts"] == 2999
    assert facts["guarantee"]["certificate"]["delta"] == 3e-4
    assert sorted(run_folder.iterdir()) == before


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(QuorumError, match="no folder"):
        Report(tmp_path / "nothing").run()
