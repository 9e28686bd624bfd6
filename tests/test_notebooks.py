"""The notebooks, cell by cell, as their reader runs them: nothing in them is made smaller here."""

import contextlib
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiling import optimised

pytest.importorskip("onnx")

ROOT = Path(__file__).parent.parent
NOTEBOOKS = ROOT / "examples" / "notebooks"
RANDOM_RETURN = 22  # of uniform actions in CartPole


def cells(name: str) -> list[tuple[str, str]]:
    """The cells as the site shows them."""
    spec = importlib.util.spec_from_file_location("quorum_site", ROOT / "docs" / "site.py")
    assert spec is not None
    assert spec.loader is not None
    site = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(site)
    found: list[tuple[str, str]] = site.cells((NOTEBOOKS / name).read_text(encoding="utf-8"))
    return found


@pytest.fixture(name="run")
def _run(tmp_path: Path) -> Iterator[Any]:
    """Runs a notebook in a folder of its own, and gives what it has named."""

    def run(name: str) -> dict[str, Any]:
        names: dict[str, Any] = {"__name__": "notebook"}
        for kind, text in cells(name):
            if kind == "python":
                exec(compile(text, name, "exec"), names)
        return names

    with optimised(), contextlib.chdir(tmp_path):
        yield run


def bundled(folder: str) -> set[str]:
    return {file.name for file in Path(folder).iterdir()}


def test_the_quickstart_learns_to_balance_and_publishes(run: Any) -> None:
    """In 5 such runs the mean return was 902 to 1000 of 1000."""
    made = run("quickstart.py")
    assert made["returns"].mean() > 4 * RANDOM_RETURN
    assert made["made"].certificate.epsilon <= 1
    assert 0 < made["budget"].left() < 2
    assert {"policy.safetensors", "policy.onnx", "README.md"} <= bundled("pilots-policy")


def test_the_nurses_teach_a_policy_that_answers_by_name(run: Any) -> None:
    """The urgent case and the harmless one are far from any threshold of theirs."""
    made = run("own_logs.py")
    policy = made["made"].policy
    assert policy.act({"fever": 40.5, "pulse": 135}) == "emergency"
    assert policy.act({"fever": None, "pulse": 70}) == "wait"
    assert set(policy.act(np.array([[37.0, 80.0], [41.0, 150.0]]))) == {"wait", "emergency"}
    assert made["made"].judging is not None
    said = json.loads(Path("door-policy/certificate.json").read_text())
    for held in said["assumptions"]:
        assert [who["name"] for who in held["accepted_by"]] == ["A. Weber, data protection"]
    for file in Path("door-policy").iterdir():
        assert b"N017" not in file.read_bytes()


@pytest.mark.parametrize("name", sorted(path.name for path in NOTEBOOKS.glob("*.py")))
def test_a_notebook_begins_with_its_title_and_explains_every_step(name: str) -> None:
    found = cells(name)
    assert found[0][0] == "markdown"
    assert found[0][1].startswith("# ")
    assert sum(text.startswith("## ") or "\n## " in text for _, text in found) >= 4
    assert not [text for kind, text in found if not text]
