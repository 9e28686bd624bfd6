"""The page on the reproduction says what the result files say."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "docs" / "pictures" / "make_reproduction.py"
PAGE = ROOT / "docs" / "reproduction.md"


@pytest.fixture(scope="module", name="script")
def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_reproduction", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_number_of_the_tables_was_typed_by_hand(script: ModuleType) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert script.rendered(page) == page


def test_a_changed_number_is_noticed_and_put_right(script: ModuleType) -> None:
    page = PAGE.read_text(encoding="utf-8")
    before, mark, after = page.partition("<!-- comparisons -->")
    changed = before + mark + after.replace("0.8", "0.9", 1)
    assert changed != page
    assert script.rendered(changed) == page


def test_every_result_says_how_to_make_it_again() -> None:
    files = sorted((ROOT / "results" / "paper").glob("*.json"))
    assert files
    for file in files:
        facts = json.loads(file.read_text())
        assert {"world", "stage", "commit", "machine", "seconds", "configuration"} <= facts.keys()
        assert file.stem == f"{facts['world'].lower()}-{facts['stage']}"
        if "methods" in facts:
            assert len(facts["configuration"]["seeds"]) == facts["seeds"]
            assert all(len(method["returns"]) == facts["seeds"] for method in facts["methods"])
