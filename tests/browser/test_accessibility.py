"""The page against WCAG 2, levels A and AA, with axe-core; and contrasts in the graph, which axe leaves out."""

import os
from pathlib import Path

import pytest

from tests.browser.chromium import set_scheme
from tests.browser.conftest import Site
from tests.browser.page import Page

pytestmark = pytest.mark.browser

AXE = Path(__file__).parent / "axe/node_modules/axe-core/axe.min.js"
# It names one element that passes for each rule: naming all of them takes longer than looking at them.
_RUN = """
axe.run(document, { runOnly: given[0], resultTypes: ["violations"] }).then(({ violations, passes }) =>
  done([
    violations.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.html}: ${node.failureSummary}`)),
    [...passes, ...violations].map(({ id }) => id),
  ]),
);
"""
_STANDARDS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
_COLOURS = {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}
"""The rules of these standards that look at colours."""
_CONTRASTS = """
import("./graph/colours.js").then(({ kindColours, changePalette }) => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const luminance = (colour) => {
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((byte) => {
      const share = byte / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one, other) => {
    const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const kinds = kindColours({ name: [], module: [], kind: [] }).palette;
  const pairs = [kinds, changePalette(false), changePalette(true)].flatMap(({ fill, faded, text, fadedText }) => [
    ...fill.map((colour) => [colour, text]),
    ...faded.map((colour) => [colour, fadedText]),
  ]);
  done(pairs.filter(([ground, text]) => contrast(ground, text) < 4.5).map(([ground, text]) => `${text} on ${ground}`));
});
"""
VIEWS: dict[str, dict[str, str]] = {
    "services": {"view": "services"},
    "profile": {"selector": '{service="checkout"}', "hide": "sre_search", "search": "tcp"},
    "calls": {"selector": '{service="checkout"}', "search": "tcp", "table": "calls"},
    "compared calls": {
        "view": "compare",
        "selector": '{version="1.5.0"}',
        "baseline_selector": '{version="1.4.2"}',
        "table": "calls",
    },
    "sandwich": {"selector": '{service="checkout"}', "function": "inflate"},
    "compare": {"view": "compare", "selector": '{version="1.5.0"}', "baseline_selector": '{version="1.4.2"}'},
    "nothing before": {"view": "compare", "selector": '{service="checkout"}'},
    "nothing certain": {"view": "compare", "selector": '{service="search"}'},
    "requests": {"view": "requests"},
    "operations": {"view": "operations", "selector": '{service="checkout"}'},
    "slow": {"view": "slow", "selector": '{service="checkout", operation="POST /checkout"}'},
    "empty": {"selector": '{service="nobody"}'},
    "error": {"selector": "{service="},
}


@pytest.fixture
def axe() -> str:
    if not AXE.exists():
        reason = "axe-core is not installed (deploy/setup.sh test)"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return AXE.read_text(encoding="utf-8")


def look(page: Page, rules: object) -> None:
    violations, applied = page.js_async(_RUN, rules)
    assert violations == []
    assert "color-contrast" in applied


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_can_be_read_by_everybody(page: Page, site: Site, axe: str, view: str) -> None:
    """In the dark scheme the elements are the same in other colours."""
    state = VIEWS[view]
    if view == "requests":
        state = state | {"trace": site.ask("traces")["traces"][0]["trace_id"]}
    starts = {"nothing certain": site.middle, "services": site.versions_end - 600}  # when `cart` had versions
    page.open(**{"start": starts.get(view, site.start)} | state)
    page.js(axe)
    for scheme, rules in (("light", _STANDARDS), ("dark", _COLOURS)):
        set_scheme(page.browser, scheme)
        page.settle()
        if view == "services":
            page.click("#help")
            look(page, rules)
            page.click("dialog button")
        look(page, rules)
    page.errors()  # the browser notes answers with status 400


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_names_in_the_graph_can_be_read_on_every_colour(page: Page, scheme: str) -> None:
    set_scheme(page.browser, scheme)
    page.open()
    assert page.js_async(_CONTRASTS) == []
