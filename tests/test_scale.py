"""What the page on scale says of measurements is what the result files say."""

import json
from pathlib import Path

import pytest
from docs_pages import Page

RESULTS = Path(__file__).parent.parent / "results" / "scale"


@pytest.fixture(scope="module", name="page")
def _page() -> Page:
    return Page("make_scale")


def test_no_number_of_the_tables_was_typed_by_hand(page: Page) -> None:
    assert page.rendered(page.text) == page.text
    assert page.rendered(page.text.replace("131.57 MiB", "131.58 MiB")) == page.text


def test_the_h200_was_measured_from_a_hundred_to_thirty_thousand_experts() -> None:
    facts = json.loads((RESULTS / "h200.json").read_text())
    assert {"commit", "device", "versions", "machine"} <= facts.keys()
    for stage in ("experts", "collect", "count", "private steps"):
        counts = {row["size"]["experts"] for row in facts["rows"] if row["stage"] == stage}
        assert min(counts) == 100
        assert max(counts) >= 30_000


def test_each_stage_holds_an_eighth_on_each_of_eight_devices() -> None:
    rows = json.loads((RESULTS / "devices.json").read_text())["rows"]
    one, eight = rows[0], rows[-1]
    assert (one["devices"], eight["devices"]) == (1, 8)
    for stage, held in one["bytes"].items():
        assert eight["bytes"][stage] == pytest.approx(held / 8, rel=0.01)
