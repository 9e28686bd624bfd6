"""What is refused, and a population too small for privacy but large enough for a release."""

import shutil
from pathlib import Path

import pytest
from cartpole import under_the_pole
from remembered_plans import remembered_plans

from quorum_rl.cli.main import main
from quorum_rl.experts import save_population

__all__ = ["remembered_plans"]  # a fixture for all tests here

EXPERTS = 137
PLAN = ("--minimum-experts", "60", "--actions", "2", "--horizon", "8", "--epsilon", "20",
        "--delta", "1e-3", "--iterations", "4", "--objective", "threshold", "--p-min",
        "0.1")  # fmt: skip


@pytest.fixture(scope="session")
def experts_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("experts") / "experts.safetensors"
    save_population(under_the_pole(EXPERTS, spread=0.05), path)
    return path


@pytest.fixture(scope="session")
def collected(experts_file: Path) -> Path:
    """Their demonstrations, with the floor 0.1 and at most 8 steps long."""
    path = experts_file.with_name("collected.arrow")
    main(["demos", "collect", str(experts_file), "--out", str(path), "--p-min", "0.1",
          "--trajectories", "5", "--param", "time_limit", "8"])  # fmt: skip
    return path


@pytest.fixture
def log(collected: Path, tmp_path: Path) -> Path:
    """A copy of its own, because one log is released from once."""
    return Path(shutil.copy(collected, tmp_path / "log.arrow"))


@pytest.fixture(scope="session")
def planned(experts_file: Path) -> Path:
    path = experts_file.with_name("plan.json")
    main(["plan", "release", *PLAN, "--out", str(path)])
    return path
