"""The call tree as a table whose rows open, beside the graph."""

import re
from itertools import pairwise

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.browser.conftest import Site
from tests.browser.page import Page

pytestmark = pytest.mark.browser

CHECKOUT = '{service="checkout"}'
PRICE = "py::price:/app/checkout/pricing.py"
_ROWS = """
const text = (cell) => cell.innerText.trim();
return [...document.querySelectorAll(`${arguments[0]} tbody tr`)].map((row) =>
  [Number(row.ariaLevel), row.ariaExpanded, ...[...row.cells].map(text)]);
"""
_OPEN_ALL = """
for (;;) {
  const closed = document.querySelectorAll("#table tr[aria-expanded=false], #table tr[data-more]");
  if (!closed.length) return;
  for (const row of closed) row.click();
}
"""
_SHOWN = """
const { count, frame, functions, parent, total, self, unit } = icestream.graph.tree;
import("./base/format.js").then(({ formatValue, formatShare }) => {
  const path = (node) => (node < 0 ? [] : [...path(parent[node]), functions.name[frame[node]]]);
  done([...Array(count).keys()].map((node) => [path(node).join(";"),
    [formatValue(total[node], unit), formatValue(self[node], unit), formatShare(total[node], total[0])]]));
});
"""


def rows(page: Page, table: str = "#table") -> list[list]:
    """Level, whether it is open ("true", "false" or None), function and values of each row."""
    found: list[list] = page.js(_ROWS, table)
    return found


def by_path(listed: list[list]) -> dict[str, list[str]]:
    """The values of each row by the functions that lead to it."""
    path: list[str] = []
    found = {}
    for level, _, name, *values in listed:
        path[level - 1 :] = [name]
        found[";".join(path)] = values
    return found


def keys(page: Page, *pressed: str) -> str:
    """Presses keys, and returns the function of the row that has the keyboard then."""
    ActionChains(page.browser).send_keys(*pressed).perform()
    return str(page.js("return document.activeElement.closest('#table tr')?.cells[0].innerText"))


def heaviest(page: Page, table: str = "#table") -> None:
    page.find(f"{table} .sides button").click()


def test_every_frame_of_the_graph_is_a_row_with_its_values_sorted_by_total(page: Page, site: Site) -> None:
    page.open(selector=CHECKOUT)
    page.click("#tables [value=calls]")
    page.until(lambda: page.all("#table [role=treegrid]"))
    assert page.state()["table"] == "calls"
    assert [row[:3] for row in rows(page)] == [[1, "true", "total"], [2, "false", "_start"]]
    page.js(_OPEN_ALL)
    listed = rows(page)
    assert by_path(listed) == dict(page.js_async(_SHOWN))
    assert listed[0][3:] == [page.find("#total").text.removesuffix(" CPU"), "0 s", "100 %"]
    total = {row[2]: float(row[5].removesuffix(" %")) for row in listed if row[0] == 7}
    siblings = [row[2] for row in listed if row[0] == 7]
    assert len(siblings) > 2
    assert all(total[first] >= total[second] for first, second in pairwise(siblings))
    page.click("#tables [value='']")
    page.until(lambda: page.texts("#table th.cumulative"))


def test_my_code_and_chains_hold_for_the_call_tree(page: Page) -> None:
    page.open(selector=CHECKOUT, frames="own", chains="", table="calls")
    heaviest(page)
    names = [row[2] for row in rows(page)]
    assert names[1] == "py::serve_forever:/app/checkout/server.py (+1)"
    assert names[-1].startswith("py::")
    assert PRICE in names
    page.click("#chains")
    page.until(lambda: rows(page)[1][2] == "py::<module>:/app/checkout/server.py")


def test_one_click_opens_the_heaviest_path_and_one_closes_it(page: Page) -> None:
    page.open(selector=CHECKOUT, table="calls")
    heaviest(page)
    listed = rows(page)
    opened = [row for row in listed if row[1] == "true"]
    tree = "const { childStart, total } = icestream.graph.tree; const path = [0]; let at = 0;"
    step = "for (let n = childStart[at]; n < childStart[at + 1]; n++) if (best < 0 || total[n] > total[best]) best = n;"
    depth = page.js(
        f"{tree} for (;;) {{ let best = -1; {step} if (best < 0) return path.length; path.push(at = best); }}"
    )
    assert [row[0] for row in opened] == list(range(1, depth))
    assert page.js("return document.activeElement.ariaLevel") == str(depth)
    page.find("#table .sides button:nth-child(2)").click()
    assert len(rows(page)) == 2


