"""make deletes an environment only if it made it."""

import shutil
import subprocess
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).parents[1] / "Makefile"

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")


def run_make(folder: Path, target: str) -> subprocess.CompletedProcess[str]:
    (folder / "requirements.lock").touch()
    (folder / "pyproject.toml").touch()
    words = ["make", "--silent", f"--file={MAKEFILE}", target, "VENV=environment"]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("target", ["clean", "environment/.installed"])
def test_an_environment_of_somebody_else_stays(tmp_path: Path, target: str) -> None:
    kept = tmp_path / "environment" / "pyvenv.cfg"
    kept.parent.mkdir()
    kept.write_text("mine")
    done = run_make(tmp_path, target)
    assert done.returncode == 2
    assert "'environment' is not an environment that make made" in done.stderr
    assert kept.read_text() == "mine"


@pytest.mark.parametrize("marker", [".made-by-make", ".installed"])
def test_its_own_is_removed(tmp_path: Path, marker: str) -> None:
    (tmp_path / "environment").mkdir()
    (tmp_path / "environment" / marker).touch()
    assert run_make(tmp_path, "clean").returncode == 0
    assert not (tmp_path / "environment").exists()
