"""A browser for the tests of pages; those tests are skipped where there is none."""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


@pytest.fixture(scope="module", name="browser")
def a_browser() -> Iterator[Any]:
    reason = "playwright is not installed"
    sync_api = pytest.importorskip("playwright.sync_api", reason=reason)
    found = next((path for path in map(shutil.which, NAMES) if path), None)
    if found is None:
        pytest.skip(f"there is no browser: none of {', '.join(NAMES)} is on the path")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        yield opened
        opened.close()