def test_the_call_tree_is_walked_with_the_keyboard(page: Page) -> None:
    page.open(selector=CHECKOUT, chains="", table="calls")
    page.js("document.querySelector('#table .sides button:nth-child(2)').focus()")
    assert keys(page, Keys.TAB) == "total"
    first = keys(page, Keys.ARROW_DOWN)
    assert first == "py::serve_forever:/app/checkout/server.py (+4)"
    assert keys(page, Keys.ARROW_RIGHT) == first
    assert rows(page)[1][1] == "true"
    inner = keys(page, Keys.ARROW_RIGHT)
    assert inner == "py::handle:/app/checkout/server.py"
    assert keys(page, Keys.ARROW_LEFT) == first
    assert keys(page, Keys.END) == rows(page)[-1][2] != first
    assert keys(page, Keys.HOME) == "total"
    assert keys(page, Keys.ARROW_DOWN, Keys.ARROW_LEFT) == first
    assert rows(page)[1][1] == "false"
    assert keys(page, Keys.SPACE, Keys.ARROW_DOWN) == inner
    assert page.js("return [...document.querySelectorAll('#table tr')].filter((row) => row.tabIndex === 0).length") == 1
    assert keys(page, "m") == "None"
    assert page.texts(".menu strong") == [inner]
    keys(page, Keys.ESCAPE)
    page.until(lambda: not page.all(".menu"))
    assert keys(page, Keys.ENTER) == inner
    page.until(lambda: rows(page)[0][2] == inner)
    page.settle()
    assert page.texts("#crumbs button")[-1] == inner
    assert rows(page)[0][:2] == [1, "true"]
    assert keys(page, Keys.ESCAPE) == inner
    page.until(lambda: rows(page)[0][2] != inner)
    page.js("document.activeElement.blur()")
    ActionChains(page.browser).send_keys("t").perform()
    page.until(lambda: "table" not in page.state())


def test_a_refresh_keeps_rows_open_and_the_keyboard_where_it_was(page: Page) -> None:
    page.open(selector=CHECKOUT, table="calls")
    heaviest(page)
    before, focused = rows(page), keys(page)
    page.js("window.before = icestream.graph.tree; document.activeElement.old = true")
    page.js("icestream.state.update({ refresh: '1' }, { replace: true })")
    page.until(lambda: page.js("return icestream.graph.tree !== window.before && !document.activeElement.old"))
    page.js("icestream.state.update({ refresh: '' }, { replace: true })")
    page.settle()
    assert (rows(page), keys(page)) == (before, focused)


def test_a_comparison_shows_how_each_frame_changed_and_colours_what_is_sure(page: Page, site: Site) -> None:
    page.open(view="compare", start=site.middle, selector=CHECKOUT, table="calls")
    assert page.texts("#table thead th") == ["Function", "Total", "Self", "Share", "Change"]
    page.js(_OPEN_ALL)
    sure = "const { changed } = icestream.graph.tree.baseline; return changed.filter(Boolean).length"
    coloured = "return document.querySelectorAll('#table td :is(.worse, .better)').length"
    assert page.js(coloured) == page.js(sure) > 0
    changes = {row[2]: row[6] for row in rows(page)}
    assert re.fullmatch(r"\+[\d.]+ s\s*\+\d+ %", changes["py::rule_matches:/app/checkout/rules.py"])
    assert changes["sha256_block_data_order_avx2"].startswith("\N{MINUS SIGN}")
    node = page.node("py::rule_matches:/app/checkout/rules.py")
    page.point_at("py::rule_matches:/app/checkout/rules.py")
    page.until(lambda: page.find("#tooltip").is_displayed())
    said = dict(zip(page.texts("#tooltip dt"), page.texts("#tooltip dd"), strict=True))
    assert changes["py::rule_matches:/app/checkout/rules.py"].endswith(said["change"])
    assert page.texts(f'#table [data-node="{node}"] td')[0] == said["total"].split(" \u00b7 ")[0]


