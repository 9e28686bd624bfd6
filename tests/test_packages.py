"""The wheel and the source distribution: what is in them, and that they work elsewhere."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Sequence
from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest
import yaml

import quorum_rl

ROOT = Path(__file__).parent.parent
NAME = f"quorum_rl-{quorum_rl.__version__}"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LINK = re.compile(r"\]\(([^)\s]+)\)")


def built(source: Path, out: Path, *which: str) -> None:
    words = [sys.executable, "-m", "hatchling", "build", "--directory", str(out), *which]
    subprocess.run(words, cwd=source, check=True, capture_output=True)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, unpacked too, and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("packages")
    built(ROOT, folder, "--target", "sdist")
    with tarfile.open(folder / f"{NAME}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    built(folder / NAME, folder, "--target", "wheel")
    return folder


@pytest.fixture(scope="module")
def wheel(packages: Path) -> Path:
    return packages / f"{NAME}-py3-none-any.whl"


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no checkout: nobody knows its files")
def test_the_source_distribution_has_every_file_of_the_repository(packages: Path) -> None:
    words = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    ours = {name for name in listed.splitlines() if (ROOT / name).is_file()}
    packed = {
        path.relative_to(packages / NAME).as_posix()
        for path in (packages / NAME).rglob("*")
        if path.is_file()
    }
    assert packed == ours | {"PKG-INFO"}


def test_the_wheel_has_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    house = ROOT / "src"
    ours = {
        path.relative_to(house).as_posix()
        for path in (house / "quorum_rl").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    about = {name for name in packed if name.startswith(f"{NAME}.dist-info/")}
    assert packed - about == ours
    assert f"{NAME}.dist-info/licenses/LICENSE" in about


def test_every_link_of_the_package_page_leads_to_a_file_of_this_version(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        about = message_from_bytes(archive.read(f"{NAME}.dist-info/METADATA"))
    assert about["Version"] == quorum_rl.__version__
    assert about["Description-Content-Type"] == "text/markdown"
    page = about.get_payload(decode=True)
    assert isinstance(page, bytes)
    links = LINK.findall(page.decode())
    assert len(links) == len(LINK.findall((ROOT / "README.md").read_text())) > 5
    for link in links:
        start = re.match(rf"{PROJECT['urls']['Repository']}/(blob|raw)/v[0-9.]+/", link)
        assert start is not None, link
        assert (ROOT / link[start.end() :].partition("#")[0]).is_file(), link
        assert (start[1] == "raw") == link.endswith((".svg", ".png")), link


def test_links_are_made_absolute_where_they_are_relative() -> None:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    text = "![a](b.svg) [c](d.md#e) [f](#g) [h](https://i.example/j) `[k]` (l)"
    assert hook.absolute(text, "R", "v1") == (
        "![a](R/raw/v1/b.svg) [c](R/blob/v1/d.md#e) [f](#g) [h](https://i.example/j) `[k]` (l)"
    )


def test_the_version_and_the_pythons_are_the_same_everywhere() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == quorum_rl.__version__
    assert f"\n## {quorum_rl.__version__} ({citation['date-released']})\n" in (
        ROOT / "CHANGELOG.md"
    ).read_text(encoding="utf-8")
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    start = "Programming Language :: Python :: "
    named = [name.removeprefix(start) for name in PROJECT["classifiers"] if start in name]
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"] == named[1:]


@pytest.mark.parametrize("form", ["defect", "idea"])
def test_an_issue_form_asks_each_thing_once(form: str) -> None:
    asked = yaml.safe_load((ROOT / f".github/ISSUE_TEMPLATE/{form}.yml").read_text())
    assert {"name", "description", "body"} <= asked.keys()
    fields: Sequence[Any] = [field for field in asked["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in fields}) == len(fields) > 1
    assert all(field["attributes"]["label"] for field in fields)


@pytest.mark.skipif("QUORUM_INSTALL" not in os.environ, reason="QUORUM_INSTALL=1 asks for it")
def test_the_wheel_runs_the_demo_in_a_new_environment(wheel: Path, tmp_path: Path) -> None:
    """A few minutes, and downloads."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "new")], check=True)
    there = tmp_path / "new" / "bin"
    subprocess.run([str(there / "pip"), "install", "--quiet", f"{wheel}[report]"], check=True)
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    # as users compile, not as tests/conftest.py has it
    clean |= {"JAX_DISABLE_MOST_OPTIMIZATIONS": "0", "XLA_FLAGS": ""}
    subprocess.run([str(there / "quorum"), "demo"], cwd=tmp_path, env=clean, check=True)
    run = tmp_path / "demo" / "cartpole"
    assert json.loads((run / "certificate.json").read_text())["epsilon"] <= 1
    assert (run / "report.html").stat().st_size > 10_000
