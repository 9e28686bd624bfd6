"""A run folder of one's own for every test that changes one."""

import shutil
from pathlib import Path

import pytest
from reported_runs import write_run


@pytest.fixture(scope="session")
def written_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Written once, and not to be changed."""
    return write_run(tmp_path_factory.mktemp("runs") / "cartpole")


@pytest.fixture
def run_folder(written_run: Path, tmp_path: Path) -> Path:
    """A copy without the policy, because drawing its episode takes longest."""
    without = shutil.ignore_patterns("policy.safetensors")
    return Path(shutil.copytree(written_run, tmp_path / "cartpole", ignore=without))