def test_the_call_tree_is_turned_round_with_the_graph(page: Page) -> None:
    page.open(selector=CHECKOUT, invert="true", table="calls")
    assert page.texts("#table thead th") == ["Function", "Total", "Share"]
    page.js("document.querySelector('#table tbody tr:nth-child(2)').click()")
    assert [row[2] for row in rows(page)][1:3] == [
        "py::rule_matches:/app/checkout/rules.py",
        "py::discounts:/app/checkout/pricing.py",
    ]


def test_callers_and_callees_of_a_function_open_by_themselves(page: Page, site: Site) -> None:
    page.open(selector=CHECKOUT, function=PRICE, table="calls")
    heaviest(page, "#callees-table")
    heaviest(page, "#callers-table")
    callees, callers = rows(page, "#callees-table"), rows(page, "#callers-table")
    assert [row[2] for row in callees][1:3] == [PRICE, "py::discounts:/app/checkout/pricing.py"]
    assert [row[2] for row in callers][1:3] == [PRICE, "py::POST_checkout:/app/checkout/orders.py"]
    assert (len(callees[1]), len(callers[1])) == (6, 5)  # callers have no values of their own
    page.click("#tables [value='']")
    page.until(lambda: page.all("#callees-table th.cumulative"))


def test_what_a_search_finds_is_marked_and_a_frame_selected_in_the_graph_has_its_row_marked(page: Page) -> None:
    page.open(selector=CHECKOUT, table="calls", search="discounts")
    heaviest(page)
    assert page.texts("#table mark") == ["py::discounts:/app/checkout/pricing.py"]
    page.find("#icicle .scroll").send_keys(Keys.ARROW_DOWN)
    assert page.texts("#table tr.selected th") == ["_start"]


def test_fifty_thousand_frames_do_not_hold_up_the_table(page: Page, site: Site) -> None:
    page.open(selector='{service="wide"}', start=site.wide_end - 900, end=site.wide_end, table="calls")
    open_heaviest = "document.querySelector('#table .sides button').click(); document.body.offsetHeight;"
    took = page.js(f"const begun = performance.now(); {open_heaviest} return performance.now() - begun")
    assert took < 1000
    listed = rows(page)
    assert 20 < len(listed) < 2000
    assert listed[-1][0] > 1
    stub = page.find("#table tr[title^='[cut]']")
    parent = page.js("return icestream.graph.tree.count")
    page.js("arguments[0].click()", stub)
    page.until(lambda: page.js("return icestream.graph.tree.count") != parent)  # asked again for what is below
    page.settle()
    assert page.find("#reset").is_displayed()


def test_many_children_are_shown_in_parts(page: Page) -> None:
    page.open(invert="true", table="calls")
    children = page.js("return icestream.graph.tree.childStart[1] && icestream.graph.tree.levelStart[2] - 1")
    assert children > 20
    assert page.texts("#table tbody tr.more th") == [f"Show {children - 20} more of {children - 20}"]
    assert keys(page, "m") == "None"
    page.js("document.querySelector('#table tbody tr').focus()")
    keys(page, Keys.END, Keys.ENTER)
    assert len(rows(page)) == children + 1
    assert page.js("return document.activeElement === document.querySelectorAll('#table tbody tr')[21]")


@pytest.mark.parametrize("view", ["profile", "compare"])
def test_a_narrow_page_has_names_and_values_without_scrolling_sideways(page: Page, site: Site, view: str) -> None:
    size = {"width": 360, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    page.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        page.open(view=view, start=site.middle, selector=CHECKOUT, table="calls")
        heaviest(page)
        assert page.js("return document.documentElement.scrollWidth") <= 360
        overflow = (
            "const { scrollWidth, clientWidth } = document.getElementById('table'); return scrollWidth - clientWidth"
        )
        assert page.js(overflow) == 0
        widths = page.js("return [...document.querySelectorAll('.call')].map((name) => name.clientWidth)")
        assert min(widths) > 40
    finally:
        page.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
