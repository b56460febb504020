"""The view of one profile."""

import random
import re
from collections import defaultdict

import httpx2
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.browser.conftest import Site
from tests.browser.fill import MEAN_IN_USE, MEMORY_IN_USE
from tests.browser.page import Page
from tests.browser.shop import HOSTILE_FUNCTION, HOSTILE_LABEL, LONG_FUNCTION, REARRANGING_FUNCTION, WIDE_NODES

pytestmark = pytest.mark.browser

_SUMS = """
const { total, self, width, levelStart } = icestream.graph.tree;
const sum = (column) => column.reduce((sum, value) => sum + value, 0);
const level1 = sum(width.slice(levelStart[1], levelStart[2]));
return { root: total[0], flat: sum(self), level1, self0: self[0] };
"""


_TABLE = """
const { functions } = icestream.graph.tree;
const wanted = new Set(arguments[0]);
const key = (row) => `${functions.name[row]} ${functions.module[row]}`;
const rows = [...functions.name.keys()].filter((row) => wanted.has(key(row)));
return Object.fromEntries(rows.map((row) => [key(row), [functions.flat[row], functions.cumulative[row]]]));
"""


def collapsed(site: Site, **query: object) -> dict[tuple[str, ...], int]:
    """The API's own stacks and values, in another format than the page reads."""
    parameters = {"start": site.start, "end": site.end, "format": "collapsed"} | query
    answer = httpx2.get(f"{site.address}api/v1/merge", params=parameters, timeout=300)
    stacks: dict[tuple[str, ...], int] = defaultdict(int)
    for line in answer.text.splitlines():
        stack, _, value = line.rpartition(" ")
        stacks[tuple(stack.split(";"))] += int(value)
    return stacks


