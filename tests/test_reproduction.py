"""The page on the reproduction says what the result files say."""

import json
from pathlib import Path

import pytest
from docs_pages import Page

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module", name="page")
def _page() -> Page:
    return Page("make_reproduction")


def test_no_number_of_the_tables_was_typed_by_hand(page: Page) -> None:
    assert page.rendered(page.text) == page.text


def test_a_changed_number_is_noticed_and_put_right(page: Page) -> None:
    before, mark, after = page.text.partition("<!-- comparisons -->")
    changed = before + mark + after.replace("0.8", "0.9", 1)
    assert changed != page.text
    assert page.rendered(changed) == page.text


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


def test_every_run_that_defaults_were_chosen_by_says_how_to_make_it_again() -> None:
    files = sorted((ROOT / "results" / "tuning").glob("*.json"))
    assert files
    for file in files:
        facts = json.loads(file.read_text())
        assert file.stem == facts["world"].lower()
        assert facts["population"]["command"].startswith(f"quorum experts train {facts['world']}")
        for program in facts["programs"]:
            assert {"round", "commit", "machine", "configuration"} <= program.keys()
            seeds = program["configuration"]["seeds"]
            assert all(len(row["returns"]) == seeds for row in program["rows"])
