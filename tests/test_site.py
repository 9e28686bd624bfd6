"""The site as a reader opens it from a disk: it is whole, is found by words, and fits a phone."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from browsers import a_browser

pytest.importorskip("material", reason="mkdocs-material is not installed")

__all__ = ["a_browser"]  # a fixture

ROOT = Path(__file__).parent.parent
PHONE = 390


def build(source: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """What `make docs` does, into another folder."""
    (options,) = re.findall(r"mkdocs build (.+)", (ROOT / "Makefile").read_text())
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", *options.split(), "--site-dir", str(folder)],
        cwd=source,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module", name="site")
def _site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site, built without a warning."""
    folder = tmp_path_factory.mktemp("site")
    built = build(ROOT, folder)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.parametrize("link", ["none.md", "index.md#none"])
def test_a_link_to_nowhere_stops_the_build(tmp_path: Path, link: str) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# One\n\n[two]({link})\n")
    rules = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["validation"]
    facts = {"site_name": "one", "validation": rules}
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(facts))
    built = build(tmp_path, tmp_path / "site")
    assert built.returncode == 1
    assert link in built.stderr


@pytest.fixture(name="asked")
def _asked() -> list[str]:
    """Every address that a page asks for."""
    return []


@pytest.fixture(name="page")
def _page(browser: Any, asked: list[str]) -> Iterator[Any]:
    page = browser.new_page(viewport={"width": PHONE, "height": 844})
    page.on("request", lambda request: asked.append(request.url))
    yield page
    page.close()


def found(page: Any, words: str) -> list[str]:
    """The pages that the search box gives, best first."""
    page.set_viewport_size({"width": 1280, "height": 844})
    page.click("input[name=query]")
    page.keyboard.type(words)
    page.wait_for_selector(".md-search-result__link", state="attached")
    links = page.query_selector_all(".md-search-result__link")
    return [Path(link.get_attribute("href")).name for link in links]


@pytest.mark.parametrize("start", ["index.html", "repository/own_world.html"])
def test_the_search_finds_install_from_a_disk_and_asks_no_network(
    site: Path, page: Any, asked: list[str], start: str
) -> None:
    page.goto((site / start).as_uri())
    assert any(name.startswith("index.html") for name in found(page, "install")[:2])
    assert not [url for url in asked if not url.startswith("file:")]


def test_no_page_is_wider_than_a_phone(site: Path, page: Any) -> None:
    wide = {}
    for file in sorted(site.rglob("*.html")):
        page.goto(file.as_uri())
        width = page.evaluate("document.documentElement.scrollWidth")
        if width > PHONE:
            wide[file.name] = width
    assert wide == {}


def test_a_picture_opens_large(site: Path, page: Any) -> None:
    page.goto((site / "index.html").as_uri())
    page.click("img >> nth=0")
    assert page.url.endswith("pictures/flow.svg")


def test_a_line_that_is_wider_than_a_phone_would_be_noticed(page: Any, tmp_path: Path) -> None:
    file = tmp_path / "wide.html"
    file.write_text("<meta name=viewport content=width=device-width><pre>" + "wide" * 99)
    page.goto(file.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") > PHONE