def test_the_page_loads_everything_from_its_own_address(page: Page, site: Site) -> None:
    page.open()
    resources = page.js("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert resources
    assert all(name.startswith(site.address) for name in resources)
    policy = page.js("return document.querySelector('meta[http-equiv]').content")
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_the_graph_sums_to_what_the_api_says(page: Page, site: Site) -> None:
    page.open()
    total = site.ask("merge", format="tree")["total"]
    sums = page.js(_SUMS)
    assert sums["root"] == sums["flat"] == total == sum(collapsed(site).values())
    assert sums["level1"] + sums["self0"] == total
    assert int(page.find("#total").get_attribute("data-value")) == total
    widths = sum(page.box(node)["width"] for node in page.js("return [...Array(4).keys()].map((i) => i + 1)"))
    assert widths == pytest.approx(page.js("return document.querySelector('#icicle .scroll').clientWidth"), abs=1)


def test_memory_in_use_is_bytes_and_averaged_over_time(page: Page, site: Site) -> None:
    page.open(profile_type=MEMORY_IN_USE)
    assert page.find("#total").text == "128 MiB"
    assert "averaged over time" in page.texts("#summary span")
    asked = site.ask("merge", format="tree", profile_type=MEMORY_IN_USE)
    assert (asked["total"], asked["aggregation"]) == (MEAN_IN_USE, "average")
    assert page.js(_SUMS)["root"] == MEAN_IN_USE
    assert page.texts("#table tbody td")[0].startswith("128 MiB")
    assert page.find("#profile-type option:checked").text == "memory · inuse_space (bytes)"


def test_search_shows_how_much_of_the_profile_matches_and_lists_only_that(page: Page, site: Site) -> None:
    page.open()
    page.type("#search", "tcp_")
    page.until(lambda: "matched" in page.find("#matched").text)
    stacks = collapsed(site)
    matched = sum(value for stack, value in stacks.items() if any("tcp_" in name for name in stack))
    assert page.find("#matched").text == f"{100 * matched / sum(stacks.values()):.2f} % matched"
    names = page.texts("#table tbody th button")
    assert names
    assert all("tcp_" in name for name in names)
    assert page.state()["search"] == "tcp_"


def test_search_takes_regular_expressions_and_says_when_one_is_wrong(page: Page) -> None:
    page.open()
    page.click("#regex")
    page.type("#search", "^sha\\d+_|_bt_")
    page.until(
        lambda: page.texts("#table tbody th button") == ["sha256_block_data_order_avx2", "_bt_compare", "_bt_search"]
    )
    page.type("#search", "(")
    page.until(lambda: page.find("#matched").text == "not a regular expression")
    page.type("#search", Keys.ESCAPE)
    page.until(lambda: len(page.texts("#table tbody th button")) > 50)


def test_a_click_zooms_and_the_browser_goes_back(page: Page) -> None:
    page.open()
    before = page.box(page.node("PostgresMain"))
    page.point_at("PostgresMain", click=True)
    page.until(lambda: page.box(page.node("PostgresMain"))["width"] > before["width"] * 3)
    assert page.texts("#crumbs button")[-1] == "PostgresMain"
    page.until(lambda: "main.(*Index).intersect" not in page.texts("#table tbody th button"))  # when the zoom has ended
    assert "_bt_compare" in page.texts("#table tbody th button")
    zoomed = page.browser.current_url
    page.browser.back()
    page.until(lambda: "at" not in page.state())
    page.until(lambda: page.texts("#crumbs button") == ["total"])
    page.browser.get(zoomed)  # as a link that somebody sent
    page.settle()
    assert page.texts("#crumbs button")[-1] == "PostgresMain"
    page.click("#reset")
    page.until(lambda: page.texts("#crumbs button") == ["total"])


def test_pointing_at_a_frame_says_what_it_is(page: Page) -> None:
    page.open()
    page.point_at("py::price:/app/checkout/pricing.py")
    page.until(lambda: page.find("#tooltip").is_displayed())
    text = page.find("#tooltip").text
    assert "py::price:/app/checkout/pricing.py" in text
    assert re.search(r"total\s+[\d.]+ s · [\d.]+ %", text)
    assert re.search(r"source\s+/app/checkout/pricing\.py:\d+", text)


_FIRST_ROWS = """
import("./graph/function_table.js").then(({ firstRows }) => {
  const [counts, flat, names] = given;
  const content = { tree: { functions: { name: names } }, sums: { flat } };
  const first = (count, sort) => firstRows([...flat.keys()], count, content, sort);
  done(counts.map((count) => ["flat", "-flat", "name", "-name"].map((sort) => first(count, sort))));
}).catch((error) => done(String(error)));
"""


def test_the_first_rows_are_those_of_all_rows_in_order(page: Page) -> None:
    """Also where many functions have the same value."""
    choose = random.Random(0)
    flat = [choose.choice((0, 0, 0, 1, 2, choose.randrange(100))) for _ in range(200)]
    names = [choose.choice("abcdefgh") for _ in flat]
    rows = range(len(flat))
    expected = [
        sorted(rows, key=lambda row: (-flat[row], names[row], row)),
        sorted(rows, key=lambda row: (flat[row], names[row], row)),
        sorted(rows, key=lambda row: (names[row], row)),
        sorted(rows, key=lambda row: (names[row], row), reverse=True),
    ]
    page.open()
    counts = [1, 7, 40, 90, 1000]
    found = page.js_async(_FIRST_ROWS, counts, flat, names)
    assert found == [[rows[:count] for rows in expected] for count in counts]


def test_the_table_has_the_sums_of_functions_and_sorts(page: Page, site: Site) -> None:
    page.open()
    flat: dict[str, int] = defaultdict(int)
    for stack, value in collapsed(site).items():
        flat[stack[-1]] += value
    heaviest = sorted(flat, key=lambda name: -flat[name])[:5]
    assert page.texts("#table tbody th button")[:5] == heaviest
    page.click("#table th.cumulative button")
    page.until(lambda: page.find("#table th.cumulative").get_attribute("aria-sort") == "descending")
    assert page.texts("#table tbody th button")[:2] == ["Py_BytesMain", "_start"]  # as much, so by name
    assert page.js("return document.activeElement.dataset.key") == "cumulative"
    page.click("#table th.name button")
    page.until(lambda: page.find("#table th.name").get_attribute("aria-sort") == "ascending")
    names = page.texts("#table tbody th button")
    assert names == sorted(names)
    assert page.state()["sort"] == "name"


def test_a_function_of_the_table_is_highlighted_in_the_graph(page: Page) -> None:
    page.open()
    page.find("#table tbody th button").click()
    page.until(lambda: page.find("#matched").text.endswith("matched"))
    names = page.texts("#table tbody th button")
    assert page.state()["search"] == f'"{names[0]}"'
    assert len(names) > 50
    assert page.texts("#table tbody tr[aria-current] th") == [names[0]]
    page.find("#table tbody th button").click()
    page.until(lambda: "search" not in page.state())


def test_the_graph_is_walked_with_the_keyboard(page: Page) -> None:
    page.open()
    graph = page.find("#icicle .scroll")
    graph.send_keys(Keys.ARROW_DOWN, Keys.ARROW_RIGHT)
    announcement = page.js("return document.getElementById('announcer').textContent")
    assert announcement.startswith("runtime.goexit, ")
    assert "total" in announcement
    graph.send_keys(Keys.ENTER)
    page.until(lambda: page.texts("#crumbs button") == ["total", "runtime.goexit"])
    graph.send_keys(Keys.ESCAPE)
    page.until(lambda: page.texts("#crumbs button") == ["total"])


def test_a_drag_over_the_timeline_selects_a_time_range(page: Page, site: Site) -> None:
    page.open()
    timeline = page.find("#timeline")
    width = timeline.size["width"]
    ActionChains(page.browser).move_to_element_with_offset(timeline, -width // 4, -10).click_and_hold().move_by_offset(
        width // 2, 0
    ).release().perform()
    page.until(lambda: page.state()["start"].startswith("20"))
    page.settle()
    shown = page.js(
        "return [icestream.state.values.start, icestream.state.values.end].map((t) => Date.parse(t) / 1000)"
    )
    quarter = (site.end - site.start) / 4
    assert shown[0] == pytest.approx(site.start + quarter, abs=quarter / 20)
    assert shown[1] == pytest.approx(site.end - quarter, abs=quarter / 20)
    total = int(page.find("#total").get_attribute("data-value"))
    assert total == site.ask("merge", start=page.state()["start"], end=page.state()["end"])["total"]


def test_names_that_look_like_markup_are_text(page: Page) -> None:
    page.open(selector='{service="odd"}')
    assert HOSTILE_FUNCTION in page.texts("#table tbody th button")
    page.point_at(HOSTILE_FUNCTION)
    page.until(lambda: HOSTILE_LABEL in page.find("#tooltip").text)
    page.point_at(HOSTILE_FUNCTION, click=True)
    page.until(lambda: HOSTILE_FUNCTION in page.texts("#crumbs button"))
    assert any("\\u{202e}" in name for name in page.texts("#table tbody th button"))
    selector = page.find("#selector")
    selector.send_keys(Keys.CONTROL + "a")
    selector.send_keys("{note=")
    page.until(lambda: page.texts(".completions li") == [HOSTILE_LABEL])
    selector.send_keys(Keys.TAB)
    page.until(lambda: "note" in page.state()["selector"])
    page.settle()
    assert HOSTILE_FUNCTION in page.texts("#table tbody th button")
    assert page.js("return document.querySelectorAll('main img, main script').length") == 0


def test_names_with_control_characters_are_shown_escaped_and_found_as_they_are(page: Page) -> None:
    page.open(selector='{service="odd"}')
    shown = "{{constructor}}`'\"\\u{202e}\\u{0}\\u{a}"
    assert shown in page.texts("#table tbody th button")
    row = next(row for row in page.all("#table tbody tr") if "constructor" in row.text)
    for item in ("Focus: only stacks with it", "Callers and callees"):
        ActionChains(page.browser).context_click(row.find_element("css selector", "button")).perform()
        assert page.texts(".menu strong") == [shown]
        next(entry for entry in page.all(".menu [role=menuitem]") if entry.text == item).click()
        page.settle()
        assert page.find("#total").text == "105 ms CPU"
        if item.startswith("Focus"):
            page.browser.back()
            page.settle()
            row = next(row for row in page.all("#table tbody tr") if "constructor" in row.text)
    assert page.state()["function"] == REARRANGING_FUNCTION
    assert page.texts("#sandwich-title span")[0] == shown
    page.open(view="services", selector='{service="odd"}', label="team")
    assert page.texts("#service-rows th") == ["a\\u{202e}b\\u{a}c"]


def test_a_very_long_name_hides_no_numbers_and_can_be_focused_on(page: Page) -> None:
    page.open(selector='{service="odd"}')
    page.point_at(LONG_FUNCTION)
    page.until(lambda: page.find("#tooltip").is_displayed())
    window = page.js("return innerHeight")
    assert all(row.rect["y"] + row.rect["height"] < window for row in page.all("#tooltip dd"))
    assert "52.6 ms \u00b7 25.0 %" in page.texts("#tooltip dd")
    row = next(row for row in page.all("#table tbody tr") if row.text.startswith("std::variant"))
    ActionChains(page.browser).context_click(row.find_element("css selector", "button")).perform()
    page.all(".menu [role=menuitem]")[1].click()
    page.settle()
    assert page.find("#total").text == "52.6 ms CPU"
    page.open(selector='{service="odd"}', function=LONG_FUNCTION)
    assert page.find("#sandwich-title").rect["height"] < 120


def test_of_fifty_thousand_frames_it_draws_those_that_can_be_seen_and_its_sums_are_of_all(
    page: Page, site: Site
) -> None:
    wide = {"selector": '{service="wide"}', "start": site.wide_end - 900, "end": site.wide_end}
    page.open(**wide)
    assert 1000 < page.js("return icestream.graph.tree.count") < WIDE_NODES / 2
    assert page.js(_SUMS)["flat"] == site.wide_ns
    top = httpx2.get(f"{site.address}api/v1/top", params=wide | {"limit": 100}, timeout=300).json()["top"]
    values = {f"{row['name']} {row['module']}": [row["flat"], row["cumulative"]] for row in top}
    assert page.js(_TABLE, list(values)) == values
    assert not any("[cut]" in name for name in page.texts("#table tbody th button"))
    page.type("#search", "function_12")
    exact = site.ask("merge", **wide, focus="function_12")["total"]
    page.until(lambda: page.find("#matched").text == f"{100 * exact / site.wide_ns:.1f} % matched")
    page.type("#search", Keys.ESCAPE)
    drawn = page.js("return icestream.graph.icicle.paintNow()")
    canvas = page.js("const c = document.querySelector('#icicle canvas'); return [c.clientWidth, c.clientHeight]")
    assert 0 < drawn["rectangles"] < canvas[0] * canvas[1] / 19
    assert len(page.texts("#table tbody tr")) == 100
    page.click("#table .more")
    assert len(page.texts("#table tbody tr")) == 500
    root = page.js("return icestream.graph.tree.count")
    node = page.js("return icestream.graph.tree.levelStart[6]")
    page.js(
        "icestream.state.update({ at: icestream.graph.tree.pathId[arguments[0]].toString(16).padStart(8, '0') })", node
    )
    page.until(lambda: page.js("return icestream.graph.tree.root") != 0)  # asked again for what is below
    assert page.js("return icestream.graph.tree.count") != root
    page.click("#reset")
    page.until(lambda: page.js("return icestream.graph.tree.root") == 0)
    page.type("#icicle .scroll", *[Keys.ARROW_DOWN, Keys.ENTER] * 12)
    page.until(lambda: len(page.texts("#crumbs button")) == 6 and page.find("#reset").is_displayed())
