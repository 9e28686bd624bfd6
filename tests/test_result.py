"""The picture of results, and what the first pages say of it, are what the result files say."""

from pathlib import Path
from typing import Any

import pytest
from docs_pages import Page

ROOT = Path(__file__).parent.parent
BOTH, AVERAGED = "both stages", "DP-SGD, averaged"


@pytest.fixture(scope="module", name="page")
def _page() -> Page:
    return Page("make_result")


@pytest.fixture(scope="module", name="panels")
def _panels(page: Page) -> dict[str, Any]:
    return {panel.name: panel for panel in page.script.panels()}


def pairs(panel: Any, one: str, other: str) -> dict[float, tuple[Any, Any]]:
    """What two methods scored, at every epsilon at which both were run."""
    others = {point.epsilon: point for point in panel.methods[other]}
    here = {point.epsilon: point for point in panel.methods[one]}
    return {epsilon: (here[epsilon], others[epsilon]) for epsilon in here if epsilon in others}


def clear(panel: Any, one: str, other: str) -> set[float]:
    """At which epsilons the interval of one method is above that of the other."""
    found = pairs(panel, one, other).items()
    return {epsilon for epsilon, (here, there) in found if here.low > there.high}


def test_no_number_of_the_table_was_typed_by_hand(page: Page) -> None:
    assert page.rendered(page.text) == page.text
    assert page.rendered(page.text.replace("0.9", "0.8", 1)) == page.text


def test_the_picture_was_drawn_from_these_results(page: Page) -> None:
    said = page.script.described(page.script.panels())
    assert said in page.script.PICTURE.read_text(encoding="utf-8")


def test_the_pages_say_on_how_many_experts_and_seeds(page: Page) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for world in page.script.WORLDS:
        for learner in page.script.LEARNERS:
            ours, *published = page.script.results(world, learner)
            assert len(published) == 3
            for text in (readme, page.text):
                assert f"{ours['experts']} experts" in text
                assert f"{ours['seeds']} seeds" in text
                assert f"δ = 1/{ours['experts']}" in text
                assert f"--expert-seed {ours['configuration']['expert_seed']} " in text
            for one in published:
                assert f"({one['seeds']} seeds)" in readme
                assert f"({one['seeds']} for the paper's settings)" in page.text
                assert one["experts"] == ours["experts"]


def test_both_stages_earn_most_on_cartpole_with_cql_and_are_clear_where_we_say(
    panels: dict[str, Any],
) -> None:
    panel = panels["CartPole, CQL"]
    for name in panel.methods:
        assert all(here.fraction >= it.fraction for here, it in pairs(panel, BOTH, name).values())
    assert clear(panel, BOTH, AVERAGED) == {5.0, 7.5}
    assert clear(panel, BOTH, "DP-SGD, one transition") >= {5.0, 7.5}


def test_nowhere_else_are_both_stages_clear_of_averaged_training(panels: dict[str, Any]) -> None:
    for name in ("CartPole, BCQ", "Acrobot, CQL", "Acrobot, BCQ"):
        assert not clear(panels[name], BOTH, AVERAGED)
    for name in ("Acrobot, CQL", "Acrobot, BCQ"):
        found = pairs(panels[name], AVERAGED, BOTH)
        assert len(found) == 5
        assert all(alone.fraction > both.fraction for alone, both in found.values())


def test_the_published_settings_are_clear_of_ours_only_where_we_say(
    page: Page, panels: dict[str, Any]
) -> None:
    far_below = {"CartPole, BCQ": {5.0, 7.5, 10.0}, "CartPole, CQL": {5.0}}
    for name, panel in panels.items():
        assert clear(panel, BOTH, page.script.PUBLISHED) == far_below.get(name, set())
        assert not clear(panel, page.script.PUBLISHED, BOTH)
        for point in panel.methods[page.script.PUBLISHED]:
            assert point.epsilon not in far_below.get(name, set()) or point.fraction < 0.5
