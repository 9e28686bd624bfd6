"""The page in a real browser: drawn, silent, interactive, narrow, dark and printed."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsers import a_browser
from reported_runs import change_json

from quorum_rl.envs import get_world
from quorum_rl.policy import Layer, Policy
from quorum_rl.report import write_report
from quorum_rl.report.gathering import gather
from quorum_rl.report.page import render

__all__ = ["a_browser"]  # a fixture

CHARTS = ("budget", "earned", "shares", "comparison", "prefixes", "learning")
MARKS = ".mark-rect path, .mark-rule line, .mark-symbol path, .mark-line path, .mark-area path"


@pytest.fixture(scope="module")
def file(written_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with every chart there is."""
    path = tmp_path_factory.mktemp("pages") / "report.html"
    path.write_text(render(gather(written_run)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def show(browser: Any, file: Path) -> Iterator[Callable[..., tuple[Any, list[str]]]]:
    """Opens a page, waits until it is drawn, and keeps what it complains about or asks for."""
    contexts = []

    def opened(file: Path = file, **settings: Any) -> tuple[Any, list[str]]:
        context = browser.new_context(**settings)
        contexts.append(context)
        page, heard = context.new_page(), list[str]()
        page.on("console", lambda said: heard.append(f"console: {said.text}"))
        page.on("pageerror", lambda error: heard.append(f"error: {error}"))
        page.on("request", lambda asked: heard.append(f"request: {asked.url}"))
        page.on("requestfailed", lambda asked: heard.append(f"failed: {asked.url}"))
        page.goto(file.as_uri())
        page.wait_for_selector("html[data-drawn]", timeout=30_000)
        return page, heard

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def desktop(show: Callable[..., tuple[Any, list[str]]]) -> tuple[Any, list[str]]:
    return show(viewport={"width": 1100, "height": 900}, color_scheme="light")


def visible_marks(page: Any, chart: str) -> int:
    """How many marks of a chart take up room on the screen."""
    count = page.eval_on_selector_all(
        ", ".join(f"#{chart}-chart {mark}" for mark in MARKS.split(", ")),
        "marks => marks.filter(mark => { const box = mark.getBoundingClientRect();"
        " return box.width + box.height > 1; }).length",
    )
    return int(count)


def test_the_page_is_silent_and_asks_for_nothing(desktop: tuple[Any, list[str]]) -> None:
    page, heard = desktop
    assert heard == [f"request: {page.url}"]


@pytest.mark.parametrize("chart", CHARTS)
def test_every_chart_is_drawn(chart: str, desktop: tuple[Any, list[str]]) -> None:
    page, _ = desktop
    box = page.locator(f"#{chart}-chart svg").bounding_box()
    assert box["width"] > 500
    assert box["height"] > 80
    assert visible_marks(page, chart) > 0


def test_the_episode_is_drawn(desktop: tuple[Any, list[str]]) -> None:
    box = desktop[0].locator(".picture svg").bounding_box()
    assert box["width"] > 500
    assert box["height"] > 300


@pytest.mark.parametrize("world", ["Acrobot", "HIV"])
def test_every_world_of_ours_is_drawn(
    world: str, show: Callable[..., tuple[Any, list[str]]], run_folder: Path
) -> None:
    spaces = get_world(world).spaces
    layer = Layer(
        np.ones((spaces.observation_size, spaces.action_count), np.float32),
        np.zeros(spaces.action_count, np.float32),
    )
    policy = Policy(networks={"values": (layer,)}, highest="values", learner="cql")
    policy.save(run_folder / "policy.safetensors")
    config = json.loads((run_folder / "config.json").read_text())
    change_json(run_folder / "config.json", declared=config["declared"] | {"world": world})
    page, heard = show(write_report(run_folder))
    assert heard == [f"request: {page.url}"]
    assert page.locator(".picture svg").bounding_box()["height"] > 200


@pytest.mark.parametrize("chart", ["budget", "comparison"])
def test_a_click_on_the_legend_takes_a_part_away_and_back(
    chart: str, desktop: tuple[Any, list[str]]
) -> None:
    page, heard = desktop
    before = visible_marks(page, chart)
    entry = page.locator(f"#{chart}-chart .role-legend-label text").first
    entry.click()
    page.wait_for_timeout(200)
    assert visible_marks(page, chart) < before
    entry.click()
    page.wait_for_timeout(200)
    assert visible_marks(page, chart) == before
    assert heard == [f"request: {page.url}"]


def test_pointing_at_a_mark_says_what_it_is(desktop: tuple[Any, list[str]]) -> None:
    page, _ = desktop
    page.locator("#budget-chart .mark-rect path").first.hover()
    tooltip = page.locator("#vg-tooltip-element.visible")
    tooltip.wait_for(timeout=5000)
    assert "alone" in tooltip.inner_text()


def test_a_phone_never_scrolls_sideways(show: Callable[..., tuple[Any, list[str]]]) -> None:
    page, heard = show(viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True)
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= 390
    for chart in CHARTS:
        box = page.locator(f"#{chart}-chart svg").bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
    assert heard == [f"request: {page.url}"]


def test_the_dark_scheme_reaches_text_and_charts(
    desktop: tuple[Any, list[str]], show: Callable[..., tuple[Any, list[str]]]
) -> None:
    def colours(page: Any) -> list[str]:
        found: list[str] = page.evaluate(
            "[['body', 'backgroundColor'], ['body', 'color'],"
            " ['#budget-chart .mark-rect path', 'fill'],"
            " ['#budget-chart .role-axis-label text', 'fill'],"
            " ['.picture svg text, .picture svg g[id^=text] g', 'fill']]"
            ".map(([place, name]) => getComputedStyle(document.querySelector(place))[name])"
        )
        return found

    dark, _ = show(viewport={"width": 1100, "height": 900}, color_scheme="dark")
    for light_colour, dark_colour in zip(colours(desktop[0]), colours(dark), strict=True):
        assert light_colour != dark_colour


def test_the_page_prints_on_a_few_light_sheets(
    show: Callable[..., tuple[Any, list[str]]], tmp_path: Path
) -> None:
    page, _ = show(viewport={"width": 1100, "height": 900}, color_scheme="dark")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    printed = page.pdf(path=str(tmp_path / "report.pdf"), format="A4")
    assert printed.startswith(b"%PDF")
    assert 3 <= printed.count(b"/Type /Page\n") <= 9
    assert len(printed) > 50_000
