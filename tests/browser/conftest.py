"""The page in a real Chromium, over the real API on generated data (shop.txt)."""

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.browser import chromium
from tests.browser.page import Page
from tests.conftest import FOR_SMALL_QUERIES
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Site:
    """What is served; times in Unix seconds: release 1.5.0 runs from `middle` on, the wide tree ends at `wide_end`, and
    both versions of `cart` at `versions_end`."""

    address: str
    start: int
    middle: int
    end: int
    wide_end: int
    wide_ns: int
    versions_end: int

    def ask(self, route: str, **parameters: Any) -> Any:
        """Returns the API's answer; the default time range has all samples, where the route has one."""
        times = {} if route.startswith("traces/") else {"start": self.start, "end": self.end}
        query = times | parameters
        answer = httpx2.get(f"{self.address}api/v1/{route}", params=query, timeout=300)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """API and page in a process of their own, since the embedded engine is one process's only."""
    _need_chromium()
    folder = tmp_path_factory.mktemp("shop")
    command = [sys.executable, "-m", "tests.browser.serve", str(folder), "0", json.dumps(FOR_SMALL_QUERIES)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        ready, _, _ = select.select([process.stdout], [], [], PATIENCE_S)
        line = process.stdout.readline() if ready else ""
        assert line, f"tests.browser.serve did not start (exit code {process.poll()})"
        yield Site(**json.loads(line))
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    _need_chromium()
    running = chromium.launch(tmp_path_factory.mktemp("chromium"))
    yield running
    running.quit()


@pytest.fixture
def page(browser: Any, site: Site) -> Iterator[Page]:
    """A page to open; what it logs as an error fails the test, unless the test took it (`page.errors()`)."""
    browser.set_window_size(1440, 900)
    chromium.set_scheme(browser, "light")
    opened = Page(browser, site)
    opened.errors()
    yield opened
    assert opened.errors() == []
    assert browser.execute_script("return window.hacked") is None


def _need_chromium() -> None:
    if (reason := chromium.missing()) is not None:
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
