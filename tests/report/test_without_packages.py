"""Without the extra `report` only reports and pictures are missing; they say what to install."""

import subprocess
import sys
from pathlib import Path

import pytest
from commands import Quorum
from ledger_files import BOTH, FLOOR, TRAINING, ledger_of
from run_folders import Making

from quorum_rl.envs import draw_state, get_world
from quorum_rl.errors import MissingPackageError
from quorum_rl.report import write_report

PACKAGES = ("jinja2", "matplotlib", "vl_convert")
HIDE = f"import sys; sys.modules.update(dict.fromkeys({PACKAGES!r}))\n"
IMPORT_ALL = """
import importlib, pkgutil, quorum_rl
for found in pkgutil.walk_packages(quorum_rl.__path__, "quorum_rl."):
    if found.name != "quorum_rl.__main__":
        importlib.import_module(found.name)
"""


@pytest.fixture
def _hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PACKAGES:
        monkeypatch.setitem(sys.modules, name, None)


def test_no_module_needs_them_to_be_imported() -> None:
    subprocess.run([sys.executable, "-c", HIDE + IMPORT_ALL], check=True)


@pytest.mark.usefixtures("_hidden")
def test_a_run_is_checked_and_published_without_them(tmp_path: Path, quorum: Quorum) -> None:
    run = Making(tmp_path)(ledger_of(*BOTH), FLOOR, TRAINING)
    quorum("certificate", "verify", run)
    said = quorum("publish", run, "--out", tmp_path / "bundle")
    assert "without report.html, for it cannot be made: the report needs" in said
    quorum("certificate", "verify", tmp_path / "bundle")


@pytest.mark.usefixtures("_hidden")
@pytest.mark.parametrize(
    "command",
    ["report .", "worlds draw CartPole --out a.png",
     "experts returns a.safetensors --picture a.png --diagnostics-not-private",
     "demos agreement a.arrow a.safetensors --picture a.png --diagnostics-not-private"],
)  # fmt: skip
def test_a_command_that_draws_says_what_to_install(command: str, quorum: Quorum) -> None:
    said = quorum.refused(*command.split())
    assert said.endswith(": pip install 'quorum-rl[report]'.\n")


@pytest.mark.usefixtures("_hidden")
def test_so_does_python(run_folder: Path) -> None:
    with pytest.raises(
        MissingPackageError, match=r"the report needs .* \(jinja2, matplotlib, vl_convert\)"
    ):
        write_report(run_folder)
    world = get_world("CartPole")
    with pytest.raises(MissingPackageError, match=r"a picture needs .* \(matplotlib\)"):
        draw_state(world, None, world.default_params)
