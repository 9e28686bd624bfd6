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
            ours = page.script.result(world, f"{learner}-comparison")
            stages = [f"{learner}-published-{epsilon}" for epsilon in page.script.CLAIMED]
            published = [page.script.result(world, stage) for stage in stages]
            for text in (readme, page.text):
                assert f"{ours['experts']} experts" in text
                assert f"{ours['seeds']} seeds" in text
                assert f"δ = 1/{ours['experts']}" in text
                assert f"--expert-seed {ours['configuration']['expert_seed']} " in text
            for one in filter(None, published):
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
    for name in set(panels) - {"CartPole, CQL"}:
        assert not clear(panels[name], BOTH, AVERAGED)
    for name, below in (("Acrobot, CQL", 11), ("Acrobot, BCQ", 11), ("HIV, CQL", 10)):
        found = pairs(panels[name], AVERAGED, BOTH)
        assert len(found) == 5
        alone_is_better = {
            e for e, (alone, both) in found.items() if alone.fraction > both.fraction
        }
        assert alone_is_better == {epsilon for epsilon in found if epsilon < below}


def test_averaged_training_at_epsilon_1_keeps_what_we_say(panels: dict[str, Any]) -> None:
    at_one = {
        name: next(point.fraction for point in panel.methods[AVERAGED] if point.epsilon == 1)
        for name, panel in panels.items()
    }
    assert all(value > 0.97 for name, value in at_one.items() if name.endswith("CQL"))
    assert min(at_one["CartPole, BCQ"], at_one["Acrobot, BCQ"]) > 0.95
    assert 0.5 < at_one["LunarLander, BCQ"] < 0.7
    assert at_one["HIV, BCQ"] < 0.1


def test_one_transition_is_clear_below_averaged_training_where_we_say(
    panels: dict[str, Any],
) -> None:
    one = "DP-SGD, one transition"
    for name in ("LunarLander, CQL", "HIV, CQL"):
        assert clear(panels[name], AVERAGED, one) == {1.0, 2.5, 5.0, 7.5, 10.0}
    for name in ("LunarLander, CQL", "LunarLander, BCQ", "HIV, CQL", "HIV, BCQ"):
        assert all(point.fraction < 0.4 for point in panels[name].methods[one])


def test_the_published_settings_are_clear_of_ours_only_where_we_say(
    page: Page, panels: dict[str, Any]
) -> None:
    below = {
        "CartPole, CQL": {5.0},
        "CartPole, BCQ": {7.5, 10.0},
        "LunarLander, CQL": {7.5},
        "LunarLander, BCQ": {5.0, 10.0},
        "HIV, CQL": {5.0, 7.5, 10.0},
    }
    for name, panel in panels.items():
        assert clear(panel, AVERAGED, page.script.PUBLISHED) == below.get(name, set())
        assert not clear(panel, page.script.PUBLISHED, AVERAGED)


def test_so_many_of_the_papers_settings_were_run_as_the_pages_say(
    page: Page, panels: dict[str, Any]
) -> None:
    published = [one for panel in panels.values() for one in panel.methods[page.script.PUBLISHED]]
    assert len(published) == 19
    below = [clear(panel, AVERAGED, page.script.PUBLISHED) for panel in panels.values()]
    assert sum(map(len, below)) == 9
