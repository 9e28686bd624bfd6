"""The page on the audit says what the result files say."""

import json
from pathlib import Path

import pytest
from docs_pages import Page

from quorum_rl.audit import Finding, described

RESULTS = Path(__file__).parents[2] / "results" / "audit"


@pytest.fixture(scope="module", name="page")
def _page() -> Page:
    return Page("make_audit")


def test_no_number_of_the_tables_was_typed_by_hand(page: Page) -> None:
    assert page.rendered(page.text) == page.text


@pytest.mark.parametrize("section", ["findings", "planted", "membership"])
def test_a_changed_number_is_noticed_and_put_right(page: Page, section: str) -> None:
    before, mark, after = page.text.partition(f"<!-- {section} -->")
    changed = before + mark + after.replace("| 0", "| 9", 1).replace("| 2", "| 8", 1)
    assert changed != page.text
    assert page.rendered(changed) == page.text


def test_every_result_says_how_to_make_it_again() -> None:
    files = sorted(RESULTS.glob("*.json"))
    assert len(files) == 7
    for file in files:
        facts = json.loads(file.read_text())
        assert {"commit", "machine", "seconds", "configuration"} <= facts.keys()
        assert facts["commit"]
        assert "seed" in facts["configuration"]


def test_the_cases_of_the_results_are_those_of_the_code() -> None:
    """So that no default of a fit moves a worst case unnoticed."""
    kept = json.loads((RESULTS / "pipeline.json").read_text())["configuration"]["cases"]
    for name, case in described("pipeline").items():
        assert case["chain"] == kept[name]["chain"]
        assert case["settings"] == kept[name]["settings"]


def test_no_claim_is_refuted_and_every_planted_bug_was_caught() -> None:
    for part in ("release", "training", "one-run", "pipeline"):
        facts = json.loads((RESULTS / f"{part}.json").read_text())
        assert not any(one["refuted"] for one in facts["findings"])
    planted = json.loads((RESULTS / "planted.json").read_text())
    assert set(planted["caught"].values()) == {planted["repeats"]}
    for name, outcomes in planted["outcomes"].items():
        seeds = planted["configuration"]["seeds"]
        assert [one["seed"] for one in outcomes] == seeds
        white = [one["certain"][0] > one["claimed"] for one in outcomes]  # or what came out
        assert sum(white) == planted["caught"][name]


def test_lines_that_no_result_could_refute_are_not_counted(page: Page) -> None:
    every = [
        Finding.from_json(one)
        for part in ("release", "training", "one-run", "pipeline")
        for one in json.loads((RESULTS / f"{part}.json").read_text())["findings"]
    ]
    hopeless = [one for one in every if one.ceiling <= one.claimed]
    assert {one.what for one in hopeless} == {"pipeline, half of ε for each stage"}
    assert f"Of the {len(every) - len(hopeless)} lines whose claim" in page.text
    assert page.text.count(": cannot be refuted with so few runs |") == len(hopeless)
